"""Brings what a step decided to the columns from which verl's losses read it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor
from transfer_queue.metadata import KVBatchMeta

from dataflex_events.adapters.verl.columns import read_columns, write_columns
from dataflex_events.adapters.verl.rows import is_padding, response_offsets
from dataflex_events.resolve import UpdateDecision
from dataflex_events.segments import take_rows

COLUMN = "rollout_is_weights"
# The engine counts tokens for the denominator of a loss in one of them, the losses apply the other.
MASKS = ("response_mask", "loss_mask")
ESTIMATES = ("advantages", "returns")


def apply_decision(
    meta: KVBatchMeta,
    decision: UpdateDecision,
    *,
    channel: str = COLUMN,
    advantages: Mapping[str, Tensor] | None = None,
    muted: Tensor | None = None,
) -> dict[str, Tensor]:
    """Write weights, masks and advantages.

    Args:
        meta: R rows, padding included. Its `fields` are extended in place.
        decision: Weights and mask `(T,)` for the tokens of the rows that are not padding, in the order of the rows.
        channel: The column that weights are multiplied into. `rollout_is_weights` holds verl's importance weights; it
            is made if there is none.
        advantages: New values `(T,)` of "advantages" and "returns", if they change.
        muted: `(T,)` bool, tokens whose advantages and returns are set to 0.

    Returns:
        The columns as written, `(T_all,)` for all R rows. Padding rows keep what they had, and get weight 1.
    """
    offsets = response_offsets(meta)
    real = torch.from_numpy(np.flatnonzero(~is_padding(meta)))
    tokens = take_rows(offsets, real)[0]
    advantages = advantages or {}
    names = {*advantages, *(MASKS if decision.mask is not None else ()), *(ESTIMATES if muted is not None else ())}
    if decision.weights is not None and (channel != COLUMN or COLUMN in (meta.fields or ())):
        names.add(channel)
    columns = read_columns(meta, names)
    for name, values in advantages.items():
        columns[name][tokens] = values.to(columns[name].dtype)
    if muted is not None:
        for name in ESTIMATES:
            columns[name][tokens[muted]] = 0
    if decision.weights is not None:
        column = columns.setdefault(channel, torch.ones(int(offsets[-1])))
        column[tokens] *= decision.weights
    if decision.mask is not None:
        for name in MASKS:
            columns[name][tokens] *= decision.mask.to(columns[name].dtype)
    write_columns(meta, columns)
    return columns


def quiet_padding(meta: KVBatchMeta) -> None:
    """Set advantages of padding rows that are not finite to 0.

    Padding rows share a group in which no token counts, of which the estimator `opo` makes NaN. In a loss the mask does
    not help against these: a gradient of 0 times NaN is NaN.
    """
    padding = np.flatnonzero(is_padding(meta))
    if not len(padding):
        return
    keys, tags = [meta.keys[row] for row in padding], [meta.tags[row] for row in padding]
    rows = KVBatchMeta(keys=keys, tags=tags, partition_id=meta.partition_id)
    columns = read_columns(rows, ESTIMATES)
    if not all(bool(column.isfinite().all()) for column in columns.values()):
        write_columns(rows, {name: column.nan_to_num(0, 0, 0) for name, column in columns.items()})
