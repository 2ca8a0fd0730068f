"""Brings resolved weights to the column from which verl's policy losses read them."""

from __future__ import annotations

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue.metadata import KVBatchMeta

from dataflex_events.adapters.verl.rows import flat, is_padding, response_offsets
from dataflex_events.segments import take_rows

COLUMN = "rollout_is_weights"


def write_weights(meta: KVBatchMeta, weights: Tensor) -> Tensor:
    """Multiply weights into verl's importance weights, or write them where there are none.

    Args:
        meta: R rows, padding included. Its `fields` are extended in place: workers read only the columns listed there.
        weights: `(T,)` float32 for the tokens of the rows that are not padding, in the order of the rows.

    Returns:
        `(T_all,)` float32, what was written for all R rows. Padding rows keep what they had, or get 1.
    """
    offsets = response_offsets(meta)
    full = torch.ones(int(offsets[-1]))
    real = torch.from_numpy(np.flatnonzero(~is_padding(meta)))
    full[take_rows(offsets, real)[0]] = weights
    if COLUMN in (meta.fields or ()):
        data = tq.kv_batch_get(keys=meta.keys, partition_id=meta.partition_id, select_fields=[COLUMN])
        full = full * flat(data[COLUMN], offsets, COLUMN)
    # Ragged for every row: a dense or a partial column reads back with wrong row lengths, or not at all.
    ragged = torch.nested.nested_tensor_from_jagged(full, offsets)
    tq.kv_batch_put(
        keys=meta.keys,
        partition_id=meta.partition_id,
        fields=TensorDict({COLUMN: ragged}, batch_size=len(meta.keys)),
    )
    make_visible(meta)
    return full


def make_visible(meta: KVBatchMeta) -> None:
    """List the column in the batch's `fields`; a worker silently ignores a column that is not listed."""
    if meta.fields is not None and COLUMN not in meta.fields:
        meta.fields.append(COLUMN)
