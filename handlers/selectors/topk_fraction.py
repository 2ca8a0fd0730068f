"""Selector `topk_fraction`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Selector, register
from dataflex_events.components import SelectorScope
from dataflex_events.segments import group_rank, group_reduce


@register("topk_fraction")
@dataclass
class TopkFraction(Selector):
    """Keep the share of the batch with the highest scores: `k = max(1, floor(fraction * n + 0.5))` of n sessions.

    Of equal scores the lower row number wins. A row without a score (NaN) counts in n and is never kept, so that fewer
    than k may be. A session with several outputs has the score of its final one.

    With a score of whole groups the cut may go through a group.

    Attributes:
        fraction: Share of the sessions to keep, in (0, 1].
        largest: Keep the highest scores, not the lowest.
    """

    scope: ClassVar[SelectorScope] = "batch"

    fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    largest: bool = True

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        candidates = scores.isfinite() & batch.last_output
        exact = self.fraction * int(batch.last_output.sum())
        k = max(1, math.floor(round(exact, 9) + 0.5))  # .29 * 50 is just below 14.5
        rank = group_rank(scores, torch.zeros_like(batch.uid), candidates, descending=self.largest)
        return group_reduce(candidates & (rank < k), batch.session, "max") > 0
