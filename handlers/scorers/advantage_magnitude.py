"""Scorer `advantage_magnitude`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from dataflex_events import Batch, Scorer, register
from dataflex_events.segments import segment_reduce


@register("advantage_magnitude")
@dataclass
class AdvantageMagnitude(Scorer):
    """How strongly a rollout pulls on the policy: `|advantage|` aggregated over its valid tokens.

    Returns `(N,)` >= 0. A rollout without a valid token scores 0.

    Attributes:
        agg: "mean", "sum" or "max" over the tokens.
    """

    fields: ClassVar[tuple[str, ...]] = ("advantages", "response_mask")

    agg: Literal["mean", "sum", "max"] = "mean"

    def score(self, batch: Batch) -> Tensor:
        return segment_reduce(batch["advantages"].abs(), batch.offsets, self.agg, batch["response_mask"])
