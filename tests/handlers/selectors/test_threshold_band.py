import math
from fractions import Fraction

import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events import RunFacts, StepDriver, StepId, make_plan
from dataflex_events.handlers.selectors.threshold_band import ThresholdBand
from dataflex_events.testing import make_batch

NAN, INF = math.nan, math.inf


def kept(scores, **bounds):
    mask = ThresholdBand(**bounds).select(torch.tensor(scores, dtype=torch.float32), make_batch([[0.0] * len(scores)]))
    assert mask.dtype == torch.bool
    return mask.nonzero().flatten().tolist()


RATES = [0, 0.2, 0.4, 0.6, 0.8, 1]


def test_the_worked_examples():
    assert kept(RATES, low=0.2, high=0.8) == [2, 3]
    assert kept(RATES, low=0.0, high=1.0) == [1, 2, 3, 4]


def test_zero_and_one_are_the_defaults():
    assert kept(RATES) == [1, 2, 3, 4]


def test_inclusive_keeps_the_bounds():
    assert kept(RATES, low=0.2, high=0.8, inclusive=True) == [1, 2, 3, 4]
    assert kept(RATES, inclusive=True) == [0, 1, 2, 3, 4, 5]


def test_two_of_ten_is_not_above_a_fifth():
    # In float32 one fifth is a little above 0.2: bounds are compared with a tolerance.
    two_of_ten = float(torch.tensor([1.0, 1, 0, 0, 0, 0, 0, 0, 0, 0]).mean())
    assert kept([two_of_ten, 2 / 10, 0.2 + 5e-7], low=0.2) == []
    assert kept([two_of_ten, 2 / 10, 0.2 - 5e-7], low=0.2, inclusive=True) == [0, 1, 2]


def test_the_upper_bound_has_the_same_tolerance():
    assert kept([0.8, 0.8 - 5e-7], high=0.8) == []
    assert kept([0.8, 0.8 + 5e-7, 0.8 + 5e-6], high=0.8, inclusive=True) == [0, 1]


@given(
    counts=st.lists(st.integers(1, 16).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), max_size=8),
    bounds=st.sampled_from([(0, 1), (1, 5), (1, 4), (1, 8), (1, 3)]),
    inclusive=st.booleans(),
)
def test_solve_rates_are_compared_as_the_fractions_that_they_are(counts, bounds, inclusive):
    low = Fraction(*bounds)
    high = 1 - low
    expected = [
        at
        for at, (solved, n) in enumerate(counts)
        if (low <= Fraction(solved, n) <= high if inclusive else low < Fraction(solved, n) < high)
    ]
    scores = [solved / n for solved, n in counts]
    assert kept(scores, low=float(low), high=float(high), inclusive=inclusive) == expected


@pytest.mark.parametrize("inclusive", [True, False])
@pytest.mark.parametrize("missing", [NAN, INF, -INF])
def test_a_row_without_a_score_is_out(missing, inclusive):
    assert kept([0.5, missing], inclusive=inclusive) == [0]


def test_a_side_may_be_open():
    assert kept([-5.0, 0.5, 5.0], low=0.0, high=INF) == [1, 2]


@pytest.mark.parametrize("bounds", [(0.8, 0.2), (0.5, 0.5), (NAN, 1.0), (0.0, NAN)])
def test_a_band_that_nothing_can_be_in_is_refused(bounds):
    with pytest.raises(ValueError, match="no score lies between"):
        ThresholdBand(*bounds)


def test_an_inclusive_band_may_be_a_single_value():
    assert kept([0.4, 0.5], low=0.5, high=0.5, inclusive=True) == [1]


@pytest.mark.parametrize("params", [{"low": "0"}, {"low": True}, {"inclusive": 1}, {"high": None}])
def test_wrong_types_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        ThresholdBand(**params)


def select(name, rewards, **params):
    actuator = {"name": name, "params": params}
    plan = make_plan({"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": actuator})
    return StepDriver(plan.bus(), RunFacts()).step(StepId(1), make_batch(rewards))


def test_groups_without_contrast_leave_the_batch():
    # Of [1, 0 | 1, 1 | 0, 0] only the first group teaches anything.
    assert select("threshold_band", [[1, 0], [1, 1], [0, 0]]).keep.int().tolist() == [1, 1, 0, 0, 0, 0]


def test_of_five_rollouts_the_open_band_from_a_fifth_keeps_two_and_three_solved():
    groups = [[1] * solved + [0] * (5 - solved) for solved in range(6)]
    keep = select("difficulty_filtering", groups).keep.int().tolist()
    assert [sum(keep[5 * at : 5 * at + 5]) for at in range(6)] == [0, 0, 5, 5, 0, 0]


def test_a_batch_without_contrast_is_kept_whole_and_counted():
    result = select("threshold_band", [[1, 1], [0, 0]])
    assert result.keep.all()
    assert result.metrics["dataflex/kept_whole"] == 1.0
