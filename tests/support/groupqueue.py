"""TransferQueue as far as verl's replay buffer and our watch over it need it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transfer_queue
from tensordict import NonTensorStack, TensorDict

from dataflex_events.adapters.verl.dataset import ROW_COLUMN

MOST_LOOKS = 3000
LENGTH = 3  # tokens of every response


class GroupQueue:
    """Tags by partition and key, and the columns of trajectories.

    verl's buffer looks here in an endless loop: after `MOST_LOOKS` the test fails.
    """

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {"train": {}, "val": {}}
        self.columns: dict[str, dict[str, Any]] = {}
        self.looks = 0

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Stands in for the real one."""
        with pytest.MonkeyPatch.context() as patch:
            for name in ("kv_list", "kv_clear", "kv_batch_get"):
                patch.setattr(transfer_queue, name, getattr(self, name))
            yield

    def group(self, uid: str, status: str, rollouts: int = 2, partition: str = "train", step: int = 1) -> None:
        """A prompt, and trajectories of its own without any columns."""
        self.tags[partition][uid] = {"is_prompt": True, "status": status, "global_steps": step}
        for session in range(rollouts):
            self.tags[partition][f"{uid}_{session}_0"] = {"status": "success", "response_len": LENGTH}

    def rewards(self, uid: str, rewards: Sequence[float], row: int) -> None:
        """The columns of the trajectories of a group."""
        for session, reward in enumerate(rewards):
            scores = torch.tensor([0.0] * (LENGTH - 1) + [reward])
            self.columns[f"{uid}_{session}_0"] = {"rm_scores": scores, ROW_COLUMN: row}

    # -- as `transfer_queue` has them

    def kv_list(self, *_: Any) -> dict[str, dict[str, dict[str, Any]]]:
        self.looks += 1
        assert self.looks <= MOST_LOOKS, "this does not come to an end"
        return {partition: dict(tags) for partition, tags in self.tags.items()}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.tags[partition_id][key]
            self.columns.pop(key, None)

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str]) -> TensorDict:
        rows = [self.columns[key] for key in keys]
        columns: dict[str, Any] = {}
        for name in select_fields:
            values = [row[name] for row in rows]
            ragged = isinstance(values[0], torch.Tensor)
            columns[name] = (
                torch.nested.as_nested_tensor(values, layout=torch.jagged) if ragged else NonTensorStack(*values)
            )
        return TensorDict(columns, batch_size=len(keys))
