import math

import numpy as np
import pydantic
import pytest
from gatekit import held
from prompthistory import rate_of

from dataflex_events import DomainTable
from dataflex_events.handlers.gates.adarft import Adarft
from dataflex_events.prompts import PromptDraw


def begun(difficulties, sizes=None, **params):
    gate = Adarft(column="level", **params)
    codes = np.zeros(len(difficulties), dtype=np.int64) if sizes is None else np.repeat(np.arange(len(sizes)), sizes)
    table = DomainTable.from_codes(codes, [f"d{number}" for number in range(codes.max() + 1)])
    gate.begin(table, {"level": np.array(difficulties, dtype=np.float64)})
    return gate, table


# catalogue 4.8: T is 0 and grows
def test_the_worked_examples_of_the_target():
    gate, _ = begun([0, 100])
    found = []
    for rate in (0.9, 0.7, 0.4):
        gate.update(rate_of(rate))
        found.append(gate.difficulty)
    assert found == pytest.approx([33.20, 52.20, 42.33], abs=5e-3)


# catalogue 4.8: T is 40
def test_the_worked_example_of_a_draw():
    gate, table = begun([10, 30, 55, 80], start=40)
    assert PromptDraw(table, 0).plan(2, None, held(gate, table)).rows.tolist() == [1, 2]


def test_the_target_stays_between_the_difficulties_of_the_data():
    gate, _ = begun([10, 30, 80], start=0.0)
    assert gate.difficulty == 10
    for rate, bound in ((1.0, 80), (0.0, 10)):
        for _ in range(5):
            gate.update(rate_of(rate))
        assert gate.difficulty == bound


def test_the_pass_rate_is_that_of_rollouts():
    gate, _ = begun([0, 100], start=50, step=10, sensitivity=1.0)
    groups = rate_of(0.25, 4)
    gate.update(groups)
    assert gate.difficulty == pytest.approx(50 + 10 * math.tanh(-0.25))


def test_a_step_without_groups_changes_nothing():
    gate, _ = begun([0, 100], start=50)
    none = rate_of(0.5)
    empty = type(none)(*(getattr(none, name)[:0] for name in ("rows", "rollouts", "successes", "kind", "known")))
    gate.update(empty)
    assert gate.difficulty == 50


def test_no_row_comes_again_before_half_of_the_domain_was_drawn():
    gate, table = begun([10, 20, 30, 40, 50, 60, 70, 80], start=40)
    draw, gated = PromptDraw(table, 0), held(gate, table)
    drawn = [draw.plan(1, None, gated).rows.item() for _ in range(8)]
    # 40, then 30 and 50 (the lower row first), 20; that is half, and all may come again.
    assert drawn == [3, 2, 4, 1] * 2


def test_rows_of_equal_difficulty_come_in_their_order():
    gate, table = begun([5.0] * 8, start=5)
    draw, gated = PromptDraw(table, 0), held(gate, table)
    assert draw.plan(3, None, gated).rows.tolist() == [0, 1, 2]
    assert draw.plan(1, None, gated).rows.tolist() == [3]
    assert draw.plan(2, None, gated).rows.tolist() == [0, 1]


def test_each_domain_has_its_own_closest_rows():
    gate, table = begun([10, 40, 90, 45, 20, 60], sizes=[3, 3], start=41)
    planned = PromptDraw(table, 0).plan(2, None, held(gate, table))
    assert sorted(planned.rows.tolist()) == [1, 3]
    assert planned.explored == 0


def test_rows_of_a_moment_ago_are_passed_over():
    gate, table = begun([10, 20, 30, 40, 50, 60, 70, 80], start=40)
    planned = PromptDraw(table, 0).plan(2, None, held(gate, table), [3, 4])
    assert planned.rows.tolist() == [2, 1]  # 30 and 20


def test_a_restart_at_any_draw_changes_nothing():
    levels = np.random.default_rng(0).permutation(24)
    straight, table = begun(levels, sizes=[8, 16], start=9, step=3)
    restarted, _ = begun(levels, sizes=[8, 16], start=9, step=3)
    one, other = PromptDraw(table, 0), PromptDraw(table, 0)
    for rate in (0.9, 0.4, 0.0, 0.6, 0.5, 1.0):
        again, _ = begun(levels, sizes=[8, 16], start=9, step=3)
        again.load_state_dict(restarted.state_dict())
        restarted = again
        expected = one.plan(5, None, held(straight, table)).rows.tolist()
        assert other.plan(5, None, held(restarted, table)).rows.tolist() == expected
        for gate in (straight, restarted):
            gate.update(rate_of(rate))
        assert restarted.difficulty == straight.difficulty


def test_what_is_declared():
    gate = Adarft(column="level")
    assert gate == Adarft(column="level", target=0.5, step=50.0, sensitivity=2.0, start=0.0)
    assert (gate.columns, gate.looks, gate.explore_share, gate.needs_groups) == (("level",), 1, 0.0, False)
    assert gate.source is None
    assert gate.state_dict() == {}
    assert gate.difficulty == 0.0


def test_nothing_starves_where_all_rows_are_wanted_at_once():
    gate, table = begun([10, 20, 30], start=10)
    draw, gated = PromptDraw(table, 0), held(gate, table)
    for n in (3, 2, 7, 1):
        rows = draw.plan(n, None, gated).rows
        assert np.ptp(np.bincount(rows, minlength=3)) <= 1


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"column": ""},
        {"column": "level", "target": 1.1},
        {"column": "level", "step": -1},
        {"column": "level", "step": math.inf},
        {"column": "level", "sensitivity": -1},
        {"column": "level", "sensitivity": math.nan},
        {"column": "level", "start": math.nan},
    ],
)
def test_wrong_parameters_are_refused(params):
    with pytest.raises((pydantic.ValidationError, TypeError)):
        Adarft(**params)
