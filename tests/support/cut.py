"""Handlers that take a mechanism of ours away in some steps of a run, for tests that must then fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from dataflex_events import AdvantageComputed, Observer, RolloutDone, RunEnd, on
from dataflex_events.adapters.verl import apply, columns, trainer
from dataflex_events.adapters.verl.shape import StepShape

Patch = pytest.MonkeyPatch


def _verl_padding(patch: Patch) -> None:
    """Up to full mini-batches, appended, counted."""
    own = trainer.PPOTrainerSync._get_required_batch_multiple
    patch.setattr(trainer.DataflexMixin, "_get_required_batch_multiple", own)


def _no_divisor(patch: Patch) -> None:
    """Sequence means over padding rows too."""
    patch.setattr(StepShape, "mini_batch_rows", StepShape.mini_batch_size)


def _no_deal(patch: Patch) -> None:
    patch.setattr(StepShape, "deal", lambda shape, padding: np.arange(shape.total))


def _no_clear(patch: Patch) -> None:
    """Dropped rows stay in TransferQueue."""

    def only_select(meta: Any, keep: Tensor) -> Any:
        return meta.select_keys([meta.keys[row] for row in keep.nonzero().flatten().tolist()])

    patch.setattr(trainer, "remove_rows", only_select)


def _no_append(patch: Patch) -> None:
    """The mistake that the run-time verification is there for: weights are written, and no worker ever reads them."""
    patch.setattr(columns, "make_visible", lambda meta, names: None)


def _no_loss_mask(patch: Patch) -> None:
    """Masked tokens still count in the denominator of token means."""
    patch.setattr(apply, "MASKS", ("response_mask",))


def _no_baseline(patch: Patch) -> None:
    """Advantages stay those of all rows."""
    patch.setattr(trainer, "over_kept", lambda *args: {})


def _no_channel(patch: Patch) -> None:
    """Weights go where the loss does not look for them."""
    patch.setattr(trainer, "channel_of", lambda loss_mode: "rollout_is_weights")


def _no_verify(patch: Patch) -> None:
    patch.setattr(trainer, "verify", lambda *args, **kwargs: None)


CUTS: dict[str, Callable[[Patch], None]] = {
    "padding": _verl_padding,
    "divisor": _no_divisor,
    "deal": _no_deal,
    "clear": _no_clear,
    "append": _no_append,
    "loss mask": _no_loss_mask,
    "baseline": _no_baseline,
    "channel": _no_channel,
    "verify": _no_verify,
}


@dataclass
class _Cut(Observer):
    """Cuts by step.

    Attributes:
        at: For each step, from the first that this handler sees, the names of what is missing.
    """

    at: list[list[str]]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._left = iter(self.at)
        self._patch = Patch()

    def _cut(self) -> None:
        self._patch.undo()
        for name in next(self._left):
            CUTS[name](self._patch)

    @on(RunEnd)
    def restore(self, event: RunEnd) -> None:
        self._patch.undo()


@dataclass
class CutRows(_Cut):
    """Cuts before rows are dropped."""

    @on(RolloutDone)
    def cut(self, event: RolloutDone) -> None:
        self._cut()


@dataclass
class CutWeights(_Cut):
    """Cuts before weights are written."""

    @on(AdvantageComputed)
    def cut(self, event: AdvantageComputed) -> None:
        self._cut()
