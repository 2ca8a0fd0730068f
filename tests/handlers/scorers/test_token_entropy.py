import pytest

from dataflex_events import FieldError
from dataflex_events.handlers.scorers.token_entropy import TokenEntropy
from dataflex_events.testing import make_batch


def test_it_is_verl_s_column():
    batch = make_batch([[0], [0]], lengths=[2, 1], tokens={"entropy": [[0.5, 0.0], [2.0]]})
    assert TokenEntropy().score(batch).tolist() == [0.5, 0.0, 2.0]


def test_a_run_that_bypasses_the_recomputation_of_log_probs_has_no_entropy():
    with pytest.raises(FieldError, match="needs the field 'entropy', which this run does not have"):
        TokenEntropy().score(make_batch([[0]]))
