import math

import pytest
import torch

from dataflex_events.handlers.scorers.token_prob import TokenProb
from dataflex_events.testing import make_batch


# catalogue 1.4: the third token is padding with log-prob 0.
def test_the_worked_example():
    batch = make_batch([[0]], mask=[[1, 1, 0]], tokens={"old_log_probs": [[math.log(0.1), math.log(0.9), 0.0]]})
    assert TokenProb().score(batch).tolist() == pytest.approx([0.1, 0.9, 1.0])


def test_what_is_unknown_stays_in_its_own_token():
    batch = make_batch([[0], [0]], lengths=[2, 1], tokens={"old_log_probs": [[math.nan, -math.inf], [-1.0]]})
    expected = torch.tensor([math.nan, 0.0, math.exp(-1)])
    torch.testing.assert_close(TokenProb().score(batch), expected, equal_nan=True)


def test_empty_responses():
    batch = make_batch([[0, 0]], lengths=[0, 0], tokens={"old_log_probs": [[], []]})
    assert TokenProb().score(batch).tolist() == []
