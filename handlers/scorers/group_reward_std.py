"""Scorer `group_reward_std`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Scorer, register
from dataflex_events.components import Scope
from dataflex_events.segments import group_moments


@register("group_reward_std")
@dataclass
class GroupRewardStd(Scorer):
    """Contrast within a prompt: the unbiased standard deviation (n - 1) of the rewards of its sessions.

    All rows of a group share the score. A session with several outputs counts once. What lies below
    `tolerance * max(1, highest |reward| of the group)` is exactly 0, so that equal rewards have no contrast: computed
    in float32, three times 0.9 have a standard deviation of 7e-8. A group of one scores 0. A group with a reward that
    is not finite has no score (NaN).

    Returns `(N,)` >= 0, in units of the reward.

    Attributes:
        tolerance: Relative to the rewards, and absolute where these are below 1.
    """

    fields: ClassVar[tuple[str, ...]] = ("reward",)
    per: ClassVar[Scope] = "group"
    needs_groups: ClassVar[bool] = True

    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-6

    def score(self, batch: Batch) -> Tensor:
        _, std = group_moments(batch["reward"], batch.uid, batch.last_output, tolerance=self.tolerance)
        return std.to(torch.float32)
