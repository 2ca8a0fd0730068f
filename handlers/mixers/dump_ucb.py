"""Mixer `dump_ucb`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from dataflex_events import DomainStats, Mixer, register
from dataflex_events.shares import check_floor, softmax, with_floor


@register("dump_ucb")
@dataclass
class DumpUcb(Mixer):
    """More of the domains with large advantages, and of those that were rarely tried: DUMP (arXiv 2504.09710).

        UCB_d = L_d + c * sqrt(2 * ln(n + 1) / (n_d + 1)),  p = softmax(UCB / temperature)

    L_d is the mean score, |advantage|, of the domain's last `window` rollouts, 0 if there is none. n_d are its rollouts
    since the beginning of the run, and n those of all domains. A domain that has not been drawn has the largest bonus.

    Returns `(D,)`.

    Attributes:
        temperature: Lower is sharper. The authors' code has 0.1.
        c: Weight of the bonus.
        window: Rollouts.
        floor: Smallest share of a domain, `floor + (1 - D * floor) * p`; at most 1 / D. The paper has none.
    """

    default_scorer: ClassVar[str] = "group_advantage"

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    c: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    window: PositiveInt = 300
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0

    @property
    def keeps_rollouts(self) -> int:
        return self.window

    def begin(self, names: Sequence[str]) -> None:
        check_floor(self.floor, len(names))

    def mix(self, stats: DomainStats) -> Tensor:
        count = stats.count.to(torch.float64)
        bonus = (2 * math.log(count.sum().item() + 1) / (count + 1)).sqrt()
        return with_floor(softmax(stats.recent.nan_to_num(0.0) + self.c * bonus, self.temperature), self.floor)
