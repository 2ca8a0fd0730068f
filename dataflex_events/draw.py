"""The context of a draw: by which proportions the domains are to be drawn, and through which gate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dataflex_events._current import current_handler
from dataflex_events.context import Context
from dataflex_events.errors import HandlerOutputError

if TYPE_CHECKING:
    from dataflex_events.choosing import Gated  # needs the bases of components, and these the events


@dataclass(frozen=True, slots=True, eq=False)
class DrawDecision:
    """How to draw.

    Attributes:
        proportions: `(D,)` float64 with sum 1; None if nobody proposed any.
        gate: Chooses the rows of each domain; None if there is no gate.
        shadow_gate: Would choose them; is told what it would have drawn.
    """

    proportions: Tensor | None = None
    gate: Gated | None = None
    shadow_gate: Gated | None = None


@dataclass(slots=True, eq=False)
class DrawContext(Context):
    """What handlers may write at `BufferSample`: by which proportions the domains are drawn, and through which gate.

    Attributes:
        domains: Names of the D domains.
        proportions: Proportions by handler, `(D,)` float64 with sum 1.
        shadows: The same by policies that only show what they would do.
        gates: Gates by handler.
        shadow_gates: The same by policies that only show what they would do.
    """

    domains: tuple[str, ...]
    proportions: dict[str, Tensor] = field(default_factory=dict)
    shadows: dict[str, Tensor] = field(default_factory=dict)
    gates: dict[str, Gated] = field(default_factory=dict)
    shadow_gates: dict[str, Gated] = field(default_factory=dict)

    def mix(self, proportions: Tensor, *, shadow: bool = False, by: str | None = None) -> None:
        """Propose by which proportions the domains are drawn.

        Args:
            proportions: `(D,)`, finite, >= 0, not all 0. They are divided by their sum.
            shadow: It is shown and not applied.
            by: Whose proposal it is; by default the handler that is running.

        Raises:
            HandlerOutputError: Wrong shape or values.
        """
        name = by or current_handler()
        checked = normalized(proportions, len(self.domains), name)
        (self.shadows if shadow else self.proportions)[name] = checked

    def gate(self, gate: Gated, *, shadow: bool = False, by: str | None = None) -> None:
        """Propose a gate, which chooses the rows of each domain.

        Args:
            gate: It, with what it goes by.
            shadow: What it would draw is shown, and not drawn.
            by: Whose proposal it is; by default the handler that is running.
        """
        (self.shadow_gates if shadow else self.gates)[by or current_handler()] = gate

    def discard(self, by: str) -> None:
        """Forget what a handler proposed, and the scalars that it wrote with `metric`."""
        Context.discard(self, by)  # `super()` does not know a class that got slots
        for proposals in (self.proportions, self.shadows, self.gates, self.shadow_gates):
            proposals.pop(by, None)

    def resolve(self, *, shadow: bool = False) -> DrawDecision:
        """How to draw.

        Args:
            shadow: Everything is shown, and nothing applied.

        Raises:
            HandlerOutputError: Several handlers propose proportions, or gates: they cannot be combined.
        """
        for what, proposals in (("proportions", self.proportions), ("gates", self.gates)):
            if len(proposals) > 1:
                names = " and ".join(map(repr, proposals))
                raise HandlerOutputError(f"{names} both propose {what}; a draw can follow those of one only")
        proportions = next(iter(self.proportions.values()), None)
        gate, shown = (next(iter(gates.values()), None) for gates in (self.gates, self.shadow_gates))
        if shadow:
            return DrawDecision(shadow_gate=gate or shown)
        return DrawDecision(proportions, gate, shown)


def normalized(proportions: Tensor, domains: int, by: str) -> Tensor:
    """Proportions as `(D,)` float64 with sum 1.

    Raises:
        HandlerOutputError: They are none.
    """
    if not isinstance(proportions, Tensor) or proportions.shape != (domains,):
        given = tuple(proportions.shape) if isinstance(proportions, Tensor) else type(proportions).__name__
        raise HandlerOutputError(f"{by!r} proposed proportions {given}, expected a tensor of shape ({domains},)")
    proportions = proportions.to(torch.float64)
    if not bool((proportions.isfinite() & (proportions >= 0)).all()) or not bool(proportions.sum() > 0):
        raise HandlerOutputError(f"{by!r} proposed proportions that are negative, not finite or all 0")
    return proportions / proportions.sum()
