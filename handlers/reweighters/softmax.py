"""Reweighter `softmax`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Reweighter, register


@register("softmax")
@dataclass
class Softmax(Reweighter):
    """Weights proportional to `exp(score / temperature)`: `n * softmax(scores / temperature)` over the n scored rows.

    A row (or token) without a score (NaN) gets weight 1. Related to the exponential weights of AWR (arXiv 1910.00177),
    which are not normalised over the batch.

    Attributes:
        temperature: Lower is sharper; the higher, the closer all weights are to 1.
    """

    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0

    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        scored = scores.isfinite()
        weights = torch.ones_like(scores)
        if scored.any():
            finite = scores[scored].to(torch.float64)
            # Relative to the highest, so that no temperature is too low to divide by.
            shares = torch.softmax((finite - finite.max()) / self.temperature, 0)
            weights[scored] = (len(shares) * shares).to(weights.dtype)
        return weights
