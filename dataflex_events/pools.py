"""The rows of each domain, and endless shuffled streams of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dataflex_events.permutation import mixed, permuted

Ints = NDArray[np.int64]


class RowSource(Protocol):
    """An endless stream of rows for each domain, in an order of its own."""

    def take(self, domains: ArrayLike, avoid: ArrayLike) -> Ints:
        """The next rows, `(n,)` int64, of the given domains `(n,)`; rows to `avoid` only if there are no others."""
        ...


@dataclass(frozen=True, eq=False)
class DomainTable:
    """Which rows of a dataset belong to which domain.

    Attributes:
        names: Name of each of the D domains.
        codes: `(R,)` int16 (int32 if D >= 2**15), the domain of every row of the dataset; -1: the row is never drawn.
        rows: `(number of rows to draw,)` int32 (int64 if R >= 2**31) row numbers, sorted by domain, in the order of
            the dataset within a domain.
        starts: `(D + 1,)` int64: domain `d` has the rows `rows[starts[d]:starts[d + 1]]`, at least one.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int16 | np.int32]
    rows: NDArray[np.int32 | np.int64]
    starts: Ints

    @classmethod
    def from_codes(cls, codes: ArrayLike, names: Sequence[str]) -> DomainTable:
        """Sort the rows of a dataset by domain.

        Args:
            codes: `(R,)` integers in `[-1, D)`.
            names: Name of each of the D domains.

        Raises:
            ValueError: The codes are no such integers, or a domain has no rows.
        """
        given = np.asarray(codes)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise ValueError(f"domains are given as {given.dtype} of shape {given.shape}, not as one integer a row")
        if len(given) and not -1 <= given.min() <= given.max() < len(names):
            raise ValueError(f"domains must be from -1 to {len(names) - 1}, not {given.min()} to {given.max()}")
        small = given.astype(np.int16 if len(names) < 2**15 else np.int32)  # numpy sorts 16 bits much faster
        counts = np.bincount(small[small >= 0], minlength=len(names))
        if not counts.all() or not len(names):
            empty = [name for name, count in zip(names, counts, strict=True) if not count]
            raise ValueError(f"no rows in {len(empty)} of {len(names)} domains: {', '.join(map(repr, empty[:10]))}")
        rows = np.argsort(small, kind="stable")[len(given) - int(counts.sum()) :]
        return cls(
            names=tuple(names),
            codes=small,
            rows=rows.astype(np.int32 if len(given) < 2**31 else np.int64),
            starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def sizes(self) -> Ints:
        """`(D,)` int64, the number of rows of each domain."""
        return np.diff(self.starts)

    @property
    def shares(self) -> NDArray[np.float64]:
        """`(D,)` float64, the share of each domain in the rows; sums to 1."""
        shares: NDArray[np.float64] = self.sizes / self.sizes.sum()
        return shares


class Pools:
    """An endless stream of rows for each domain: every pass has each row of the domain once, in an order of its own.

    The order follows from the seed, the position of the domain in the table and the number of the pass. Where a pass
    ends within one call of `take`, the next one puts off its rows that this call already has: they come first in the
    next call. So a call has a row twice only if it takes more rows of a domain than there are.

    Args:
        table: The rows of each domain.
        seed: Any integer.
        shuffle: False: every pass is in the order of the dataset.
    """

    def __init__(self, table: DomainTable, seed: int, shuffle: bool = True) -> None:
        self.table, self.seed, self.shuffle = table, int(seed), shuffle
        self._passes: Ints = np.zeros(len(table), dtype=np.int64)
        # Where each domain is in its pass, and the rows before there that are put off, sorted by domain.
        self._positions: Ints = np.zeros(len(table), dtype=np.int64)
        self._deferred: Ints = np.zeros(0, dtype=np.int64)

    def take(self, domains: ArrayLike) -> Ints:
        """The next rows of the given domains.

        Args:
            domains: `(n,)` integers in `[0, D)`.

        Returns:
            `(n,)` int64 row numbers, the i-th of domain `domains[i]`. Each row of a domain is among them equally often,
            or once more or less.

        Raises:
            ValueError: A domain does not exist.
        """
        given = np.asarray(domains, dtype=np.int64)
        if ((given < 0) | (given >= len(self.table))).any():
            raise ValueError(f"domains must be from 0 to {len(self.table) - 1}, not {given.min()} to {given.max()}")
        rows = np.empty_like(given)
        rows[np.argsort(given, kind="stable")] = self._next(np.bincount(given, minlength=len(self.table)))
        return rows

    def _next(self, wanted: Ints) -> Ints:
        """The next `wanted[d]` rows of every domain d, one domain after the other."""
        sizes, waiting = self.table.sizes, self._waiting()
        left = waiting + sizes - self._positions
        over = np.maximum(wanted - left, 0)
        whole = np.maximum(over - 1, 0) // sizes
        begun = over - whole * sizes  # rows of the pass in which this call ends, if it is a new one

        domain, turn = _segments(wanted)
        straight = turn < (wanted - begun)[domain]
        rows = np.empty_like(domain)
        rows[straight] = self._straight(domain[straight], turn[straight], waiting)
        taken = rows[(turn < left[domain]) & (over > 0)[domain]]
        owner, turn = _segments(waiting)
        self._deferred = self._deferred[turn >= wanted[owner]]
        self._positions = self._positions + np.maximum(wanted - waiting, 0)
        self._passes = self._passes + np.where(over > 0, whole + 1, 0)
        rows[~straight] = self._begin(begun, np.minimum(begun + left, sizes), taken)
        return rows

    def _waiting(self) -> Ints:
        """`(D,)` int64, how many rows are put off."""
        return np.bincount(self.table.codes[self._deferred], minlength=len(self.table))

    def _straight(self, domain: Ints, turn: Ints, waiting: Ints) -> Ints:
        """Rows at the given distance from where their domain is, if no further ones are put off."""
        again = turn < waiting[domain]
        rows = np.empty_like(domain)
        rows[again] = self._deferred[(np.cumsum(waiting) - waiting)[domain[again]] + turn[again]]
        domain, turn = domain[~again], turn[~again]
        ahead, sizes = self._positions[domain] + turn - waiting[domain], self.table.sizes[domain]
        rows[~again] = self._order(domain, self._passes[domain] + ahead // sizes, ahead % sizes)
        return rows

    def _begin(self, count: Ints, enough: Ints, taken: Ints) -> Ints:
        """The first `count[d]` rows of a new pass of every domain d with `count[d] > 0`: those not yet taken first.

        Among the first `enough[d]` of the pass are so many, even if the taken ones all come before.
        """
        domain, index = _segments(np.where(count > 0, enough, 0))
        rows = self._order(domain, self._passes[domain], index)
        preferred = np.lexsort((index, np.isin(rows, taken), domain))
        now = preferred[index < count[domain]]
        self._positions[count > 0] = 0
        np.maximum.at(self._positions, domain[now], index[now] + 1)
        later = index < self._positions[domain]
        later[now] = False
        deferred = np.concatenate([self._deferred, rows[later]])
        self._deferred = deferred[np.argsort(self.table.codes[deferred], kind="stable")]
        return rows[now]

    def _order(self, domain: Ints, number: Ints, index: Ints) -> Ints:
        """The rows at the given indices of passes, each of which is given by its domain and its number."""
        if self.shuffle:
            key = mixed(np.full(1, self.seed % 2**64, dtype=np.uint64))
            for part in (domain, number):
                key = mixed(key + part.astype(np.uint64))
            index = permuted(index, self.table.sizes[domain], key)
        rows: Ints = self.table.rows[self.table.starts[domain] + index].astype(np.int64)
        return rows

    def state_dict(self) -> dict[str, Any]:
        """Where every domain is. Its size depends on the domains and on what is put off, not on the dataset."""
        arrays = {
            "sizes": self.table.sizes,
            "passes": self._passes,
            "positions": self._positions,
            "deferred": self._deferred,
        }
        tensors = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
        return {"seed": self.seed, "shuffle": self.shuffle, **tensors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned, with its seed and its `shuffle`.

        Raises:
            ValueError: It is not a state of pools, or one of domains of other sizes.
        """
        shape, sizes = (len(self.table),), self.table.sizes
        seed, shuffle = state.get("seed"), state.get("shuffle")
        if type(seed) is not int or type(shuffle) is not bool:
            raise ValueError(f"its 'seed' and 'shuffle' are not an integer and a boolean, but {seed!r} and {shuffle!r}")
        if not np.array_equal(saved := read_tensor(state, "sizes", torch.int64, shape), sizes):
            at = int((saved != sizes).argmax())
            raise ValueError(f"it is of a dataset with {saved[at]} rows of domain {at}, and this one has {sizes[at]}")
        passes = read_tensor(state, "passes", torch.int64, shape)
        positions = read_tensor(state, "positions", torch.int64, shape)
        if (passes < 0).any() or (positions < 0).any() or (positions > sizes).any():
            raise ValueError("its 'passes' or 'positions' are negative, or a position is beyond the rows of its domain")
        deferred = read_tensor(state, "deferred", torch.int64, None)
        if not self._can_wait(deferred, positions):
            raise ValueError("its 'deferred' are not rows that can be put off there, sorted by domain")
        self.seed, self.shuffle = seed, shuffle
        self._passes, self._positions, self._deferred = passes, positions, deferred

    def _can_wait(self, rows: Ints, positions: Ints) -> bool:
        codes = self.table.codes
        if ((rows < 0) | (rows >= len(codes))).any() or len(np.unique(rows)) < len(rows):
            return False
        owner = codes[rows]
        if (owner < 0).any() or (np.diff(owner) < 0).any():
            return False
        return bool((np.bincount(owner, minlength=len(positions)) <= positions).all())


def read_tensor(state: Mapping[str, Any], name: str, dtype: torch.dtype, shape: tuple[int, ...] | None) -> NDArray[Any]:
    """A copy of a tensor in a saved state.

    Args:
        state: The state.
        name: Its key.
        dtype: What it must hold.
        shape: What shape it must have; None: one dimension.

    Raises:
        ValueError: There is no such tensor.
    """
    value = state.get(name)
    if (
        isinstance(value, Tensor)
        and value.dtype == dtype
        and (value.ndim == 1 if shape is None else value.shape == shape)
    ):
        array: NDArray[Any] = value.detach().cpu().numpy().copy()
        return array
    raise ValueError(f"its {name!r} is not a {dtype} tensor of shape {shape or '(n,)'}")


def _segments(lengths: Ints) -> tuple[Ints, Ints]:
    """For segments `(D,)` one after the other: the number of each element's segment, and its place in there."""
    number = np.repeat(np.arange(len(lengths)), lengths)
    return number, np.arange(len(number)) - (np.cumsum(lengths) - lengths)[number]
