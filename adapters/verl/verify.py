"""Run-time verification at the far end: is what the worker will read what the step context resolved?

The batch is read back through the code path by which verl's dispatch hands it to the workers, from the very metadata
that is about to be sent.
"""

from __future__ import annotations

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from torch import Tensor
from transfer_queue.metadata import KVBatchMeta
from verl.protocol import BatchData
from verl.utils.transferqueue_utils import _meta_to_realdata

from dataflex_events.adapters.verl.rows import is_padding, response_offsets
from dataflex_events.adapters.verl.weights import COLUMN
from dataflex_events.errors import VerificationError

_ROW_COLUMN = "uid"


def verify(meta: KVBatchMeta, ranks: int, weights: Tensor | None, kept: list[str], dropped: list[str]) -> None:
    """Check the weights and the rows of a batch just before a worker gets it.

    Args:
        meta: The batch as it is sent to the workers.
        ranks: Data-parallel ranks among which it is dealt.
        weights: `(T_all,)` float32 that all rows of `meta` must carry, or None if no weights were resolved.
        kept: Keys of the rows that must be there.
        dropped: Keys of the rows that must be gone.

    Raises:
        VerificationError: Something differs. Says what, and what it means.
    """
    sent = [key for key, pad in zip(meta.keys, is_padding(meta), strict=True) if not pad]
    _check_rows(meta, sent, kept, dropped)
    received = _as_worker(meta, ranks, [_ROW_COLUMN] + ([COLUMN] if weights is not None else []))
    uids = np.array([str(uid) for part in received for uid in part[_ROW_COLUMN]])[~is_padding(meta)]
    if not np.array_equal(uids, np.array([key.rsplit("_", 2)[0] for key in sent])):
        raise VerificationError("the rows that the worker reads are not the rows that were kept")
    if weights is not None:
        _check_weights(meta, received, weights)


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


def _check_weights(meta: KVBatchMeta, received: list[TensorDict], weights: Tensor) -> None:
    if any(COLUMN not in part for part in received):
        raise VerificationError(
            f"the worker does not receive the column {COLUMN!r}. It was written, but the batch does not list it in "
            f"`fields`, so verl would train without the weights. The batch lists: {', '.join(meta.fields or ())}"
        )
    offsets = response_offsets(meta)
    rows = [row for part in received for row in part[COLUMN].unbind()]
    lengths = torch.tensor([len(row) for row in rows])
    if not torch.equal(lengths, offsets.diff()):
        raise VerificationError("the weights that the worker reads are not as long as the responses")
    off = int((torch.cat(rows) != weights).sum())
    if off:
        raise VerificationError(f"{off} of {len(weights)} weights that the worker reads are not the resolved ones")
