"""Rewards that are NaN, infinite, huge, negative or all equal, end to end: no loss ever sees them."""

from __future__ import annotations

import math

import pytest
from labrun import Run
from ppobyhand import grpo
from ways import WAYS, Story
from wayscheck import check_advantages, ways

pytestmark = pytest.mark.e2e

ODD = [name for name, way in WAYS.items() if way.odd]


@ways(*ODD)
def test_bad_rewards_reach_no_loss(step: Story) -> None:
    for row in step.rows.values():
        for name in ("advantages", "returns"):
            assert row[name].isfinite().all()
    assert all(math.isfinite(call["loss"]) for call in step.calls)
    assert 0 < step.metrics["actor/grad_norm"] < math.inf
    assert len(step.generated) == 64


def broken_groups(step: Story) -> list[list[str]]:
    """Groups with a reward that is not finite."""
    return [keys for keys in step.groups.values() if not all(math.isfinite(step.generated[key]) for key in keys)]


@ways("rewards nan, dropped")
def test_groups_with_an_unknown_reward_are_dropped(step: Story) -> None:
    gone = {key for keys in broken_groups(step) for key in keys}
    assert len(gone) == 32
    assert set(step.rows) == set(step.generated) - gone
    assert step.metrics["dataflex/nonfinite/rewards"] == 12
    assert step.metrics["dataflex/nonfinite/group_solve_rate"] == 32


@ways("rewards nan, weighted", "rewards inf")
def test_rows_without_an_advantage_train_nothing(step: Story) -> None:
    muted = {key for keys in broken_groups(step) for key in keys}
    assert len(muted) == 32
    for key in muted:
        assert step.rows[key]["advantages"].tolist() == [0.0] * step.lengths[key]
    assert step.metrics["dataflex/nonfinite/advantages"] == 32
    finite = {key: value for key, value in advantages_of_finite(step).items() if key in step.rows}
    check_advantages(step, finite)


def advantages_of_finite(step: Story) -> dict[str, float]:
    """Advantages of the groups whose rewards are all finite."""
    found = {}
    for keys in step.groups.values():
        rewards = [step.generated[key] for key in keys]
        if all(map(math.isfinite, rewards)):
            found |= dict(zip(keys, grpo(rewards), strict=True))
    return found


@ways("rewards equal")
def test_equal_rewards_that_float32_cannot_hold_have_no_contrast(step: Story) -> None:
    constant = [keys for keys in step.groups.values() if len({step.generated[key] for key in keys}) == 1]
    assert len(constant) == 4
    assert set(step.rows) == set(step.generated) - {key for keys in constant for key in keys}


def test_bad_rewards_are_reported_once_in_a_run_with_the_rows(ways_run: Run) -> None:
    # Each of the three steps has a block of its own, and so a new beginning.
    assert ways_run.log.count("12 of 64 rows have rewards that are not finite, e.g. ") == 3
