import math
import statistics

import pydantic
import pytest
from hypothesis import given
from ragged import samples

from dataflex_events.handlers.scorers.group_reward_std import GroupRewardStd
from dataflex_events.testing import make_batch


def stds(rewards, **more):
    return GroupRewardStd().score(make_batch(rewards, **more)).tolist()


def test_it_is_unbiased():
    # [1, 0]: sqrt(.25 + .25); [1, 0, 0, 0]: sqrt((.5625 + 3 * .0625) / 3).
    assert stds([[1, 0], [1, 0, 0, 0]]) == pytest.approx([0.70711] * 2 + [0.5] * 4, abs=1e-5)


def test_equal_rewards_have_exactly_no_contrast():
    # Three times .9, and seven times .1, in float32.
    assert stds([[0.9] * 3, [0.1] * 7, [1e30] * 4]) == [0.0] * 14


def test_the_tolerance_is_relative_above_one_and_absolute_below():
    assert stds([[0, 1e-7]]) == [0.0, 0.0]
    assert stds([[1e6, 1e6 + 1]]) == [0.0, 0.0]
    assert stds([[1e5, 1e5 + 1]]) == pytest.approx([0.70711] * 2, abs=1e-5)
    assert GroupRewardStd(tolerance=0.0).score(make_batch([[0, 1e-7]])).tolist() == pytest.approx([7.0711e-8] * 2)


def test_a_group_of_one_has_none():
    assert stds([[5], [0]], lengths=[3, 0]) == [0.0, 0.0]


@pytest.mark.parametrize("unknown", [math.nan, math.inf, -math.inf])
def test_a_group_with_an_unknown_reward_has_no_score(unknown):
    got = stds([[1, unknown, 0], [unknown], [1, 0]])
    assert all(map(math.isnan, got[:4]))
    assert got[4:] == pytest.approx([0.70711] * 2, abs=1e-5)


def test_a_session_with_several_outputs_counts_once():
    # Sessions with the final rewards 1 and 0.
    assert stds([[0, 1, 0]], sessions=[0, 0, 1]) == pytest.approx([0.70711] * 3, abs=1e-5)


def slowly(sample, row):
    rewards = [sum(final.rm_scores, start=0.0) for final in sample.finals(row.uid)]
    if not all(map(math.isfinite, rewards)):
        return math.nan
    std = statistics.stdev(rewards) if len(rewards) > 1 else 0.0
    return std if std >= 1e-6 * max(1.0, *map(abs, rewards)) else 0.0


@given(sample=samples())
def test_against_plain_python(sample):
    got = GroupRewardStd().score(sample.batch).tolist()
    assert got == pytest.approx([slowly(sample, row) for row in sample.rows], nan_ok=True)


@pytest.mark.parametrize("tolerance", [-1e-6, math.nan, math.inf, "0"])
def test_the_tolerance_must_be_a_number_from_zero(tolerance):
    with pytest.raises(pydantic.ValidationError):
        GroupRewardStd(tolerance=tolerance)
