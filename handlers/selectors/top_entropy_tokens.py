"""Selector `top_entropy_tokens`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Selector, register
from dataflex_events.components import Normalize, SelectorScope
from dataflex_events.segments import quantiles


@register("top_entropy_tokens")
@dataclass
class TopEntropyTokens(Selector):
    """Keep the tokens at which the policy hesitates most: `entropy >= quantile(1 - fraction)`, scorer `token_entropy`.

    The quantile is over all valid tokens (`response_mask` 1) of the batch that have a score, with linear interpolation:
    the rule of arXiv 2506.01939. Tokens that equal it are all kept, so that more than `fraction` may be. Masked tokens
    and tokens without a score (NaN) are not kept.

    The kept tokens are not scaled up: the loss is still divided by the number of all valid tokens.

    Attributes:
        fraction: Share of the valid tokens to keep, in (0, 1].
    """

    fields: ClassVar[tuple[str, ...]] = ("response_mask",)
    scope: ClassVar[SelectorScope] = "token"
    normalize: ClassVar[Normalize] = "none"

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.2

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        candidates = scores.isfinite() & (batch["response_mask"] > 0)
        if not candidates.any():
            return candidates
        return candidates & (scores >= quantiles(scores[candidates], [1 - self.fraction]))
