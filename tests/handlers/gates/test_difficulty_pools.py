import math

import pydantic
import pytest
from prompthistory import NAN, budget, frequencies, history, within

from dataflex_events.handlers.gates.difficulty_pools import DifficultyPools


# catalogue 4.18: never generated, .25 (which is hard), .5, .9; weights 1, .2, 1, .2
def test_the_worked_example():
    chance = DifficultyPools().chance(history(latest=[NAN, 0.25, 0.5, 0.9]))
    assert chance.tolist() == [1, 0.2, 1, 0.2]
    assert (chance / chance.sum()).tolist() == pytest.approx([0.4167, 0.0833, 0.4167, 0.0833], abs=5e-5)


def test_bounds_belong_to_the_pool_below_also_where_rates_are_rounded():
    known = history(latest=[0.75, 0.7501, 0.25, 0.2501, 0.0, 1.0])
    assert DifficultyPools().chance(known).tolist() == [1, 0.2, 0.2, 1, 0.2, 0.2]
    # 3 of 10 in single precision is above .3, and 9 of 10 below .9.
    rounded = history(latest=[0.30000001192092896, 0.8999999761581421, 0.9000001])
    gate = DifficultyPools(hard=0.3, easy=0.9, weight_hard=0.5, weight_easy=0.25)
    assert gate.chance(rounded).tolist() == [0.5, 1, 1]


def test_chances_are_relative_to_the_highest_weight():
    gate = DifficultyPools(weight_hard=4.0, weight_easy=0.0)
    assert gate.chance(history(latest=[NAN, 0.1, 0.5, 0.9])).tolist() == [0.25, 1, 0.25, 0]


def test_pools_may_leave_nothing_between_them():
    gate = DifficultyPools(easy=0.5, hard=0.5)
    assert gate.chance(history(latest=[0.5, 0.51])).tolist() == [0.2, 0.2]
    with pytest.raises(ValueError, match=r"hard 0.6 is above easy 0.5"):
        DifficultyPools(easy=0.5, hard=0.6)


def test_defaults():
    gate = DifficultyPools()
    assert gate == DifficultyPools(easy=0.75, hard=0.25, weight_easy=0.2, weight_hard=0.2, explore=0.01)
    assert (gate.looks, gate.forgets, gate.explore_share) == (1, 1.0, 0.01)
    assert gate.needs_groups


def test_drawn_as_often_as_the_worked_example_says():
    classes, expected = [None, (8, 2), (8, 4), (10, 9)], [1 / 2.4, 0.2 / 2.4, 1 / 2.4, 0.2 / 2.4]
    assert expected == pytest.approx([0.4167, 0.0833, 0.4167, 0.0833], abs=5e-5)
    found = frequencies(DifficultyPools(explore=0.0), classes, of_each=300, seed=2, plans=80)
    within(found, expected, 3200)
    found = frequencies(DifficultyPools(explore=0.5), classes, of_each=300, seed=2, plans=80)
    within(found, [0.5 * share + 0.5 / 4 for share in expected], 3200)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_nothing_solves_does_not_attract_the_budget(seed):
    hopeless, middle, mastered = budget(DifficultyPools(), [0.0, 0.5, 1.0] * 40, seed=seed)
    # A prompt of the middle is in another pool now and then: with 2 of 8 or fewer, or with 7 or more. So weights are
    # .2 against something between .2 and 1.
    assert hopeless < 0.25
    assert mastered < 0.25
    assert middle > 0.5


@pytest.mark.parametrize(
    "params",
    [
        {"easy": 1.1},
        {"hard": -0.1},
        {"easy": math.nan},
        {"weight_easy": -1},
        {"weight_hard": math.inf},
        {"explore": 1.1},
        {"explore": -0.1},
    ],
)
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        DifficultyPools(**params)
