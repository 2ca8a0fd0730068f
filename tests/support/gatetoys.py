"""Small gates for tests. A configuration names them by import string, such as `gatetoys:OnlyRows`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataflex_events import Gate, PromptHistory


@dataclass
class OnlyRows(Gate):
    """Skips a row whose number modulo `modulo` is not among `rests`."""

    modulo: int = 2
    rests: tuple[int, ...] = (0,)

    @property
    def explore_share(self) -> float:
        return 0.0

    def prefer(self, prompts: PromptHistory, rng: np.random.Generator) -> np.ndarray:
        return np.where(np.isin(prompts.rows % self.modulo, self.rests), 0.0, np.nan)


@dataclass
class FirstRows(Gate):
    """Looks at all rows and prefers the lowest ones."""

    @property
    def looks(self) -> int:
        return 1000

    @property
    def explore_share(self) -> float:
        return 0.0

    def prefer(self, prompts: PromptHistory, rng: np.random.Generator) -> np.ndarray:
        return -prompts.rows.astype(np.float64)
