"""Run-time verification at the far end: is what the worker will read what the step context resolved?

The batch is read back through the code path by which verl's dispatch hands it to the workers, from the very metadata
that is about to be sent.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue.metadata import KVBatchMeta
from verl.protocol import BatchData
from verl.utils.transferqueue_utils import _meta_to_realdata

from dataflex_events.adapters.verl.rows import is_padding, response_offsets
from dataflex_events.errors import VerificationError

_ROW_COLUMN = "uid"


def verify(meta: KVBatchMeta, ranks: int, columns: Mapping[str, Tensor], kept: list[str], dropped: list[str]) -> None:
    """Check the columns and the rows of a batch just before a worker gets it.

    Args:
        meta: The batch as it is sent to the workers.
        ranks: Data-parallel ranks among which it is dealt.
        columns: What all rows of `meta` must carry, `(T_all,)` by column.
        kept: Keys of the rows that must be there.
        dropped: Keys of the rows that must be gone.

    Raises:
        VerificationError: Something differs. Says what, and what it means.
    """
    sent = [key for key, pad in zip(meta.keys, is_padding(meta), strict=True) if not pad]
    _check_rows(meta, sent, kept, dropped)
    received = _as_worker(meta, ranks, [_ROW_COLUMN, *columns])
    uids = np.array([str(uid) for part in received for uid in part[_ROW_COLUMN]])[~is_padding(meta)]
    if not np.array_equal(uids, np.array([key.rsplit("_", 2)[0] for key in sent])):
        raise VerificationError("the rows that the worker reads are not the rows that were kept")
    for name, written in columns.items():
        _check_column(meta, received, name, written)


def _as_worker(meta: KVBatchMeta, ranks: int, columns: list[str]) -> list[TensorDict]:
    """Read columns as each rank will: cut by verl's dispatch, and only what `fields` lists."""
    fields = None if meta.fields is None else [name for name in meta.fields if name in columns]
    request = KVBatchMeta(keys=meta.keys, tags=meta.tags, partition_id=meta.partition_id, fields=fields)
    return [_meta_to_realdata(part) for part in BatchData(request).chunk(ranks)]


def _check_rows(meta: KVBatchMeta, sent: list[str], kept: list[str], dropped: list[str]) -> None:
    if sorted(sent) != sorted(kept):
        raise VerificationError(f"{len(sent)} rows are sent to the worker, but the selection kept {len(kept)}")
    listing = tq.kv_list(meta.partition_id) or {}
    left = listing.get(meta.partition_id, {}).keys() & set(dropped)
    if left:
        raise VerificationError(f"{len(left)} dropped rows are still in TransferQueue, e.g. {min(left)}")


def _check_column(meta: KVBatchMeta, received: list[TensorDict], name: str, written: Tensor) -> None:
    if any(name not in part for part in received):
        raise VerificationError(
            f"the worker does not receive the column {name!r}. It was written, but the batch does not list it in "
            f"`fields`, so verl would train without it. The batch lists: {', '.join(meta.fields or ())}"
        )
    rows = [row for part in received for row in part[name].unbind()]
    lengths = torch.tensor([len(row) for row in rows])
    if not torch.equal(lengths, response_offsets(meta).diff()):
        raise VerificationError(f"what the worker reads as {name!r} is not as long as the responses")
    got = torch.cat(rows)
    off = int(((got != written) & ~(got.isnan() & written.isnan())).sum())
    if off:
        raise VerificationError(
            f"{off} of {len(written)} values that the worker reads as {name!r} are not what was written"
        )
