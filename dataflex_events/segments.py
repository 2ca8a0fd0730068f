"""Ragged primitives on which all handlers are written.

A ragged tensor is a flat `(T,)` tensor of values with `offsets (N+1,)` int64: row `i` is
`values[offsets[i]:offsets[i+1]]`. All functions are vectorised, deterministic, work on CPU and GPU tensors, keep a NaN
inside its own row or group, and accumulate sums in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["sum", "mean", "max", "min"]

EQUAL = 1e-6
"""A tolerance for `group_moments`, for which values that differ by float noise are equal."""


def offsets_of(lengths: Tensor) -> Tensor:
    """Offsets `(N+1,)` int64 of rows with the given lengths `(N,)`."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int64)


def spread(rows: Tensor, offsets: Tensor) -> Tensor:
    """Repeat each row's value for all of its tokens: `(N,) -> (T,)`."""
    return rows.repeat_interleave(offsets.diff(), dim=0)


def segment_reduce(values: Tensor, offsets: Tensor, how: Reduction, mask: Tensor | None = None) -> Tensor:
    """Reduce the tokens of each row: `(T,) -> (N,)` float32.

    Args:
        values: `(T,)` numbers.
        offsets: `(N+1,)` int64.
        how: "sum", "mean", "max" or "min".
        mask: `(T,)` bool or 0/1; tokens outside do not count, whatever their value.

    Returns:
        `(N,)` float32. A row without (unmasked) tokens is 0.
    """
    return _reduce(values, offsets, how, mask).to(torch.float32)


def _reduce(values: Tensor, offsets: Tensor, how: Reduction, mask: Tensor | None) -> Tensor:
    values = values.to(torch.float64)
    present = torch.ones_like(values, dtype=torch.bool) if mask is None else mask.to(torch.bool)
    count = _sum(present.to(torch.float64), offsets)
    if how in ("sum", "mean"):
        total = _sum(values.where(present, values.new_zeros(())), offsets)
        result = total / count.clamp_min(1) if how == "mean" else total
    else:
        ignored = values.new_full((), float("-inf") if how == "max" else float("inf"))
        result = torch.segment_reduce(values.where(present, ignored), how, offsets=offsets, unsafe=True)
        result = result.where(count > 0, result.new_zeros(()))
    return result


def _sum(values: Tensor, offsets: Tensor) -> Tensor:
    return torch.segment_reduce(values, "sum", offsets=offsets, initial=0, unsafe=True)


def group_reduce(values: Tensor, codes: Tensor, how: Reduction, mask: Tensor | None = None) -> Tensor:
    """Reduce the rows of each group and give every row the result of its group: `(N,) -> (N,)` float32.

    Args:
        values: `(N,)` numbers, one a row.
        codes: `(N,)` int64 group codes in `[0, number of groups)`.
        how: "sum", "mean", "max" or "min".
        mask: `(N,)` bool; rows outside do not count but still receive their group's result.

    Returns:
        `(N,)` float32. A group without (unmasked) rows is 0.
    """
    return _reduce_groups(values, codes, how, mask).to(torch.float32)


def _reduce_groups(values: Tensor, codes: Tensor, how: Reduction, mask: Tensor | None) -> Tensor:
    order = codes.argsort(stable=True)
    offsets = offsets_of(codes.bincount())
    sorted_mask = None if mask is None else mask[order]
    return _reduce(values[order], offsets, how, sorted_mask)[codes]


def group_moments(
    values: Tensor, codes: Tensor, mask: Tensor | None = None, *, tolerance: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Mean and unbiased standard deviation (n - 1) of each group, for every row of it: `(N,) -> 2 x (N,)` float64.

    Args:
        values: `(N,)` numbers, one a row.
        codes: `(N,)` int64 group codes in `[0, number of groups)`.
        mask: `(N,)` bool; rows outside do not count but still receive their group's result.
        tolerance: A standard deviation below `tolerance * max(1, highest |value| of the group)` becomes exactly 0:
            rounding errors of equal values are not contrast.

    Returns:
        Mean and standard deviation. The standard deviation of a single row is 0.
    """
    values = values.to(torch.float64)
    counted = torch.ones_like(codes, dtype=torch.bool) if mask is None else mask
    count = _reduce_groups(counted, codes, "sum", None)
    mean = _reduce_groups(values, codes, "mean", counted)
    squares = _reduce_groups((values - mean).square(), codes, "sum", counted)
    std = (squares / (count - 1).clamp_min(1)).sqrt()
    bound = tolerance * _reduce_groups(values.abs(), codes, "max", counted).clamp_min(1)
    return mean, std.where(~(std < bound), std.new_zeros(()))


def group_rank(values: Tensor, codes: Tensor, mask: Tensor | None = None, *, descending: bool = False) -> Tensor:
    """Rank of each row within its group, from 0; of equal values the lower row number comes first: `(N,) -> (N,)`.

    Args:
        values: `(N,)` numbers, not NaN inside the mask.
        codes: `(N,)` int64 group codes in `[0, number of groups)`.
        mask: `(N,)` bool; rows outside come after all others of their group, whatever their value.
        descending: The highest value has rank 0, not the lowest.

    Returns:
        `(N,)` int64.
    """
    order = values.argsort(descending=descending, stable=True)
    if mask is not None:
        order = order[(~mask[order]).to(torch.int8).argsort(stable=True)]
    order = order[codes[order].argsort(stable=True)]
    first = offsets_of(codes.bincount())[codes[order]]
    rank = torch.empty_like(codes)
    rank[order] = torch.arange(len(codes), device=codes.device) - first
    return rank


def quantiles(values: Tensor, shares: Sequence[float]) -> Tensor:
    """Quantiles with linear interpolation, of any number of values (`torch.quantile` takes 16 million).

    Args:
        values: `(n,)` finite numbers, at least one.
        shares: Each in [0, 1].

    Returns:
        `(len(shares),)` float64. A quantile that falls on a value is exactly that value.
    """
    ordered = values.sort().values
    position = torch.tensor(shares, dtype=torch.float64, device=values.device) * (len(values) - 1)
    position = position.round(decimals=9)  # .29 * 100 is just below 29
    below = position.floor().to(torch.int64)
    above = (below + 1).clamp_max(len(values) - 1)
    low, high = ordered[below].to(torch.float64), ordered[above].to(torch.float64)
    return low + (high - low) * (position - below)


def take_rows(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Index that gathers whole rows, in the given order.

    Args:
        offsets: `(N+1,)` int64.
        rows: `(M,)` int64 row numbers.

    Returns:
        `(tokens, offsets)`: `tokens (T',)` int64 such that `values[tokens]` are the rows' values, and their new
        `offsets (M+1,)`.
    """
    lengths = offsets.diff()[rows]
    taken = offsets_of(lengths)
    within = torch.arange(int(taken[-1]), device=offsets.device) - spread(taken[:-1], taken)
    return spread(offsets[:-1][rows], taken) + within, taken
