"""Gate `learnability`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dataflex_events import ChanceGate, PromptHistory, register


@register("learnability")
@dataclass
class Learnability(ChanceGate):
    """Draws prompts in proportion to how much their outcomes vary: LILO, with the pass rates of the past.

        chance = 4 * p * (1 - p)

    p is the pass rate of the prompt's latest group. So a prompt that half of the rollouts solve is always drawn, and
    one that all or none solve is drawn only to explore. A prompt that was never generated is always drawn.

    Source: arXiv 2502.12272, which generates rollouts to know p; here it is what an earlier step saw.

    Attributes:
        explore: Share of prompts that are drawn whatever is known about them.
    """

    explore: Annotated[float, Field(ge=0, le=1)] = 0.1

    @property
    def explore_share(self) -> float:
        return self.explore

    def chance(self, prompts: PromptHistory) -> NDArray[np.float64]:
        chance = 4 * prompts.latest * (1 - prompts.latest)
        return np.where(np.isnan(chance), 1.0, chance)
