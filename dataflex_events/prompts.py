"""Which prompts come next: domains in exact shares, and the rows of each in an order of their own."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dataflex_events.apportion import Apportionment
from dataflex_events.choosing import Choice, Chosen, Gated
from dataflex_events.pools import DomainTable, Pools, read_tensor

_EXPLORE = 0x9E3779B9
"""Added to the seed for the order in which prompts are explored."""


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """Prompts to draw next.

    Attributes:
        rows: `(n,)` int64, their row numbers in the dataset.
        domains: `(n,)` int64, the domain of each.
        skipped: `(S,)` int64, rows that came up and that a gate passed over.
        explored: How many of the rows were drawn whatever the gate prefers.
    """

    rows: NDArray[np.int64]
    domains: NDArray[np.int64]
    skipped: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    explored: int = 0


class PromptDraw:
    """Plans which rows of a dataset come next, with a given share of each domain: see `Apportionment` and `Pools`.

    A gate chooses within each domain. Its share of prompts to explore comes from pools of its own, in which every row
    has its turn.

    Args:
        table: The rows of each domain.
        seed: Any integer. The names of the domains make no difference.
        shuffle: False: the rows of a domain come in the order of the dataset.

    Attributes:
        drawn: `(D,)` int64, rows of each domain that were planned so far.
    """

    def __init__(self, table: DomainTable, seed: int, shuffle: bool = True) -> None:
        self.table = table
        self.drawn: NDArray[np.int64] = np.zeros(len(table), dtype=np.int64)
        self._apportionment = Apportionment(len(table))
        self._pools = Pools(table, seed, shuffle)
        self._explore = Pools(table, seed + _EXPLORE, shuffle)
        # Rows of each domain that came through a gate, and how often a gate was asked.
        self._gated: NDArray[np.int64] = np.zeros(len(table), dtype=np.int64)
        self._asked = 0

    @property
    def owed(self) -> NDArray[np.float64]:
        """`(D,)` float64, how many rows each domain is behind its shares so far; below 0: ahead of them."""
        owed: NDArray[np.float64] = self._apportionment.owed.copy()
        return owed

    def plan(
        self, n: int, shares: ArrayLike | None = None, gated: Gated | None = None, drawn: Sequence[int] = ()
    ) -> Planned:
        """Plan the next n rows.

        Args:
            n: Number of rows, >= 0.
            shares: `(D,)` relative sizes, finite and >= 0, at least one > 0. None: the domains' shares in the dataset.
            gated: The gate, if there is one.
            drawn: Rows that were drawn a moment ago: a gate does not draw them again while there are others.

        Returns:
            The rows. None comes twice unless its domain has fewer rows than are planned of it here.

        Raises:
            ValueError: These are not shares of D domains, or n is negative. Nothing is planned then.
            Exception: What the gate raises. Nothing is planned then.
        """
        before = (self._apportionment, self.drawn, self._pools, self._explore, self._gated, self._asked)
        self._apportionment = copy.copy(self._apportionment)
        self._pools, self._explore = copy.copy(self._pools), copy.copy(self._explore)
        try:
            return self._plan(n, shares, gated, drawn)
        except Exception:
            self._apportionment, self.drawn, self._pools, self._explore, self._gated, self._asked = before
            raise

    def _plan(self, n: int, shares: ArrayLike | None, gated: Gated | None, drawn: Sequence[int]) -> Planned:
        domains = self._apportionment.assign(self.table.sizes if shares is None else shares, n)
        self.drawn = self.drawn + np.bincount(domains, minlength=len(self.table))
        if gated is None:
            return Planned(self._pools.take(domains), domains)
        chosen = self._choose(domains, gated, np.asarray(drawn, dtype=np.int64))
        return Planned(chosen.rows, domains, chosen.skipped, chosen.explored)

    def _choose(self, domains: NDArray[np.int64], gated: Gated, drawn: NDArray[np.int64]) -> Chosen:
        before, size = self._gated, len(self.table)
        self._gated = before + np.bincount(domains, minlength=size)
        self._asked += 1
        share = gated.gate.explore_share
        turns = _due(self._gated, share) - _due(before, share)
        key = np.array([self._pools.seed % 2**64, self._asked], dtype=np.uint64)
        rng = np.random.Generator(np.random.Philox(key=key))
        choice = Choice(self.table, domains, drawn)
        choice.explore(self._explore.take(np.repeat(np.arange(size), turns)))
        choice.ask(gated, self._pools, rng)
        return choice.finish(self._pools)

    def state_dict(self) -> dict[str, Any]:
        """What has been drawn and owed so far. Its size does not depend on the dataset."""
        return {
            "owed": torch.from_numpy(self.owed),
            "drawn": torch.from_numpy(self.drawn.copy()),
            "pools": self._pools.state_dict(),
            "explore": self._explore.state_dict(),
            "gated": torch.from_numpy(self._gated.copy()),
            "asked": self._asked,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned, with its seed and its `shuffle`.

        Raises:
            ValueError: It is not the state of a draw, or one of domains of other sizes. Nothing has changed then.
        """
        pools, explore = (self._read_pools(state, name) for name in ("pools", "explore"))
        shape, asked = (len(self.table),), state.get("asked")
        drawn, gated = (read_tensor(state, name, torch.int64, shape) for name in ("drawn", "gated"))
        if (drawn < 0).any() or (gated < 0).any() or type(asked) is not int or asked < 0:
            raise ValueError("its 'drawn', 'gated' or 'asked' are no counts")
        self._apportionment.restore(read_tensor(state, "owed", torch.float64, shape))
        self.drawn, self._pools, self._explore, self._gated, self._asked = drawn, pools, explore, gated, asked

    def _read_pools(self, state: Mapping[str, Any], name: str) -> Pools:
        if not isinstance(state.get(name), Mapping):
            raise ValueError(f"it has no state of {name!r}")
        pools = Pools(self.table, 0)
        pools.load_state_dict(state[name])
        return pools


def _due(rows: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    """How many of so many rows are to be explored. 100 * .29 is just below 29."""
    due: NDArray[np.int64] = np.floor(rows * share + 1e-9).astype(np.int64)
    return due
