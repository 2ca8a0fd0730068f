"""Histories of prompts for gates, and a small world in which prompts are drawn, generated and counted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from gatekit import held, table_of
from numpy.typing import ArrayLike

from dataflex_events import Gate, PromptHistory, PromptStats, StepGroups
from dataflex_events.prompts import PromptDraw

NAN = math.nan


def history(*, latest: Sequence[float] = (), streak: Sequence[int] = ()) -> PromptHistory:
    """Prompts with these pass rates of their latest groups (NaN: never generated), or with these streaks."""
    size = len(latest) or len(streak)
    zeros = np.zeros(size, dtype=np.int64)
    rates = np.array(latest or [NAN] * size, dtype=np.float64)
    return PromptHistory(
        rows=np.arange(size),
        domains=zeros,
        visits=(~np.isnan(rates)).astype(np.int64),
        rollouts=zeros,
        successes=zeros,
        latest=rates,
        streak=np.array(streak or zeros, dtype=np.int64),
        alpha=np.ones(size),
        beta=np.ones(size),
    )


def seen(*groups: tuple[int, int, int], decay: float = 1.0, rows: int | None = None) -> PromptHistory:
    """What is known after groups `(row, rollouts, successes)`, each in a step of its own."""
    stats = PromptStats(rows or 1 + max(row for row, _, _ in groups), decay=decay)
    for row, rollouts, successes in groups:
        stats.add([row], [rollouts], [successes], [successes in (0, rollouts)])
        stats.commit()
    return stats.look(np.arange(len(stats)))


def step_of(kinds: Sequence[int], known: Sequence[bool], rollouts: int = 4) -> StepGroups:
    """A step whose groups all succeeded (1), all failed (-1), or did something between (0)."""
    kind = np.array(kinds, dtype=np.int64)
    size = len(kind)
    successes = np.where(kind > 0, rollouts, np.where(kind < 0, 0, rollouts // 2))
    return StepGroups(np.arange(size), np.full(size, rollouts), successes, kind, np.array(known, dtype=bool))


def rate_of(rate: float, rollouts: int = 100) -> StepGroups:
    """A step with this pass rate."""
    one = np.array([rollouts])
    return StepGroups(np.zeros(1, np.int64), one, np.round(one * rate).astype(np.int64), np.zeros(1, np.int64), one > 0)


def frequencies(gate: Gate, classes: Sequence[tuple[int, int] | None], *, of_each: int, seed: int, plans: int) -> list:
    """How often rows of each class are drawn, as shares, in plans of 40 while nothing new becomes known.

    Args:
        gate: Draws.
        classes: `(rollouts, successes)` of the one group of each row of the class; None: it was never generated.
        of_each: Rows of each class.
        seed: The draw's.
        plans: Number of plans.
    """
    table = table_of([of_each * len(classes)])
    gated = held(gate, table)
    group_of = np.arange(len(table.codes)) % len(classes)
    for at, known in enumerate(classes):
        if known is not None:
            rows = np.flatnonzero(group_of == at)
            rollouts, successes = (np.full(len(rows), number) for number in known)
            gated.stats.add(rows, rollouts, successes, (successes == 0) | (successes == rollouts))
    gated.stats.commit()
    draw = PromptDraw(table, seed)
    rows = np.concatenate([draw.plan(40, None, gated).rows for _ in range(plans)])
    counts: list[float] = (np.bincount(group_of[rows], minlength=len(classes)) / len(rows)).tolist()
    return counts


def within(found: Sequence[float], expected: Sequence[float], draws: int) -> None:
    """Compare shares with their chances: at most four standard deviations of so many independent draws off."""
    for got, chance in zip(found, expected, strict=True):
        assert abs(got - chance) <= 4 * math.sqrt(chance * (1 - chance) / draws), (found, expected)


def budget(gate: Gate, rates: ArrayLike, *, seed: int, steps: int = 60, prompts: int = 16, rollouts: int = 8) -> list:
    """Let a gate draw prompts that are solved at the given rates, none of which ever changes.

    Returns:
        For each of the different rates, in ascending order, its share in the prompts of the second half of the steps.
    """
    rate = np.asarray(rates, dtype=np.float64)
    table = table_of([len(rate)])
    gated, draw, chance = held(gate, table), PromptDraw(table, seed), np.random.default_rng(seed)
    gate.begin(table, {})
    drawn = []
    for _ in range(steps):
        rows = draw.plan(prompts, None, gated).rows
        successes = chance.binomial(rollouts, rate[rows])
        equal = (successes == 0) | (successes == rollouts)
        gated.stats.add(rows, np.full(len(rows), rollouts), successes, equal)
        gate.update(gated.stats.commit())
        drawn.append(rate[rows])
    late = np.concatenate(drawn[steps // 2 :])
    return [float((late == value).mean()) for value in np.unique(rate)]
