"""The context of a draw: by which proportions the domains are to be drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from dataflex_events._current import current_handler
from dataflex_events.context import Context
from dataflex_events.errors import HandlerOutputError


@dataclass(slots=True, eq=False)
class DrawContext(Context):
    """What handlers may write at `BufferSample`: by which proportions the domains are drawn.

    Attributes:
        domains: Names of the D domains.
        proportions: Proportions by handler, `(D,)` float64 with sum 1.
        shadows: The same by policies that only show what they would do.
    """

    domains: tuple[str, ...]
    proportions: dict[str, Tensor] = field(default_factory=dict)
    shadows: dict[str, Tensor] = field(default_factory=dict)

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

    def discard(self, by: str) -> None:
        """Forget what a handler proposed, and the scalars that it wrote with `metric`."""
        Context.discard(self, by)  # `super()` does not know a class that got slots
        self.proportions.pop(by, None)
        self.shadows.pop(by, None)

    def resolve(self) -> Tensor | None:
        """The proportions `(D,)` of this draw; None if nobody proposed any.

        Raises:
            HandlerOutputError: Several handlers did: proportions cannot be combined.
        """
        if len(self.proportions) > 1:
            names = " and ".join(map(repr, self.proportions))
            raise HandlerOutputError(f"{names} both propose proportions; a draw can follow those of one only")
        return next(iter(self.proportions.values()), None)


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
