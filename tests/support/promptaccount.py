"""Random histories of prompts, and a plain-Python account of what they make known: dicts, lists and loops."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from hypothesis import strategies as st

from dataflex_events import PromptStats, StepGroups


class Group(NamedTuple):
    row: int
    rollouts: int
    successes: int
    equal: bool


@st.composite
def groups(draw: st.DrawFn, rows: int) -> Group:
    """A group of a row, or of an unknown one (-1); rows come often, some groups have no outcome that is known."""
    rollouts = draw(st.sampled_from([0, 1, 1, 2, 3, 4, 8]))
    successes = draw(st.sampled_from([0, rollouts]) | st.integers(0, rollouts))
    # Outcomes that are all above the threshold, or all below, may still differ.
    equal = draw(st.booleans()) if successes in (0, rollouts) else False
    return Group(draw(st.integers(-1, rows - 1)), rollouts, successes, equal)


def histories(rows: int) -> st.SearchStrategy[list[list[Group]]]:
    """Groups of a few steps."""
    return st.lists(st.lists(groups(rows), max_size=8), max_size=6)


def add(stats: PromptStats, some: Sequence[Group]) -> None:
    columns = zip(*some, strict=True) if some else ([], [], [], [])
    stats.add(*map(list, columns))


def commit(stats: PromptStats, some: Sequence[Group]) -> StepGroups:
    add(stats, some)
    return stats.commit()


def shuffled(some: Sequence[Group], seed: int) -> list[Group]:
    found = list(some)
    random.Random(seed).shuffle(found)
    return found


class Known:
    """What is known about one prompt."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.alpha = self.beta = Fraction(1)

    @property
    def latest(self) -> float:
        return self.groups[-1].successes / self.groups[-1].rollouts if self.groups else math.nan

    @property
    def streak(self) -> int:
        kinds = [kind(group) for group in self.groups if group.rollouts > 1]
        if not kinds or kinds[-1] == 0:
            return 0
        length = 0
        while length < len(kinds) and kinds[-1 - length] == kinds[-1]:
            length += 1
        return kinds[-1] * min(length, 127)


def kind(group: Group) -> int:
    if group.rollouts < 2 or not group.equal:
        return 0
    return {group.rollouts: 1, 0: -1}[group.successes]


class PromptAccount:
    """What is known about all prompts.

    Attributes:
        known: By row.
        step: Groups of the latest step in their order, each with whether its row had been there before that step.
    """

    def __init__(self, decay: float) -> None:
        self.known: dict[int, Known] = {}
        self.step: list[tuple[Group, bool]] = []
        self._decay = Fraction(decay)

    def commit(self, some: Sequence[Group]) -> None:
        before = set(self.known)
        self.step = []
        for group in sorted(some):
            if group.row < 0 or group.rollouts == 0:
                continue
            self.step.append((group, group.row in before))
            found = self.known.setdefault(group.row, Known())
            found.groups.append(group)
            # catalogue 4.5, with the prior Beta(1, 1)
            found.alpha = self._decay * found.alpha + (1 - self._decay) + group.successes
            found.beta = self._decay * found.beta + (1 - self._decay) + group.rollouts - group.successes

    def of(self, row: int) -> Known:
        return self.known.get(row, Known())
