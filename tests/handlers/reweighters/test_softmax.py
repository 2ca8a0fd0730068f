import math

import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import NUMBERS_AND_WORSE

from dataflex_events import RunFacts, StepDriver, StepId, make_plan
from dataflex_events.handlers.reweighters.softmax import Softmax
from dataflex_events.testing import make_batch

NAN, INF = math.nan, math.inf


def weights(scores, temperature=1.0):
    batch = make_batch([[0.0] * len(scores)])
    return Softmax(temperature=temperature).weigh(torch.tensor(scores, dtype=torch.float32), batch)


def test_the_worked_example():
    # e^0, e^1, e^2 over their sum 11.1073, times 3.
    assert weights([0, 1, 2]).tolist() == pytest.approx([0.2701, 0.7342, 1.9957], abs=5e-5)


def test_equal_scores_give_equal_weights():
    assert weights([0.3] * 5).tolist() == pytest.approx([1.0] * 5)


def test_a_higher_temperature_is_gentler():
    # e^0 and e^(2/2) over their sum 3.7183, times 2.
    assert weights([0, 2], temperature=2).tolist() == pytest.approx([0.5379, 1.4621], abs=5e-5)


@pytest.mark.parametrize("missing", [NAN, INF, -INF])
def test_a_row_without_a_score_gets_weight_one_and_leaves_the_others_alone(missing):
    assert weights([0, missing, 1, 2]).tolist() == pytest.approx([0.2701, 1.0, 0.7342, 1.9957], abs=5e-5)


def test_no_scores_at_all():
    assert weights([]).tolist() == []
    assert weights([NAN, NAN]).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("temperature", [1e-300, 1e-3, 1e300])
@pytest.mark.parametrize("scores", [[0, 1, 2], [-1e30, 0, 1e30], [1e6, 1e6 + 1]])
def test_weights_are_finite_for_every_temperature_and_score(temperature, scores):
    got = weights(scores, temperature)
    assert got.isfinite().all()
    assert (got >= 0).all()
    assert float(got.mean()) == pytest.approx(1.0, rel=1e-5)


def slowly(scores, temperature):
    finite = [score for score in scores if math.isfinite(score)]
    exps = [math.exp((score - max(finite)) / temperature) for score in finite]
    return [
        math.exp((score - max(finite)) / temperature) * len(finite) / math.fsum(exps) if math.isfinite(score) else 1.0
        for score in scores
    ]


@given(scores=st.lists(NUMBERS_AND_WORSE, max_size=8), temperature=st.sampled_from([0.1, 0.5, 1.0, 3.0]))
def test_against_plain_python(scores, temperature):
    got = weights(scores, temperature)
    assert got.tolist() == pytest.approx(slowly(scores, temperature), rel=1e-5, abs=1e-7)


def test_it_takes_token_scores_too():
    batch = make_batch([[0, 0]], lengths=[2, 1])
    got = Softmax().weigh(torch.tensor([0.0, 1.0, 2.0]), batch)
    assert got.tolist() == pytest.approx([0.2701, 0.7342, 1.9957], abs=5e-5)


@pytest.mark.parametrize("temperature", [0, -1, NAN, INF, "1", None])
def test_the_temperature_must_be_a_positive_number(temperature):
    with pytest.raises(pydantic.ValidationError):
        Softmax(temperature=temperature)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # Rewards 0, 1, 2 on rows of 1, 1 and 2 tokens. Raw weights .2701, .7342, 1.9957 have the token mean 1.2489...
        ("token-mean", [0.2163, 0.5879, 1.5979, 1.5979]),
        # ... and the row mean 1.
        ("seq-mean-token-mean", [0.2701, 0.7342, 1.9957, 1.9957]),
    ],
)
def test_its_weights_have_mean_one_in_the_unit_of_the_loss(mode, expected):
    bus = make_plan({"mechanism": "reweight", "scorer": {"name": "reward"}, "actuator": {"name": "softmax"}}).bus()
    driver = StepDriver(bus, RunFacts(loss_agg_mode=mode))
    result = driver.step(StepId(1), make_batch([[0, 1, 2]], lengths=[1, 1, 2]))
    assert result.weights.tolist() == pytest.approx(expected, abs=1e-4)
