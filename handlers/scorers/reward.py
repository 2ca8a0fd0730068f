"""Scorer `reward`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dataflex_events import Batch, Scorer, register


@register("reward", aliases=["reward_difficulty"])
@dataclass
class Reward(Scorer):
    """The rollout's reward: the sum of `rm_scores` over all response tokens, masked ones included.

    A reward may sit on a token with mask 0, for example when a tool's answer ends the response. All outputs of a
    session share the reward of its final output.

    Returns `(N,)`. A reward that is not finite has no score (NaN).
    """

    fields: ClassVar[tuple[str, ...]] = ("reward",)

    def score(self, batch: Batch) -> Tensor:
        return batch["reward"]
