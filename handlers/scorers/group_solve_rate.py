"""Scorer `group_solve_rate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Scorer, register
from dataflex_events.components import Scope
from dataflex_events.segments import group_reduce


@register("group_solve_rate")
@dataclass
class GroupSolveRate(Scorer):
    """Share of a prompt's rollouts that succeed, `mean(reward > success_threshold)` over its sessions.

    All rows of a group share the score. A session with several outputs counts once. A group with a reward that is not
    finite has no score (NaN): an unknown outcome is not a failure.

    Returns `(N,)` in [0, 1].

    Attributes:
        success_threshold: A reward above it is a success; a reward equal to it is not.
    """

    fields: ClassVar[tuple[str, ...]] = ("reward",)
    per: ClassVar[Scope] = "group"

    success_threshold: Annotated[float, Field(allow_inf_nan=False)] = 0.5

    def score(self, batch: Batch) -> Tensor:
        reward = batch["reward"]
        solved = (reward > self.success_threshold).to(reward.dtype)
        unknown = reward.new_full((), float("nan"))
        return group_reduce(solved.where(reward.isfinite(), unknown), batch.uid, "mean", batch.last_output)
