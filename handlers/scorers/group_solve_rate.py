"""Scorer `group_solve_rate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Scorer, register
from dataflex_events.components import Scope
from dataflex_events.fields import OUTCOME
from dataflex_events.segments import group_reduce


@register("group_solve_rate")
@dataclass
class GroupSolveRate(Scorer):
    """Share of a prompt's rollouts that succeed, `mean(signal > success_threshold)` over its sessions.

    All rows of a group share the score. A session with several outputs counts once, as its final output says. A group
    with a signal that is not finite has no score (NaN): an unknown outcome is not a failure.

    Where the reward is shaped (a length penalty, a format bonus), name the outcome itself as the signal: a value that
    the reward function returns beside the score, for example `signal: acc`.

    Returns `(N,)` in [0, 1].

    Attributes:
        success_threshold: A signal above it is a success; a signal equal to it is not.
        signal: "reward", or the name of another value that the reward function returns.
    """

    per: ClassVar[Scope] = "group"
    needs_groups: ClassVar[bool] = True

    success_threshold: Annotated[float, Field(allow_inf_nan=False)] = 0.5
    signal: Annotated[str, Field(min_length=1)] = "reward"

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("reward" if self.signal == "reward" else f"{OUTCOME}{self.signal.removeprefix(OUTCOME)}",)

    def score(self, batch: Batch) -> Tensor:
        signal = batch[self.fields[0]].to(torch.float32)
        solved = (signal > self.success_threshold).to(signal.dtype)
        unknown = signal.new_full((), float("nan"))
        return group_reduce(solved.where(signal.isfinite(), unknown), batch.uid, "mean", batch.last_output)
