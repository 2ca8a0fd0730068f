"""Reweighter `per_advantage`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Reweighter, register


@register("per_advantage")
@dataclass
class PerAdvantage(Reweighter):
    """Rows with large advantages count more: `w = |score|^alpha / mean(|score|^alpha)` over the scored rows.

    Meant for the scorer `advantage_magnitude`. From DataFlex-RL, which names it after prioritised experience replay
    (arXiv 1511.05952). It is not PER: that samples in proportion to a power of the error, and corrects for it with
    weights that fall with it.

    A row without a score (NaN) gets weight 1, the mean; if all scores are 0, so do all rows.

    Attributes:
        alpha: 0 weighs nothing, 1 in proportion to the magnitude.
    """

    alpha: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5

    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        weights = torch.ones_like(scores)
        scored = scores.isfinite()
        magnitude = scores[scored].to(torch.float64).abs()
        if magnitude.any():
            power = (magnitude / magnitude.max()) ** self.alpha  # of at most 1: no exponent is too large
            weights[scored] = (power / power.mean()).to(weights.dtype)
        return weights
