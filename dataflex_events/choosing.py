"""Draws rows of the dataset with a gate: of the candidates that come up, those that the gate prefers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dataflex_events.errors import HandlerOutputError
from dataflex_events.gate import Gate
from dataflex_events.pools import DomainTable, Pools
from dataflex_events.prompt_stats import PromptStats

if TYPE_CHECKING:
    from dataflex_events.prompts import Planned

Ints = NDArray[np.int64]

MOST_ROUNDS = 64
"""After so many rounds of candidates a draw is filled with what was skipped."""

_WIDEST = 2**30


class Gated(Protocol):
    """A gate, and what it goes by."""

    @property
    def gate(self) -> Gate:
        """Prefers some candidates."""
        ...

    @property
    def stats(self) -> PromptStats:
        """What is known about each row."""
        ...

    def attempt(self, plan: Callable[[], Planned]) -> Planned | None:
        """Make a plan with the gate and note what came of it; None if the gate failed and is gone."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What a draw with a gate came to.

    Attributes:
        rows: `(n,)` int64 rows to draw.
        skipped: `(S,)` int64 rows that came up and are not drawn.
        explored: How many rows are drawn whatever the gate prefers.
    """

    rows: Ints
    skipped: Ints
    explored: int


class Choice:
    """One draw from the given domains. None of its rows comes twice unless a domain has fewer than are drawn of it.

    Args:
        table: The rows of each domain.
        domains: `(n,)` int64, the domain of each row to draw.
        drawn: Rows that were drawn a moment ago, and should not come again while there are others.
    """

    def __init__(self, table: DomainTable, domains: Ints, drawn: Ints) -> None:
        self._table, self._domains, self._seen = table, domains, drawn
        self._open: Ints = np.bincount(domains, minlength=len(table))
        self._crowded = self._open >= table.sizes  # nothing to choose from: each row comes at least once
        self._rows: Ints = np.zeros(0, dtype=np.int64)
        self._passed: Ints = np.zeros(0, dtype=np.int64)
        self._explored = 0

    def explore(self, rows: Ints) -> None:
        """Draw these rows whatever the gate prefers, at most as many as are wanted."""
        before = len(self._rows)
        rows = rows[~self._crowded[self._domain(rows)]]
        self._draw(self._fresh(rows))
        self._explored = len(self._rows) - before

    def ask(self, gated: Gated, pools: Pools, rng: np.random.Generator) -> None:
        """Let candidates come up and draw what the gate prefers, until there are enough or all rows have come up."""
        gate, size = gated.gate, len(self._table)
        came = np.bincount(self._domain(np.unique(self._seen)), minlength=size)
        left = np.where(self._crowded, 0, self._table.sizes - came)
        wider = np.ones(size, dtype=np.int64)
        for _ in range(MOST_ROUNDS):
            looks = np.minimum(self._open * gate.looks * wider, left)
            if not looks.any():
                return
            ask = np.repeat(np.arange(size), looks)
            rows = self._fresh(pools.take(ask) if gate.source is None else gate.source.take(ask, self._seen))
            if not len(rows):
                continue
            domain = self._domain(rows)
            left = left - np.bincount(domain, minlength=size)  # where passes meet, some come up again
            preference = _checked(gate, gate.prefer(gated.stats.look(rows, domain), rng), len(rows))
            skips = np.isnan(preference)
            best = np.lexsort((np.arange(len(rows)), -preference, skips, domain))
            chosen = np.zeros(len(rows), dtype=bool)
            chosen[best] = _turns(domain[best]) < self._open[domain[best]]
            chosen &= ~skips
            self._passed = np.concatenate([self._passed, rows[~chosen]])
            self._draw(rows[chosen])
            # Twice as many next time where none of them would do: few may be good, and rounds take time.
            wider = np.where(np.bincount(domain[chosen], minlength=size) > 0, wider, np.minimum(2 * wider, _WIDEST))

    def finish(self, pools: Pools) -> Chosen:
        """Fill what is still open: with what was passed over, first of all, and at last with any rows."""
        passed = self._passed
        if self._open.any():
            now = _turns(self._domain(passed)) < self._open[self._domain(passed)]
            self._draw(passed[now])
            passed = passed[~now]
        if self._open.any():
            self._draw(self._others(pools))
        rows = np.empty_like(self._domains)
        order = np.argsort(self._domain(self._rows), kind="stable")
        rows[np.argsort(self._domains, kind="stable")] = self._rows[order]
        return Chosen(rows, passed, self._explored)

    def _draw(self, rows: Ints) -> None:
        """Draw these rows, of each domain as many as are open."""
        domain = self._domain(rows)
        now = _turns(domain) < self._open[domain]
        self._rows = np.concatenate([self._rows, rows[now]])
        self._open = self._open - np.bincount(domain[now], minlength=len(self._open))

    def _others(self, pools: Pools) -> Ints:
        """What else there is in domains that are still open: first what was drawn least often a moment ago.

        Where passes over a domain meet, rows can have come up twice and others not at all.
        """
        counts = np.where(self._open > 0, np.maximum(self._table.sizes, self._open), 0)
        rows = pools.take(np.repeat(np.arange(len(counts)), counts))
        rows = rows[~np.isin(rows, self._rows)]
        came, number = np.unique(rows, return_inverse=True)
        drawn = self._seen[np.isin(self._seen, came)]
        times = np.bincount(np.searchsorted(came, drawn), minlength=len(came))
        return rows[np.argsort(times[number], kind="stable")]

    def _fresh(self, rows: Ints) -> Ints:
        """Those of the rows that did not come up before; now they did."""
        rows = rows[~np.isin(rows, self._seen)]
        self._seen = np.concatenate([self._seen, rows])
        return rows

    def _domain(self, rows: Ints) -> Ints:
        return self._table.codes[rows].astype(np.int64)


def _turns(domain: Ints) -> Ints:
    """For each element, how many of the same domain are before it."""
    order = np.argsort(domain, kind="stable")
    ordered = domain[order]
    turns = np.empty_like(domain)
    turns[order] = np.arange(len(domain)) - np.searchsorted(ordered, ordered)
    return turns


def _checked(gate: Gate, preference: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    if not isinstance(preference, np.ndarray) or preference.shape != (size,) or preference.dtype.kind != "f":
        given = f"{preference.dtype} of shape {preference.shape}" if isinstance(preference, np.ndarray) else preference
        name = type(gate).__name__
        raise HandlerOutputError(f"gate {name} preferred {given!s:.100}, expected floats of shape ({size},)")
    return preference
