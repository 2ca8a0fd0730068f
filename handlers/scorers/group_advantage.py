"""Scorer `group_advantage`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from dataflex_events import Batch, RunStart, Scorer, on, register
from dataflex_events.segments import group_moments

TOLERANCE = 1e-6
EPSILON = 1e-6  # verl's


@register("group_advantage")
@dataclass
class GroupAdvantage(Scorer):
    """The GRPO advantage, from rewards alone and so before training: `(r - mean) / (std + 1e-6)` within a prompt.

    Mean and unbiased standard deviation (n - 1) are those of the rewards of the prompt's sessions, as in verl. Two
    things differ: a group of one scores 0 (verl: its reward), and so does a group whose standard deviation is below
    `1e-6 * max(1, highest |reward|)` (verl divides rounding errors by 1e-6). A session with several outputs counts
    once. A group with a reward that is not finite has no score (NaN).

    Returns `(N,)`, >= 0 with `abs`.

    Attributes:
        norm_by_std: Divide by the standard deviation; without, as in Dr. GRPO (arXiv 2503.20783), the score is
            `r - mean`. By default as the run does (`algorithm.norm_adv_by_std_in_grpo`).
        abs: Magnitudes only.
    """

    fields: ClassVar[tuple[str, ...]] = ("reward",)
    needs_groups: ClassVar[bool] = True

    norm_by_std: bool | None = None
    abs: bool = True

    _run_divides: bool = field(default=True, init=False, repr=False, compare=False)

    @on(RunStart)
    def learn(self, event: RunStart) -> None:
        self._run_divides = event.run.norm_adv_by_std

    def score(self, batch: Batch) -> Tensor:
        reward = batch["reward"].to(torch.float64)
        mean, std = group_moments(reward, batch.uid, batch.last_output, tolerance=TOLERANCE)
        divide = self._run_divides if self.norm_by_std is None else self.norm_by_std
        advantage = (reward - mean) / (std + EPSILON) if divide else reward - mean
        advantage = advantage.masked_fill(std == 0, 0.0).masked_fill(std.isnan(), float("nan"))
        return (advantage.abs() if self.abs else advantage).to(torch.float32)
