"""Rows of each domain in the order of how close a number of theirs is to a target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dataflex_events.pools import DomainTable, read_tensor

Ints = NDArray[np.int64]


class NearestRows:
    """A `RowSource`: of each domain the rows with the smallest `|value - target|` that were not taken lately.

    They come in cycles of half of the domain's rows, or of all that one call takes; in each cycle a row comes once at
    most. Of rows at equal distance the lower one comes first.

    Takes 9 bytes a row (13 if there are 2**31 rows).

    Args:
        table: The rows of each domain.
        values: `(R,)` finite numbers.

    Attributes:
        target: The number to be close to.
    """

    def __init__(self, table: DomainTable, values: NDArray[np.float64]) -> None:
        self.table, self.target = table, 0.0
        of_rows = values[table.rows]
        # Places in `table.rows` by domain, then value, then row: the rows of a domain stay in its stretch.
        order = np.lexsort((table.rows, of_rows, table.codes[table.rows]))
        self._rows = table.rows[order]
        self._values = of_rows[order].astype(np.float32)
        self._used = np.zeros(len(order), dtype=bool)

    @property
    def lowest(self) -> float:
        """The lowest value."""
        return float(self._values.min())

    @property
    def highest(self) -> float:
        """The highest value."""
        return float(self._values.max())

    def take(self, domains: ArrayLike, avoid: ArrayLike = ()) -> Ints:
        """The next rows of the given domains; none twice unless a domain has fewer than are taken.

        Args:
            domains: `(n,)` integers in `[0, D)`.
            avoid: Rows to take only if there are no others.

        Returns:
            `(n,)` int64 row numbers, the i-th of domain `domains[i]`.
        """
        given, shunned = (np.asarray(values, dtype=np.int64) for values in (domains, avoid))
        counts = np.bincount(given, minlength=len(self.table))
        rows = np.zeros_like(given)
        taken = [self._nearest(int(domain), int(counts[domain]), shunned) for domain in np.flatnonzero(counts)]
        rows[np.argsort(given, kind="stable")] = np.concatenate([rows[:0], *taken])
        return rows

    def _nearest(self, domain: int, count: int, avoid: Ints) -> Ints:
        start, end = int(self.table.starts[domain]), int(self.table.starts[domain + 1])
        parts: list[Ints] = []
        while count > end - start:  # each row once, and again
            parts.append(self._rows[start:end].astype(np.int64))
            count -= end - start
        used = self._used[start:end]
        if used.sum() + count > max((end - start + 1) // 2, count):
            used[:] = False
        rows = self._rows[start:end]
        best = self._best(self._values[start:end], rows, used, count, avoid)
        used[best] = True
        return np.concatenate([*parts, rows[best].astype(np.int64)])

    def _best(
        self, values: NDArray[np.float32], rows: NDArray[Any], used: NDArray[np.bool_], count: int, avoid: Ints
    ) -> Ints:
        """Places of the `count` rows to take, of those that are not used."""
        reach = count
        while True:
            # Whole stretches of equal values, so that of rows at equal distance the lowest are among them.
            middle = int(np.searchsorted(values, self.target))
            low, high = max(middle - reach, 0), min(middle + reach, len(values))
            low = int(np.searchsorted(values, values[low], "left")) if low < len(values) else low
            high = int(np.searchsorted(values, values[high - 1], "right")) if high else high
            whole = low == 0 and high == len(values)
            free = low + np.flatnonzero(~used[low:high])
            shunned = np.isin(rows[free], avoid)
            # No more than `count` rows of each value can be among the best.
            before: Ints = np.cumsum(~shunned) - ~shunned
            likely = shunned | (before - before[np.searchsorted(values[free], values[free])] < count)
            free, shunned = free[likely], shunned[likely]
            distance = np.abs(values[free].astype(np.float64) - self.target)
            best = free[np.lexsort((rows[free], distance, shunned))][:count]
            if whole or ((~shunned).sum() >= count and self._reached(values, best, low, high)):
                return best
            reach *= 2

    def _reached(self, values: NDArray[np.float32], best: Ints, low: int, high: int) -> bool:
        """True if no row outside `[low, high)` can be closer than these, or as close."""
        left = self.target - float(values[low - 1]) if low > 0 else math.inf
        right = float(values[high]) - self.target if high < len(values) else math.inf
        farthest = float(np.abs(values[best].astype(np.float64) - self.target).max(initial=0.0))
        return farthest < min(left, right)

    def state_dict(self) -> dict[str, Any]:
        """The target, and the rows that were taken lately."""
        return {"target": self.target, "used": torch.from_numpy(np.sort(self._rows[self._used]).astype(np.int64))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Rows that are not in the table, because it is of other domains, are left out.

        Raises:
            ValueError: It is not such a state.
        """
        target, used = state.get("target"), read_tensor(state, "used", torch.int64, None)
        if not isinstance(target, float) or not math.isfinite(target):
            raise ValueError(f"its 'target' is {target!r}, not a finite number")
        self.target, self._used = target, np.isin(self._rows, used)
