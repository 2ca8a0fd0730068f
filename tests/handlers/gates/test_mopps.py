import math

import numpy as np
import pydantic
import pytest
from gatekit import held, table_of
from prompthistory import budget, history, seen

from dataflex_events.handlers.gates.mopps import Mopps
from dataflex_events.prompts import PromptDraw


class Dealt:
    """Stands for a random number generator: deals what it was given, and notes the posteriors."""

    def __init__(self, *rates):
        self.rates, self.posteriors = np.array(rates), []

    def beta(self, alpha, beta):
        self.posteriors += zip(alpha.tolist(), beta.tolist(), strict=True)
        return self.rates


def best(gate, known, rng, count):
    return np.argsort(-gate.prefer(known, rng), kind="stable")[:count].tolist()


# catalogue 4.5
def test_the_worked_example_of_a_draw():
    rng = Dealt(0.1, 0.45, 0.8, 0.52, 0.95)
    assert best(Mopps(), history(latest=[math.nan] * 5), rng, 2) == [3, 1]
    assert rng.posteriors == [(1, 1)] * 5


def test_the_worked_example_of_the_posteriors():
    gate, rng = Mopps(decay=0.5), Dealt(0.5, 0.5, 0.5)
    known = seen((0, 8, 2), (1, 8, 2), (1, 8, 4), decay=gate.forgets, rows=3)
    gate.prefer(known, rng)
    assert rng.posteriors == [(3, 7), (6, 8), (1, 1)]
    means = [alpha / (alpha + beta) for alpha, beta in rng.posteriors]
    assert means == pytest.approx([0.3, 0.4286, 0.5], abs=5e-5)


def test_the_target_and_equal_distances():
    known, rates = history(latest=[0.5] * 4), (0.25, 0.75, 0.875, 0.125)
    assert best(Mopps(target=1.0), known, Dealt(*rates), 2) == [2, 1]
    assert best(Mopps(target=0.5), known, Dealt(*rates), 4) == [0, 1, 2, 3]


def test_defaults():
    gate = Mopps()
    assert gate == Mopps(target=0.5, decay=1.0, candidates=8, explore=0.01)
    assert (gate.looks, gate.forgets, gate.explore_share) == (8, 1.0, 0.01)
    assert gate.needs_groups
    assert Mopps(decay=0.5).forgets == 0.5


def test_of_so_many_candidates_the_best_are_drawn():
    table = table_of([100])
    gated = held(Mopps(candidates=4, explore=0.0), table)
    planned = PromptDraw(table, 0).plan(5, None, gated)
    assert len(planned.skipped) == 15  # 20 came up
    # Fewer candidates than that: all that there are.
    small = table_of([6])
    planned = PromptDraw(small, 0).plan(5, None, held(Mopps(candidates=4, explore=0.0), small))
    assert len(planned.skipped) == 1


def test_drawn_as_often_as_their_posteriors_say():
    # X is from Beta(1, 1), Y from Beta(9, 1), and the target is 1. P(X > Y) is the integral of x^9, which is .1.
    known = seen((1, 8, 8), rows=2)
    rng, wins, trials = np.random.default_rng(7), 0, 4000
    for _ in range(trials):
        wins += best(Mopps(target=1.0), known, rng, 1) == [0]
    assert abs(wins / trials - 0.1) <= 4 * math.sqrt(0.1 * 0.9 / trials)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_what_nothing_solves_does_not_attract_the_budget(seed, decay):
    hopeless, middle, mastered = budget(Mopps(decay=decay, candidates=4), [0.0, 0.5, 1.0] * 40, seed=seed)
    assert hopeless < 0.2
    assert mastered < 0.2
    assert middle > 0.6


@pytest.mark.parametrize(
    "params",
    [
        {"target": -0.1},
        {"target": 1.1},
        {"target": math.nan},
        {"decay": -0.1},
        {"decay": 1.1},
        {"candidates": 0},
        {"candidates": 1.5},
        {"explore": -0.1},
        {"explore": 1.1},
    ],
)
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        Mopps(**params)
