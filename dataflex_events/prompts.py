"""Which prompts come next: domains in exact shares, and the rows of each in an order of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dataflex_events.apportion import Apportionment
from dataflex_events.pools import DomainTable, Pools, read_tensor


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """Prompts to draw next.

    Attributes:
        rows: `(n,)` int64, their row numbers in the dataset.
        domains: `(n,)` int64, the domain of each.
    """

    rows: NDArray[np.int64]
    domains: NDArray[np.int64]


class PromptDraw:
    """Plans which rows of a dataset come next, with a given share of each domain: see `Apportionment` and `Pools`.

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

    @property
    def owed(self) -> NDArray[np.float64]:
        """`(D,)` float64, how many rows each domain is behind its shares so far; below 0: ahead of them."""
        owed: NDArray[np.float64] = self._apportionment.owed.copy()
        return owed

    def plan(self, n: int, shares: ArrayLike | None = None) -> Planned:
        """Plan the next n rows.

        Args:
            n: Number of rows, >= 0.
            shares: `(D,)` relative sizes, finite and >= 0, at least one > 0. None: the domains' shares in the dataset.

        Returns:
            The rows. None comes twice unless its domain has fewer rows than are planned of it here.

        Raises:
            ValueError: These are not shares of D domains, or n is negative. Nothing is planned then.
        """
        domains = self._apportionment.assign(self.table.sizes if shares is None else shares, n)
        rows = self._pools.take(domains)
        self.drawn = self.drawn + np.bincount(domains, minlength=len(self.table))
        return Planned(rows, domains)

    def state_dict(self) -> dict[str, Any]:
        """What has been drawn and owed so far. Its size does not depend on the dataset."""
        return {
            "owed": torch.from_numpy(self.owed),
            "drawn": torch.from_numpy(self.drawn.copy()),
            "pools": self._pools.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned, with its seed and its `shuffle`.

        Raises:
            ValueError: It is not the state of a draw, or one of domains of other sizes. Nothing has changed then.
        """
        if not isinstance(state.get("pools"), Mapping):
            raise ValueError("it has no state of 'pools'")
        pools = Pools(self.table, 0)
        pools.load_state_dict(state["pools"])
        shape = (len(self.table),)
        drawn = read_tensor(state, "drawn", torch.int64, shape)
        if (drawn < 0).any():
            raise ValueError("its 'drawn' are negative")
        self._apportionment.restore(read_tensor(state, "owed", torch.float64, shape))
        self.drawn, self._pools = drawn, pools
