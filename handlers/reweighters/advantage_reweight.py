"""Reweighter `advantage_reweight`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Reweighter, register
from dataflex_events.components import Normalize


@register("advantage_reweight")
@dataclass
class AdvantageReweight(Reweighter):
    """Tokens that the policy finds likely count more: `w = alpha * p + (1 - alpha)`, for the scorer `token_prob`.

    "AR" of arXiv 2505.12929, which keeps the gradients of rare tokens from dominating; the formula is that of the
    authors' code (`compute_reweight_advantage`). As there, weights are not normalised: they lie in [1 - alpha, 1].
    DataFlex-RL divides by their mean, so that likely tokens weigh more than 1; `normalize: token` does the same.

    A token without a score (NaN) gets weight 1.

    Attributes:
        alpha: 0 weighs nothing, 1 by the probability itself. The authors' scripts use 0.2 for AR alone.
    """

    normalize: ClassVar[Normalize] = "none"

    alpha: Annotated[float, Field(ge=0, le=1)] = 0.2

    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        weights = self.alpha * scores + (1 - self.alpha)
        return weights.where(scores.isfinite(), weights.new_ones(()))
