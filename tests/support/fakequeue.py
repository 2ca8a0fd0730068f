"""A TransferQueue in memory, with the functions that the adapter calls and the ways in which the real one forgives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transfer_queue
from tensordict import TensorDict
from transfer_queue.metadata import KVBatchMeta
from verl.utils import transferqueue_utils

from dataflex_events.adapters.verl import verify

PARTITION = "train"


class FakeQueue:
    """One partition of rows, by key. Stands in for the real one until the end of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        for name in ("kv_batch_get", "kv_batch_put", "kv_clear", "kv_list"):
            monkeypatch.setattr(transfer_queue, name, getattr(self, name))
        # How verl's dispatch turns a batch into what each worker reads.
        monkeypatch.setattr(transferqueue_utils, "kv_batch_meta2batch_meta", lambda meta: meta)
        monkeypatch.setattr(verify, "_meta_to_realdata", self.read)

    def put(self, key: str, **columns: Any) -> None:
        """Add a row."""
        self.rows[key] = columns

    def meta(self, *, padding: Sequence[str] = (), fields: list[str] | None = None) -> KVBatchMeta:
        """All rows as a batch."""
        keys = list(self.rows)
        tags = [{"response_len": len(self.rows[key]["responses"])} for key in keys]
        for key, tag in zip(keys, tags, strict=True):
            if key in padding:
                tag["is_padding"] = True
        return KVBatchMeta(keys=keys, tags=tags, partition_id=PARTITION, fields=fields)

    # -- as `transfer_queue` has them

    def kv_batch_get(self, *, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        assert partition_id == PARTITION
        found = [self.rows[key] for key in keys if key in self.rows]  # missing rows are left out
        visible = [name for name in select_fields if all(name in row for row in found)]  # so are missing columns
        columns = {name: _column([row[name] for row in found]) for name in visible}
        return TensorDict(columns, batch_size=len(found))

    def kv_batch_put(self, *, keys: list[str], partition_id: str, fields: TensorDict) -> KVBatchMeta:
        assert partition_id == PARTITION
        for name in fields.keys():  # noqa: SIM118 - a TensorDict is no mapping here
            column = fields[name]
            for key, value in zip(keys, column.unbind() if column.is_nested else column, strict=True):
                self.rows.setdefault(key, {})[name] = value.clone()
        return KVBatchMeta(keys=keys, tags=[{}] * len(keys), partition_id=PARTITION, fields=list(self.rows[keys[0]]))

    def kv_clear(self, *, keys: list[str], partition_id: str) -> None:
        assert partition_id == PARTITION
        for key in keys:
            del self.rows[key]

    def kv_list(self, partition_id: str) -> dict[str, dict[str, Any]]:
        assert partition_id == PARTITION
        return {PARTITION: {key: {} for key in self.rows}} if self.rows else {}

    def read(self, meta: KVBatchMeta) -> TensorDict:
        """What a worker reads that gets a piece of the batch."""
        assert meta.fields is None or len(meta.fields) > 0
        everything = list(self.rows[meta.keys[0]])
        return self.kv_batch_get(
            keys=meta.keys, partition_id=PARTITION, select_fields=everything if meta.fields is None else meta.fields
        )


def _column(values: list[Any]) -> Any:
    if isinstance(values[0], torch.Tensor):
        return torch.nested.as_nested_tensor(values, layout=torch.jagged)
    return values
