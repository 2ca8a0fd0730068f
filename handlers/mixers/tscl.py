"""Mixer `tscl`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import DomainStats, Mixer, register
from dataflex_events.shares import check_floor, checked_state, softmax, with_floor


@register("tscl")
@dataclass
class Tscl(Mixer):
    """More of the domains whose scores move: teacher-student curriculum learning (arXiv 1707.00183).

        q = softmax(|Q| / temperature),  p_d = floor + (1 - D * floor) * q_d

    Q_d is the learning progress of a domain. "window": the least-squares slope, per step, of its mean scores in the
    last `window` steps that generated it; 0 with fewer than two. "online": each time that it is generated
    `Q_d <- alpha * (x - x_last) + (1 - alpha) * Q_d`, where x is its mean score in the step and x_last the one before;
    0 until there are two. |Q| also brings back what is being forgotten.

    Returns `(D,)`.

    Attributes:
        variant: How progress is measured, "window" or "online".
        window: Steps, for "window"; at least 2.
        alpha: Weight of the newest step, for "online".
        temperature: Lower is sharper. It is in units of progress per step, and 0.1 is a lot of progress for a step.
        signed: Of Q count what is above 0, not |Q|.
        floor: Smallest share of a domain; at most 1 / D.
    """

    variant: Literal["window", "online"] = "window"
    window: Annotated[int, Field(ge=2)] = 10
    alpha: Annotated[float, Field(gt=0, le=1)] = 0.1
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    signed: bool = False
    floor: Annotated[float, Field(ge=0, le=1)] = 0.05

    _online: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def keeps_steps(self) -> int:
        return self.window if self.variant == "window" else 1

    def begin(self, names: Sequence[str]) -> None:
        check_floor(self.floor, len(names))
        if self.variant == "online":
            zero = torch.zeros(len(names), dtype=torch.float64)
            self._online = {"progress": zero, "last": zero.clone(), "seen": zero.bool()}

    def update(self, stats: DomainStats) -> None:
        if self.variant == "online":
            progress, last, seen = self._online.values()
            sampled, now = stats.latest.isfinite(), stats.latest
            moved = self.alpha * (now - last) + (1 - self.alpha) * progress
            progress = moved.where(sampled & seen, progress)
            self._online = {"progress": progress, "last": now.where(sampled, last), "seen": seen | sampled}

    def mix(self, stats: DomainStats) -> Tensor:
        progress = stats.slope if self.variant == "window" else self._online["progress"]
        progress = progress.clamp_min(0) if self.signed else progress.abs()
        return with_floor(softmax(progress, self.temperature), self.floor)

    def state_dict(self) -> dict[str, Any]:
        return dict(self._online)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._online = checked_state(state, self._online)
