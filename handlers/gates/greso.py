"""Gate `greso`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dataflex_events import ChanceGate, PromptHistory, StepGroups, register

LOWEST, HIGHEST = 0.05, 0.95
Share = Annotated[float, Field(ge=0, le=1)]


@register("greso")
@dataclass
class Greso(ChanceGate):
    """Skips a prompt the more likely, the more often in a row its rollouts all succeeded or all failed: GRESO.

        chance = max(p^z, explore_min)

    z is the number of its latest groups without a difference between outcomes, all of one kind; p is `p_easy` where
    all succeeded, `p_hard` where none did. A prompt that was never generated, or whose latest group taught something,
    is always drawn. Both p start at `p_init` and change by `step` after every step in which at least half of the groups
    are of prompts that came back: down where the share of groups of its kind is at or above the target, up where it is
    below; never out of [0.05, 0.95].

    Source: arXiv 2506.02177 and its authors' code.

    Attributes:
        p_init: p in the beginning.
        step: By how much p changes.
        targets: Shares of easy and of hard groups that it aims at.
        explore_min: Lowest chance, and the share of prompts that are drawn whatever is known about them.
    """

    p_init: Annotated[float, Field(ge=LOWEST, le=HIGHEST)] = 0.5
    step: Share = 0.01
    targets: tuple[Share, Share] = (0.0833, 0.1667)
    explore_min: Share = 0.01

    # Of easy and of hard prompts.
    _p: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._p = np.full(2, self.p_init)

    @property
    def explore_share(self) -> float:
        return self.explore_min

    @property
    def p_easy(self) -> float:
        """Chance of a prompt that all rollouts of its latest group solved."""
        return float(self._p[0])

    @property
    def p_hard(self) -> float:
        """Chance of a prompt that no rollout of its latest group solved."""
        return float(self._p[1])

    def chance(self, prompts: PromptHistory) -> NDArray[np.float64]:
        p = np.where(prompts.streak > 0, self.p_easy, self.p_hard)
        chance: NDArray[np.float64] = np.maximum(p ** np.abs(prompts.streak), self.explore_min)
        return chance

    def update(self, groups: StepGroups) -> None:
        if not len(groups) or 2 * groups.known.sum() < len(groups):
            return
        shares = np.mean(groups.kind[:, None] == (1, -1), axis=0)
        change = np.where(shares >= self.targets, -self.step, self.step)
        self._p = np.clip(self._p + change, LOWEST, HIGHEST)

    def state_dict(self) -> dict[str, Any]:
        return {"p_easy": self.p_easy, "p_hard": self.p_hard}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        read = [state.get("p_easy"), state.get("p_hard")]
        if not all(map(_is_base, read)):
            raise ValueError(f"its p_easy and p_hard are {read}, not numbers in [{LOWEST}, {HIGHEST}]")
        self._p = np.array(read, dtype=np.float64)


def _is_base(value: Any) -> bool:
    return isinstance(value, float) and LOWEST <= value <= HIGHEST
