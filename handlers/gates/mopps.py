"""Gate `mopps`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dataflex_events import Gate, PromptHistory, register


@register("mopps")
@dataclass
class Mopps(Gate):
    """Draws the prompts whose success rate is predicted closest to a target: MoPPS.

    The success rate of each prompt has a posterior Beta(alpha, beta), from the prior Beta(1, 1). Whenever a prompt was
    generated, with k successes in n rollouts,

        alpha <- decay * alpha + (1 - decay) + k,  beta <- decay * beta + (1 - decay) + n - k

    Of `candidates` prompts that come up for each one that is drawn, a rate is drawn from each one's posterior, and
    those with the lowest `(rate - target)^2` are generated: prompts about which little is known get their chances too.

    Source: arXiv 2507.04632 and its authors' code.

    Attributes:
        target: Success rate that it looks for.
        decay: 1: everything that was ever seen counts. Lower where the model learns fast (the authors use 0.5 too).
        candidates: Prompts that come up for each one that is drawn.
        explore: Share of prompts that are drawn whatever is known about them.
    """

    target: Annotated[float, Field(ge=0, le=1)] = 0.5
    decay: Annotated[float, Field(ge=0, le=1)] = 1.0
    candidates: Annotated[int, Field(ge=1)] = 8
    explore: Annotated[float, Field(ge=0, le=1)] = 0.01

    @property
    def looks(self) -> int:
        return self.candidates

    @property
    def forgets(self) -> float:
        return self.decay

    @property
    def explore_share(self) -> float:
        return self.explore

    def prefer(self, prompts: PromptHistory, rng: np.random.Generator) -> NDArray[np.float64]:
        rate = rng.beta(prompts.alpha, prompts.beta)
        return -np.square(rate - self.target)
