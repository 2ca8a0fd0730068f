import math

import numpy as np
import pydantic
import pytest
from prompthistory import budget, frequencies, history, seen, step_of, within

from dataflex_events.handlers.gates.greso import Greso


# catalogue 4.4: traces of visits, 1 where all outcomes were equal, and the chance to be skipped
@pytest.mark.parametrize("successes", [0, 4])
@pytest.mark.parametrize(("trace", "skipped"), [([0, 1, 1], 0.75), ([1, 1, 0], 0.0), ([1] * 8, 0.99), ([], 0.0)])
def test_the_worked_examples(trace, skipped, successes):
    known = seen(*((0, 4, successes if equal else 2) for equal in trace), rows=1) if trace else history(streak=[0])
    assert (1 - Greso().chance(known)).tolist() == pytest.approx([skipped])


def test_defaults():
    gate = Greso()
    assert gate == Greso(p_init=0.5, step=0.01, targets=(0.0833, 0.1667), explore_min=0.01)
    assert (gate.explore_share, gate.looks, gate.forgets) == (0.01, 1, 1.0)
    assert gate.needs_groups


# catalogue 4.4: targets .0833 and .1667, 10 % easy and 10 % hard
def test_the_worked_example_of_a_step():
    gate = Greso()
    gate.update(step_of([1, -1] + [0] * 8, [True] * 10))
    assert (gate.p_easy, gate.p_hard) == (pytest.approx(0.49), pytest.approx(0.51))
    # Easy prompts and hard ones have chances of their own.
    assert gate.chance(history(streak=[1, 2, -1, -2])).tolist() == pytest.approx([0.49, 0.49**2, 0.51, 0.51**2])


def test_a_share_at_the_target_is_enough():
    gate = Greso(targets=(0.25, 0.5))
    gate.update(step_of([1, -1, -1, 0], [True] * 4))
    assert (gate.p_easy, gate.p_hard) == (pytest.approx(0.49), pytest.approx(0.49))


@pytest.mark.parametrize(("kinds", "p_easy", "p_hard"), [([1], 0.05, 0.95), ([-1], 0.95, 0.05), ([0], 0.95, 0.95)])
def test_the_bases_stay_within_bounds(kinds, p_easy, p_hard):
    gate = Greso(step=0.2)
    for _ in range(9):
        gate.update(step_of(kinds, [True]))
    assert (gate.p_easy, gate.p_hard) == (pytest.approx(p_easy), pytest.approx(p_hard))


@pytest.mark.parametrize(("came_back", "moves"), [(0, False), (1, False), (2, True), (4, True)])
def test_in_the_first_epoch_nothing_moves(came_back, moves):
    gate = Greso()
    gate.update(step_of([1, 1, 1, 1], [at < came_back for at in range(4)]))
    assert (gate.p_easy != 0.5) == moves
    gate = Greso()
    gate.update(step_of([], []))
    assert (gate.p_easy, gate.p_hard) == (0.5, 0.5)


def test_drawn_as_often_as_their_chances_say():
    # Never generated, taught something, all succeeded: chances 1, 1, .25. Draws without exploration.
    gate = Greso(p_init=0.25, explore_min=0.0)
    found = frequencies(gate, [None, (4, 2), (4, 4)], of_each=400, seed=3, plans=80)
    within(found, [1 / 2.25, 1 / 2.25, 0.25 / 2.25], 3200)
    # A fifth of them is drawn whatever is known. Chances are at least .2 then; those of before are above.
    gate = Greso(p_init=0.25, explore_min=0.2)
    found = frequencies(gate, [None, (4, 2), (4, 4)], of_each=400, seed=3, plans=80)
    within(found, [0.8 * chance / 2.25 + 0.2 / 3 for chance in (1, 1, 0.25)], 3200)


@pytest.mark.parametrize("seed", [0, 1])
def test_what_nothing_solves_does_not_attract_the_budget(seed):
    hopeless, middle, mastered = budget(Greso(), [0.0, 0.5, 1.0] * 40, seed=seed)
    assert hopeless < 0.2 < 1 / 3 < middle
    assert mastered < 0.2


def test_a_restart_at_any_step_changes_nothing():
    steps = [step_of(kinds, [True] * 4) for kinds in ([1, 0, 0, 0], [0, 0, 0, 0], [-1, -1, 0, 1], [1, 1, 1, 1])]
    straight, restarted = Greso(), Greso()
    for step in steps:
        straight.update(step)
        restarted.update(step)
        again = Greso()
        again.load_state_dict(restarted.state_dict())
        restarted = again
        assert (restarted.p_easy, restarted.p_hard) == (straight.p_easy, straight.p_hard)
    assert restarted.p_easy != 0.5 != restarted.p_hard


@pytest.mark.parametrize(
    "state", [{}, {"p_easy": 0.5}, {"p_easy": 0.5, "p_hard": 1.0}, {"p_easy": "0.5", "p_hard": 0.5}]
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(state):
    gate = Greso()
    with pytest.raises(ValueError, match="p_easy and p_hard"):
        gate.load_state_dict(state)
    assert (gate.p_easy, gate.p_hard) == (0.5, 0.5)
    with pytest.raises(ValueError, match="p_easy and p_hard"):
        gate.load_state_dict({"p_easy": math.nan, "p_hard": 0.5})


@pytest.mark.parametrize(
    "params",
    [
        {"p_init": 0.04},
        {"p_init": 0.96},
        {"p_init": math.nan},
        {"step": -0.1},
        {"step": 1.1},
        {"targets": (0.1,)},
        {"targets": (0.1, 1.2)},
        {"explore_min": -0.1},
        {"explore_min": 1.5},
    ],
)
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        Greso(**params)


def test_preferences_are_only_whether_to_draw():
    preference = Greso(explore_min=0.0).prefer(history(streak=[0, 0, 60]), np.random.default_rng(0))
    assert preference.tolist()[:2] == [0.0, 0.0]
    assert math.isnan(preference[2])  # its chance is .5 ** 60
