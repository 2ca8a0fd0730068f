"""Mixer `static`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dataflex_events import DomainStats, Mixer, register
from dataflex_events.shares import check_numbers, shares_of


@register("static")
@dataclass
class Static(Mixer):
    """The same proportions for the whole run: the given numbers, divided by their sum.

    `[2, 1, 1]` gives `(0.5, 0.25, 0.25)`. A domain with 0 is never drawn. Every domain of the run must have a number.

    Returns `(D,)`.

    Attributes:
        proportions: Numbers >= 0, not all 0: a mapping from the domains' names, or a list in their order. By default
            all domains have the same share.
    """

    proportions: dict[str, float] | list[float] | None = None

    _given: Tensor = field(default_factory=lambda: torch.zeros(0), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.proportions is not None:
            check_numbers(self.proportions)

    def begin(self, names: Sequence[str]) -> None:
        self._given = shares_of([1.0] * len(names) if self.proportions is None else self.proportions, names)

    def mix(self, stats: DomainStats) -> Tensor:
        return self._given.clone()
