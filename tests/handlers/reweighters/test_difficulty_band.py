import logging
import math

import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import NUMBERS_AND_WORSE

from dataflex_events import RunFacts, StepDriver, StepId, make_plan
from dataflex_events.handlers.reweighters.difficulty_band import DifficultyBand
from dataflex_events.testing import make_batch

NAN, INF = math.nan, math.inf


def weights(scores, **params):
    scores = torch.tensor(scores, dtype=torch.float32)
    return DifficultyBand(**params).weigh(scores, make_batch([[0.0] * len(scores)])).tolist()


def in_a_run(rewards, **params):
    actuator = {"name": "difficulty_band", "params": params}
    plan = make_plan({"mechanism": "reweight", "scorer": {"name": "reward"}, "actuator": actuator})
    batch = make_batch([rewards], lengths=[1] * len(rewards))
    return StepDriver(plan.bus(), RunFacts()).step(StepId(1), batch).weights.tolist()


# catalogue 2.2: the quantiles of [0, .5, .5, 1] are .375 and .625.
@pytest.mark.parametrize(
    ("rewards", "raw", "normalised"),
    [
        ([0, 0.5, 0.5, 1], [1, 2, 2, 1], [0.6667, 1.3333, 1.3333, 0.6667]),
        ([0, 0, 1, 1], [2, 2, 2, 2], [1, 1, 1, 1]),
        ([0, 0, 0, 1], [2, 2, 2, 1], [1.1429, 1.1429, 1.1429, 0.5714]),
        ([0, 1, 1, 1], [1, 2, 2, 2], [0.5714, 1.1429, 1.1429, 1.1429]),
    ],
)
def test_the_worked_examples(rewards, raw, normalised):
    assert weights(rewards) == raw
    assert in_a_run(rewards) == pytest.approx(normalised, abs=5e-5)


def test_scores_on_a_bound_are_inside():
    # Of 0, .1, ..., 1 the quartiles are .2 + .05 and .8 - .05, the deciles .1 and .9 themselves.
    scores = [at / 10 for at in range(11)]
    assert weights(scores, low_q=0.1, high_q=0.9, focus_weight=3) == [1.0] + [3.0] * 9 + [1.0]
    assert weights(scores, low_q=0.3, high_q=0.3) == [1.0] * 3 + [2.0] + [1.0] * 7


@pytest.mark.parametrize("missing", [NAN, INF, -INF])
def test_a_row_without_a_score_weighs_one_and_moves_no_quantile(missing):
    assert weights([0, missing, 0.5, 0.5, 1]) == [1, 1, 2, 2, 1]


@pytest.mark.parametrize("scores", [[], [0.5], [NAN, NAN], [NAN, 0.5]])
def test_fewer_than_two_scores_all_weigh_one(scores):
    assert weights(scores) == [1.0] * len(scores)


def test_a_weight_below_one_turns_the_band_around():
    assert weights([0, 0.5, 0.5, 1], focus_weight=0) == [1, 0, 0, 1]


def test_huge_scores():
    assert weights([-1e30, 0, 0, 1e30]) == [1, 2, 2, 1]


def interpolated(scores, share):
    position = round(share * (len(scores) - 1), 9)
    below = math.floor(position)
    low, high = sorted(scores)[below], sorted(scores)[min(below + 1, len(scores) - 1)]
    return low + (high - low) * (position - below)


def slowly(scores, low_q, high_q):
    finite = [score for score in scores if math.isfinite(score)]
    if len(finite) < 2:
        return [1.0] * len(scores)
    low, high = interpolated(finite, low_q), interpolated(finite, high_q)
    return [2.0 if low <= score <= high else 1.0 for score in scores]


@given(
    scores=st.lists(NUMBERS_AND_WORSE, max_size=12), band=st.sampled_from([(0.25, 0.75), (0, 1), (0.1, 0.4), (1, 1)])
)
def test_against_plain_python(scores, band):
    scores = [score if math.isfinite(score) else NAN for score in scores]
    assert weights(scores, low_q=band[0], high_q=band[1]) == slowly(scores, *band)


def test_it_warns_once_if_nearly_all_rows_share_one_score(caplog):
    component, batch = DifficultyBand(), make_batch([[0.0] * 20])
    with caplog.at_level(logging.WARNING, logger="dataflex"):
        component.weigh(torch.tensor([0.0] * 18 + [1.0] * 2), batch)
        assert caplog.records == []  # 90% is not more than 90%
        for _ in range(2):
            component.weigh(torch.tensor([0.0] * 19 + [1.0]), batch)
    assert [record.getMessage() for record in caplog.records] == [
        "difficulty_band: 19 of 20 rows share one score, its band says little"
    ]


@pytest.mark.parametrize("params", [{"low_q": -0.1}, {"high_q": 1.1}, {"focus_weight": -1}, {"focus_weight": INF}])
def test_parameters_out_of_range_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        DifficultyBand(**params)


def test_a_band_that_nothing_can_be_in_is_refused():
    with pytest.raises(ValueError, match=r"no score lies between the quantiles low_q 0\.8 and high_q 0\.2"):
        DifficultyBand(low_q=0.8, high_q=0.2)
