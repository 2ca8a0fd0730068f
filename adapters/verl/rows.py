"""Reads trajectories from TransferQueue as a `Batch`, and takes trajectories out of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from torch import Tensor
from transfer_queue.metadata import KVBatchMeta

from dataflex_events.adapters.verl.dataset import ROW_COLUMN
from dataflex_events.batch import Batch
from dataflex_events.errors import FieldError
from dataflex_events.fields import OUTCOME, ROW_FIELDS, TOKEN_FIELDS, is_outcome
from dataflex_events.pools import DomainTable
from dataflex_events.segments import offsets_of

DOMAIN_COLUMN = "domain"
# Where verl keeps what the reward function returned beside the score.
EXTRA_COLUMN, EXTRA_KEY = "extra_fields", "reward_extra_info"


def is_padding(meta: KVBatchMeta) -> np.ndarray:
    """`(R,)` bool, true for the rows that verl made up to fill the batch."""
    return np.fromiter((tag.get("is_padding", False) for tag in meta.tags), dtype=bool, count=len(meta.tags))


def response_offsets(meta: KVBatchMeta) -> Tensor:
    """`(R+1,)` int64 offsets of the response tokens of all rows, padding included. From tags, without a read."""
    return offsets_of(torch.tensor([tag["response_len"] for tag in meta.tags], dtype=torch.int64))


def read_batch(
    meta: KVBatchMeta, fields: Iterable[str], table: DomainTable | None = None, *, partial: bool = False
) -> Batch:
    """Read the declared fields of all trajectories that are not padding, in one request.

    Args:
        meta: The rows. Which group and session a row belongs to is read from its key `{uid}_{session}_{output}`.
        fields: Names from `dataflex_events.fields`.
        table: The domain of each row of the dataset; by default it is read from the column `domain`.
        partial: The rows are some of a step. What the reward function returned for none of them is NaN, not an error.

    Raises:
        FieldError: TransferQueue lacks a column, or rows.
    """
    real = np.flatnonzero(~is_padding(meta))
    keys = [meta.keys[row] for row in real]
    parts = np.array([key.rsplit("_", 2) for key in keys], dtype=object).reshape(-1, 3)
    uid = np.unique(parts[:, 0].astype(str), return_inverse=True)[1]
    session = np.unique((parts[:, 0] + "_" + parts[:, 1]).astype(str), return_inverse=True)[1]
    offsets = offsets_of(response_offsets(meta).diff()[torch.from_numpy(real)])
    tokens, rows, domains = _read(keys, meta.partition_id, frozenset(fields), offsets, table, partial)
    return Batch.build(
        offsets=offsets,
        uid=torch.from_numpy(uid).to(torch.int64),
        session=torch.from_numpy(session).to(torch.int64),
        output=torch.from_numpy(parts[:, 2].astype(np.int64)),
        token_fields=tokens,
        row_fields=rows,
        domains=domains,
    )


def remove_rows(meta: KVBatchMeta, keep: Tensor) -> KVBatchMeta:
    """Take the rows that are not kept out of the batch and out of TransferQueue.

    Args:
        meta: N rows.
        keep: `(N,)` bool.
    """
    dropped = [meta.keys[row] for row in (~keep).nonzero().flatten().tolist()]
    kept = [meta.keys[row] for row in keep.nonzero().flatten().tolist()]
    if not dropped:
        return meta
    # verl clears only what is in the batch at the end of a step: what is dropped would stay for ever.
    tq.kv_clear(keys=dropped, partition_id=meta.partition_id)
    return meta.select_keys(kept)


def _read(
    keys: list[str],
    partition: str | None,
    fields: frozenset[str],
    offsets: Tensor,
    table: DomainTable | None,
    partial: bool,
) -> tuple[dict[str, Tensor], dict[str, Tensor], tuple[str, ...]]:
    token_fields = fields & TOKEN_FIELDS.keys() | ({"rm_scores"} if "reward" in fields else set())
    outcomes = sorted(filter(is_outcome, fields))
    by_name = "domain" in fields and table is None
    by_row = "row_id" in fields or ("domain" in fields and table is not None)
    columns = [*sorted(token_fields), *[DOMAIN_COLUMN] * by_name, *[ROW_COLUMN] * by_row]
    columns += [EXTRA_COLUMN] * bool(outcomes)
    if not columns or not keys:
        empty = torch.zeros(int(offsets[-1]))
        rows = dict.fromkeys(fields & ROW_FIELDS.keys() | {*outcomes}, empty)
        rows |= {name: empty.to(torch.int64) for name in ("domain", "row_id") if name in fields}
        return dict.fromkeys(token_fields, empty), rows, () if table is None else table.names
    data = tq.kv_batch_get(keys=keys, partition_id=partition, select_fields=columns)
    missing = [name for name in columns if name not in data.keys()]  # noqa: SIM118 - a TensorDict is no mapping here
    if missing:
        raise FieldError(f"this run does not have the columns {', '.join(missing)} (asked for: {', '.join(columns)})")
    if len(data) != len(keys):
        raise FieldError(f"TransferQueue returned {len(data)} of {len(keys)} rows")
    tokens = {name: flat(data[name], offsets, name) for name in token_fields}
    rows = _outcomes(list(data[EXTRA_COLUMN]), outcomes, partial) if outcomes else {}
    if by_row:
        rows["row_id"] = torch.tensor([int(row) for row in data[ROW_COLUMN]], dtype=torch.int64)
    if "domain" not in fields:
        return tokens, rows, ()
    if table is not None:
        domain = torch.from_numpy(table.codes[rows["row_id"].numpy()]).to(torch.int64)
        return tokens, {**rows, "domain": domain}, table.names
    names, codes = np.unique(np.array([str(name) for name in data[DOMAIN_COLUMN]]), return_inverse=True)
    return tokens, {**rows, "domain": torch.from_numpy(codes).to(torch.int64)}, tuple(names.tolist())


def _outcomes(extras: list[Any], fields: Iterable[str], partial: bool) -> dict[str, Tensor]:
    """Values that the reward function returned beside the score; NaN for a row for which it did not.

    They are Python objects in a column of dictionaries, so there is no way around looking into each.
    """
    infos = [extra.get(EXTRA_KEY) or {} if isinstance(extra, dict) else {} for extra in extras]
    known = sorted({name for info in infos for name in info})
    found = {}
    for field in fields:
        name = field.removeprefix(OUTCOME)
        if name not in known and not partial:
            listed = ", ".join(known) or "nothing"
            raise FieldError(f"the reward function returns no {name!r} beside the score (it returns: {listed})")
        try:
            values = np.array([info.get(name, np.nan) for info in infos], dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise FieldError(f"what the reward function returns as {name!r} is not a number: {error}") from None
        found[field] = torch.from_numpy(values)
    return found


def flat(column: Tensor, offsets: Tensor, name: str) -> Tensor:
    """The tokens of a ragged column `(N, j)` as `(T,)`.

    Raises:
        FieldError: Its row lengths are not those of the responses.
    """
    if column.is_nested:
        lengths, values = column.offsets().diff(), column.values()
    else:
        lengths = torch.full((column.shape[0],), column.shape[1], dtype=torch.int64)
        values = column.reshape(-1)
    if not torch.equal(lengths.cpu(), offsets.diff()):
        raise FieldError(f"the column {name!r} is not as long as the responses")
    return values.detach().cpu()
