import math

import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events import RunFacts, StepDriver, StepId, make_plan
from dataflex_events.handlers.reweighters.advantage_reweight import AdvantageReweight
from dataflex_events.testing import make_batch

PROBABILITIES = [0.1, 0.5, 0.9]


def weights(scores, **params):
    batch = make_batch([[0]], lengths=[len(scores)])
    return AdvantageReweight(**params).weigh(torch.tensor(scores, dtype=torch.float32), batch).tolist()


def in_a_run(normalize=None, **params):
    block = {
        "mechanism": "reweight",
        "scorer": {"name": "token_prob"},
        "actuator": {"name": "advantage_reweight", "params": params},
    }
    plan = make_plan({**block, "normalize": normalize} if normalize else block)
    batch = make_batch([[0]], tokens={"old_log_probs": [[math.log(p) for p in PROBABILITIES]]})
    return StepDriver(plan.bus(), RunFacts()).step(StepId(1), batch).weights.tolist()


# catalogue 2.3
@pytest.mark.parametrize(
    ("alpha", "paper", "normalised"),
    [(0.2, [0.82, 0.90, 0.98], [0.9111, 1, 1.0889]), (0.5, [0.55, 0.75, 0.95], [0.7333, 1, 1.2667])],
)
def test_the_worked_examples(alpha, paper, normalised):
    assert weights(PROBABILITIES, alpha=alpha) == pytest.approx(paper)
    assert in_a_run(alpha=alpha) == pytest.approx(paper)
    assert in_a_run(alpha=alpha, normalize="token") == pytest.approx(normalised, abs=5e-5)


def test_a_fifth_and_no_normalisation_are_the_defaults():
    assert in_a_run() == pytest.approx([0.82, 0.90, 0.98])


def test_a_token_without_a_score_weighs_one():
    assert weights([0.5, math.nan, math.inf]) == pytest.approx([0.9, 1.0, 1.0])
    assert weights([]) == []


@given(scores=st.lists(st.floats(0, 1), max_size=8), alpha=st.floats(0, 1))
def test_against_plain_python(scores, alpha):
    got = weights(scores, alpha=alpha)
    assert got == pytest.approx([alpha * score + (1 - alpha) for score in scores], abs=1e-6)
    assert all(1 - alpha - 1e-6 <= weight <= 1 + 1e-6 for weight in got)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan, "0.2"])
def test_alpha_must_be_a_share(alpha):
    with pytest.raises(pydantic.ValidationError):
        AdvantageReweight(alpha=alpha)
