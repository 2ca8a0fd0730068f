"""Whole columns of a batch in TransferQueue, as flat tensors over the response tokens of all its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue.metadata import KVBatchMeta

from dataflex_events.adapters.verl.rows import flat, response_offsets


def read_columns(meta: KVBatchMeta, names: Iterable[str]) -> dict[str, Tensor]:
    """Read columns as `(T_all,)`, padding rows included."""
    names = sorted(names)
    if not names:
        return {}
    data = tq.kv_batch_get(keys=meta.keys, partition_id=meta.partition_id, select_fields=names)
    offsets = response_offsets(meta)
    return {name: flat(data[name], offsets, name).clone() for name in names}


def write_columns(meta: KVBatchMeta, columns: Mapping[str, Tensor]) -> None:
    """Write columns `(T_all,)`, for all rows: a dense or a partial column reads back with wrong row lengths, or not."""
    if not columns:
        return
    offsets = response_offsets(meta)
    ragged = {name: torch.nested.nested_tensor_from_jagged(values, offsets) for name, values in columns.items()}
    tq.kv_batch_put(
        keys=meta.keys,
        partition_id=meta.partition_id,
        fields=TensorDict(ragged, batch_size=len(meta.keys)),
    )
    make_visible(meta, columns)


def make_visible(meta: KVBatchMeta, names: Iterable[str]) -> None:
    """List columns in the batch's `fields`; a worker silently ignores a column that is not listed."""
    if meta.fields is not None:
        meta.fields.extend(name for name in names if name not in meta.fields)
