"""Gate `difficulty_pools`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dataflex_events import ChanceGate, PromptHistory, register

TOLERANCE = 1e-6
Rate = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@register("difficulty_pools")
@dataclass
class DifficultyPools(ChanceGate):
    """Draws easy and hard prompts less often than the others, by the pass rate of each one's latest group.

    Prompts are in one of three pools: hard (pass rate at most `hard`), normal (above that, at most `easy`) and easy
    (above `easy`). Normal prompts, and those that were never generated, have weight 1. Prompts are drawn in proportion
    to the weights. Pass rates within 1e-6 of a bound count as equal to it.

    Source: the difficulty pools of prime-rl.

    Attributes:
        easy: Above this pass rate a prompt is easy.
        hard: At or below this pass rate a prompt is hard.
        weight_easy: Weight of easy prompts.
        weight_hard: Weight of hard prompts.
        explore: Share of prompts that are drawn whatever is known about them.
    """

    easy: Rate = 0.75
    hard: Rate = 0.25
    weight_easy: Weight = 0.2
    weight_hard: Weight = 0.2
    explore: Annotated[float, Field(ge=0, le=1)] = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hard > self.easy:
            raise ValueError(f"hard {self.hard} is above easy {self.easy}: no prompt would be between them")

    @property
    def explore_share(self) -> float:
        return self.explore

    def chance(self, prompts: PromptHistory) -> NDArray[np.float64]:
        weight = np.ones(len(prompts))  # no pass rate (NaN) is in neither pool
        weight[prompts.latest <= self.hard + TOLERANCE] = self.weight_hard
        weight[prompts.latest > self.easy + TOLERANCE] = self.weight_easy
        chance: NDArray[np.float64] = weight / max(1.0, self.weight_easy, self.weight_hard)
        return chance
