"""Handlers for tests of dropping rows, in the trainer's process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transfer_queue as tq
from farend import save
from torch import Tensor

from dataflex_events import Batch, Observer, RolloutDone, RunEnd, Selector, StepEnd, on

PARTITION = "train"


@dataclass
class KeepFirst(Selector):
    """Keep the first sessions of each group, as many as the test says.

    Attributes:
        sizes: For each step and each group, in the order of the draw: how many sessions stay. A step without numbers
            keeps everything. After the last step they begin anew, for the next case with the same policy.
    """

    sizes: list[list[int]]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._step = 0

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        sizes = self.sizes[self._step % len(self.sizes)]
        self._step += 1
        keep = torch.ones(len(batch), dtype=torch.bool)
        if not sizes:
            return keep
        groups = list(dict.fromkeys(batch.uid.tolist()))
        for group, size in zip(groups, sizes, strict=True):
            rows = batch.uid == group
            first = batch.session[rows].unique()[:size]
            keep[rows] = torch.isin(batch.session[rows], first)
        return keep


@dataclass
class Watch(Observer):
    """Records what was generated, from TransferQueue, and what is in TransferQueue at the end of steps and blocks."""

    @on(RolloutDone, fields=["reward"])
    def generated(self, event: RolloutDone) -> None:
        keys = sorted(_listing())
        columns = ["input_ids", "responses", "response_mask", "rm_scores"]
        data = tq.kv_batch_get(keys=keys, partition_id=PARTITION, select_fields=columns)
        save(
            "generated",
            {
                "step": event.step.global_step,
                "keys": keys,
                **{name: list(data[name].unbind()) for name in columns},
                "index": [int(info["index"]) for info in _column(keys, "extra_info")],
            },
        )

    @on(StepEnd)
    def left(self, event: StepEnd) -> None:
        save("left", {"step": event.step.global_step, "tags": _listing()})

    @on(RunEnd)
    def over(self, event: RunEnd) -> None:
        save("over", {"tags": _listing(), "failed": event.error is not None})


def _column(keys: list[str], name: str) -> list[Any]:
    return list(tq.kv_batch_get(keys=keys, partition_id=PARTITION, select_fields=[name])[name])


def _listing() -> dict[str, Any]:
    """Keys and tags of all rows in TransferQueue."""
    return dict((tq.kv_list(PARTITION) or {}).get(PARTITION, {}))
