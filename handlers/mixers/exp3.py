"""Mixer `exp3`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import DomainStats, Mixer, register
from dataflex_events.shares import checked_state, softmax, with_floor

TINY = 1e-9


@register("exp3")
@dataclass
class Exp3(Mixer):
    """More of the domains with large rewards of their own, by Exp3: online data mixing (arXiv 2312.02406).

        R_d <- alpha * R_d + (1 - alpha) * r_d / p_d
        p = (1 - D * e_t) * softmax(e_(t-1) * R) + e_t,  e_t = min(1 / D, sqrt(ln D / (D * t)))

    t counts the steps with scores. r_d is the mean score of the domain's rollouts in such a step, and p_d the share by
    which the step drew it. A domain without a score keeps its R, which is 0 in the beginning. So does one with a share
    below 1e-9: its rollouts belong to an earlier draw.

    r is meant to be in [0, 1], as the mean |advantage| of a domain is. All shares are equal for the first D ln D steps,
    where e_t = 1 / D, and never far from it: of four domains the only one with r = 1, among others with r = 0, has at
    most 0.293, after 26 steps, and less again as e_t falls. Larger scores move p further.

    Returns `(D,)`, each at least e_t.

    Attributes:
        alpha: Weight of the estimate so far.
    """

    default_scorer: ClassVar[str] = "group_advantage"

    alpha: Annotated[float, Field(ge=0, lt=1)] = 0.9

    _estimate: Tensor = field(default_factory=lambda: torch.zeros(0), init=False, repr=False, compare=False)
    _t: int = field(default=0, init=False, repr=False, compare=False)

    def begin(self, names: Sequence[str]) -> None:
        self._estimate, self._t = torch.zeros(len(names), dtype=torch.float64), 0

    def update(self, stats: DomainStats) -> None:
        sampled = stats.latest.isfinite() & (stats.proportions > TINY)
        weighted = self.alpha * self._estimate + (1 - self.alpha) * stats.latest / stats.proportions
        self._estimate = torch.where(sampled, weighted, self._estimate)
        self._t += int(sampled.any())

    def mix(self, stats: DomainStats) -> Tensor:
        return with_floor(softmax(self._explore(self._t - 1) * self._estimate, 1.0), self._explore(self._t))

    def _explore(self, t: int) -> float:
        domains = len(self._estimate)
        return min(1 / domains, math.sqrt(math.log(domains) / (domains * t))) if t > 0 else 1 / domains

    def state_dict(self) -> dict[str, Any]:
        return {"estimate": self._estimate, "t": torch.tensor(self._t)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        read = checked_state(state, {"estimate": self._estimate, "t": torch.tensor(self._t)})
        self._estimate, self._t = read["estimate"], int(read["t"])
