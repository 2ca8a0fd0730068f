"""Mixer `reward_gap`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, PositiveInt
from torch import Tensor

from dataflex_events import DomainStats, Mixer, register
from dataflex_events.shares import check_floor, softmax, with_floor


@register("reward_gap")
@dataclass
class RewardGap(Mixer):
    """More of the domains whose mean reward lags behind that of the best: DataFlex-RL's rule.

        q_d = softmax((max(m) - m_d) / temperature),  p_d = floor + (1 - D * floor) * q_d

    m_d is the mean score of the domain's rollouts in its last `window` steps. Like DoReMi (arXiv 2305.10429) it gives
    more to where a gap is left, but the gap is to the best domain and not to a reference model. It cannot tell a domain
    that is being learned from one that cannot be learned, which gets the most for as long as the run goes on.

    A domain without a score counts as the mean of the others, and without any scores all domains have the same share.

    Returns `(D,)`.

    Attributes:
        temperature: Lower is sharper.
        floor: Smallest share of a domain; at most 1 / D.
        window: Steps, of those that generated the domain.
    """

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    floor: Annotated[float, Field(ge=0, le=1)] = 0.05
    window: PositiveInt = 50

    @property
    def keeps_steps(self) -> int:
        return self.window

    def begin(self, names: Sequence[str]) -> None:
        check_floor(self.floor, len(names))

    def mix(self, stats: DomainStats) -> Tensor:
        mean = stats.mean
        mean = mean.where(mean.isfinite(), mean.nanmean()).nan_to_num(0.0)
        return with_floor(softmax(-mean, self.temperature), self.floor)
