import math

import numpy as np
import pydantic
import pytest
from prompthistory import NAN, budget, frequencies, history, within

from dataflex_events.handlers.gates.learnability import Learnability

RATES = [0.0, 0.125, 0.5, 0.875, 1.0]


# catalogue 4.14: p (1 - p) as shares
def test_the_worked_example():
    chance = Learnability().chance(history(latest=RATES))
    assert (chance / 4).tolist() == pytest.approx([0, 0.1094, 0.25, 0.1094, 0], abs=5e-5)
    assert (chance / chance.sum()).tolist() == pytest.approx([0, 0.2333, 0.5333, 0.2333, 0], abs=5e-5)


def test_what_was_never_generated_is_always_drawn():
    gate, known = Learnability(), history(latest=[NAN, 0.5, 0.0, 1.0])
    assert gate.chance(known).tolist() == [1, 1, 0, 0]
    preference = gate.prefer(known, np.random.default_rng(0))
    assert preference.tolist()[:2] == [0, 0]
    assert np.isnan(preference[2:]).all()


def test_defaults():
    gate = Learnability()
    assert gate == Learnability(explore=0.1)
    assert (gate.looks, gate.forgets, gate.explore_share) == (1, 1.0, 0.1)
    assert gate.needs_groups


def test_drawn_as_often_as_the_worked_example_says():
    classes = [(8, 0), (8, 1), (8, 4), (8, 7), (8, 8)]
    expected = [0, 0.21875 / 0.9375, 0.5 / 0.9375, 0.21875 / 0.9375, 0]
    assert expected == pytest.approx([0, 0.2333, 0.5333, 0.2333, 0], abs=5e-5)
    found = frequencies(Learnability(explore=0.0), classes, of_each=300, seed=1, plans=80)
    within(found, expected, 3200)
    found = frequencies(Learnability(explore=0.25), classes, of_each=300, seed=1, plans=80)
    within(found, [0.75 * share + 0.25 / 5 for share in expected], 3200)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_nothing_solves_does_not_attract_the_budget(seed):
    hopeless, middle, mastered = budget(Learnability(), [0.0, 0.5, 1.0] * 40, seed=seed)
    # What is left for them is to be explored, a tenth of the prompts, a third of those.
    assert hopeless < 0.1
    assert mastered < 0.1
    assert middle > 0.8


@pytest.mark.parametrize("params", [{"explore": -0.1}, {"explore": 1.1}, {"explore": math.nan}])
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        Learnability(**params)
