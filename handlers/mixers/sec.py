"""Mixer `sec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import DomainStats, Mixer, register
from dataflex_events.shares import check_floor, checked_state, softmax, with_floor


@register("sec")
@dataclass
class Sec(Mixer):
    """More of the domains with large advantages: the self-evolving curriculum SEC (arXiv 2505.14970).

        Q_d <- alpha * r_d + (1 - alpha) * Q_d,  p = softmax(Q / temperature)

    r_d is the mean score, |advantage|, of the domain's rollouts in a step; a domain that the step did not generate
    keeps its Q. All Q are 0 in the beginning. With binary rewards r_d is largest where half of the rollouts succeed.

    Returns `(D,)`.

    Attributes:
        alpha: Weight of the newest step.
        temperature: Lower is sharper. The authors use 0.2 to 1.
        floor: Smallest share of a domain, `floor + (1 - D * floor) * p`; at most 1 / D. The paper has none.
    """

    default_scorer: ClassVar[str] = "group_advantage"

    alpha: Annotated[float, Field(gt=0, le=1)] = 0.5
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.4
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0

    _q: Tensor = field(default_factory=lambda: torch.zeros(0), init=False, repr=False, compare=False)

    def begin(self, names: Sequence[str]) -> None:
        check_floor(self.floor, len(names))
        self._q = torch.zeros(len(names), dtype=torch.float64)

    def update(self, stats: DomainStats) -> None:
        sampled = stats.latest.isfinite()
        self._q = torch.where(sampled, self.alpha * stats.latest + (1 - self.alpha) * self._q, self._q)

    def mix(self, stats: DomainStats) -> Tensor:
        return with_floor(softmax(self._q, self.temperature), self.floor)

    def state_dict(self) -> dict[str, Any]:
        return {"q": self._q}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._q = checked_state(state, {"q": self._q})["q"]
