"""Gates by hand, what they go by, and a slow account of how rows are chosen: lists and loops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dataflex_events import DomainTable, Gate, PromptHistory, PromptStats
from dataflex_events.choosing import MOST_ROUNDS
from dataflex_events.pools import Pools
from dataflex_events.prompts import Planned, PromptDraw

NAN = math.nan


def table_of(sizes: Sequence[int]) -> DomainTable:
    codes = np.repeat(np.arange(len(sizes)), sizes)
    np.random.default_rng(0).shuffle(codes)
    return DomainTable.from_codes(codes, [f"d{number}" for number in range(len(sizes))])


@dataclass
class Fixed(Gate):
    """Prefers each row as given, and notes what it was asked about."""

    preference: list[float]
    candidates: int = 1
    explore: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.asked: list[list[int]] = []

    @property
    def looks(self) -> int:
        return self.candidates

    @property
    def explore_share(self) -> float:
        return self.explore

    def prefer(self, prompts: PromptHistory, rng: np.random.Generator) -> np.ndarray:
        self.asked.append(prompts.rows.tolist())
        return np.array([self.preference[row] for row in prompts.rows], dtype=np.float64)


@dataclass
class Moody(Gate):
    """Prefers by chance, and skips by chance."""

    candidates: int = 2
    explore: float = 0.25

    @property
    def looks(self) -> int:
        return self.candidates

    @property
    def explore_share(self) -> float:
        return self.explore

    def prefer(self, prompts: PromptHistory, rng: np.random.Generator) -> np.ndarray:
        wish = rng.random(len(prompts))
        return np.where(wish < 0.3, np.nan, wish)


@dataclass
class Odd(Gate):
    """Returns whatever it is given."""

    value: Any

    def prefer(self, prompts: PromptHistory, rng: np.random.Generator) -> np.ndarray:
        return self.value(len(prompts)) if callable(self.value) else self.value


@dataclass
class Held:
    """A gate, and what it goes by."""

    gate: Gate
    stats: PromptStats
    told: list[Planned] = field(default_factory=list)

    def planned(self, planned: Planned) -> None:
        self.told.append(planned)


def held(gate: Gate, table: DomainTable) -> Held:
    return Held(gate, PromptStats(len(table.codes), decay=gate.forgets))


@dataclass(frozen=True)
class Call:
    """A plan of n rows with these shares, after rows of a moment ago."""

    n: int
    shares: list[float] | None
    drawn: list[int]


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@st.composite
def calls(draw: st.DrawFn, sizes: Sequence[int]) -> list[Call]:
    weights = st.lists(st.floats(0, 1), min_size=len(sizes), max_size=len(sizes)).filter(any)
    recent = st.lists(st.integers(0, sum(sizes) - 1), max_size=sum(sizes))
    return draw(st.lists(st.builds(Call, st.integers(0, 20), st.none() | weights, recent), max_size=6))


def wishes(rows: int) -> st.SearchStrategy[list[float]]:
    some = st.sampled_from([NAN, 0.0, 1.0, -1.0, 0.5, -math.inf, math.inf])
    return st.lists(some, min_size=rows, max_size=rows) | st.sampled_from([[NAN] * rows, [0.0] * rows])


def play(
    draw: PromptDraw, some: Sequence[Call], gated: Held | None
) -> list[tuple[list[int], list[int], list[int], int]]:
    found = [draw.plan(call.n, call.shares, gated, call.drawn) for call in some]
    return [
        (planned.rows.tolist(), planned.domains.tolist(), planned.skipped.tolist(), planned.explored)
        for planned in found
    ]


class SlowChoice:
    """How one domain's rows are chosen, one plan after the other.

    The streams of rows are those of `Pools`, which have tests of their own: one in which candidates come up, and one
    with the prompts to explore.
    """

    def __init__(self, table: DomainTable, domain: int, gate: Fixed, seed: int, explore_seed: int) -> None:
        self.rows = [row for row, code in enumerate(table.codes) if code == domain]
        self.domain, self.gate = domain, gate
        self.pools, self.explore = Pools(table, seed), Pools(table, explore_seed)
        self.total = 0

    def take(self, pools: Pools, count: int) -> list[int]:
        return pools.take([self.domain] * count).tolist()

    def plan(self, count: int, drawn: Sequence[int]) -> tuple[list[int], set[int], int]:
        """Rows in order, those that came up in vain, and how many were explored."""
        size, share = len(self.rows), self.gate.explore
        turns = math.floor((self.total + count) * share) - math.floor(self.total * share)
        self.total += count
        turn = self.take(self.explore, turns)
        if count >= size:  # all of the domain, and maybe more than once
            return sorted(self.take(self.pools, count), key=list(drawn).count), set(), 0
        seen, chosen, vain = set(drawn), [], []
        for row in turn:
            if row not in seen:
                chosen.append(row)
                seen.add(row)
        explored = len(chosen)
        wider = 1
        for _ in range(MOST_ROUNDS):
            left = sum(row not in seen for row in self.rows)
            looks = min(self.gate.candidates * (count - len(chosen)) * wider, left)
            fresh = []
            for row in self.take(self.pools, looks):
                if row not in seen:
                    fresh.append(row)
                    seen.add(row)
            liked = [row for row in fresh if not math.isnan(self.gate.preference[row])]
            best = sorted(liked, key=lambda row: -self.gate.preference[row])[: count - len(chosen)]
            chosen += [row for row in fresh if row in best]
            vain += [row for row in fresh if row not in best]
            if fresh and not best:
                wider *= 2
        while len(chosen) < count and vain:
            chosen.append(vain.pop(0))
        if len(chosen) < count:  # any other row, one of a moment ago only if there is nothing else
            others = [row for row in self.take(self.pools, size) if row not in chosen]
            others.sort(key=lambda row: max(list(drawn).count(row), row in seen))
            chosen += others[: count - len(chosen)]
        return chosen, set(vain), explored
