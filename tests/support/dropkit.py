"""Handlers for tests of dropping rows, in the trainer's process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import transfer_queue as tq
from farend import save
from torch import Tensor

from dataflex_events import Batch, Observer, RolloutDone, RunEnd, Selector, StepEnd, on
from dataflex_events.adapters.verl import trainer
from dataflex_events.adapters.verl.shape import StepShape

PARTITION = "train"


@dataclass
class KeepFirst(Selector):
    """Keep the first sessions of each group, as many as the test says.

    Attributes:
        sizes: For each step and each group, in the order of the draw: how many sessions stay. A step without numbers
            keeps everything.
    """

    sizes: list[list[int]]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._step = 0

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        sizes = self.sizes[self._step]
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
    """Records what was generated, from TransferQueue, and what is in TransferQueue at the end of steps and run."""

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
        save("over", {"tags": _listing()})


@dataclass
class Cut(Observer):
    """Takes a mechanism away in some steps, for tests that must then fail.

    Attributes:
        at: For each step what is missing: "" (nothing), "padding", "divisor", "deal" or "clear".
    """

    at: list[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._patch = pytest.MonkeyPatch()

    @on(RolloutDone)
    def cut(self, event: RolloutDone) -> None:
        self._patch.undo()
        missing = self.at[event.step.global_step - 1]
        if missing == "padding":  # verl's own: up to full mini-batches, appended, counted
            own = trainer.PPOTrainerSync._get_required_batch_multiple
            self._patch.setattr(trainer.DataflexMixin, "_get_required_batch_multiple", own)
        elif missing == "divisor":  # sequence means over padding rows too
            self._patch.setattr(StepShape, "mini_batch_rows", StepShape.mini_batch_size)
        elif missing == "deal":
            self._patch.setattr(StepShape, "deal", lambda shape, padding: np.arange(shape.total))
        elif missing == "clear":
            self._patch.setattr(trainer, "remove_rows", _only_select)


def _only_select(meta: Any, keep: Tensor) -> Any:
    """Like `remove_rows`, but dropped rows stay in TransferQueue."""
    return meta.select_keys([meta.keys[row] for row in keep.nonzero().flatten().tolist()])


def _column(keys: list[str], name: str) -> list[Any]:
    return list(tq.kv_batch_get(keys=keys, partition_id=PARTITION, select_fields=[name])[name])


def _listing() -> dict[str, Any]:
    """Keys and tags of all rows in TransferQueue."""
    return dict((tq.kv_list(PARTITION) or {}).get(PARTITION, {}))
