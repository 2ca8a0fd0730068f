"""Reweighter `difficulty_band`."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Reweighter, register
from dataflex_events.segments import quantiles

logger = logging.getLogger("dataflex")

Share = Annotated[float, Field(ge=0, le=1)]


@register("difficulty_band")
@dataclass
class DifficultyBand(Reweighter):
    """Rows whose score lies between two quantiles of the batch weigh `focus_weight`, all others 1.

    `w = focus_weight if q_low <= score <= q_high else 1`, bounds included, quantiles with linear interpolation over the
    scored rows. From DataFlex-RL; there is no paper. A row without a score (NaN) weighs 1, and so do all rows if fewer
    than two have a score.

    Meant for `group_solve_rate`. Of rewards that are only 0 or 1 the quantiles are 0 or 1 themselves: a lone success
    among failures falls outside the band. Warns once if more than 90% of the rows share one score.

    Attributes:
        low_q: Lower quantile, in [0, 1].
        high_q: Upper quantile.
        focus_weight: Weight inside the band relative to outside.
    """

    low_q: Share = 0.25
    high_q: Share = 0.75
    focus_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0

    _warned: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low_q > self.high_q:
            raise ValueError(f"no score lies between the quantiles low_q {self.low_q} and high_q {self.high_q}")

    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        weights = torch.ones_like(scores)
        finite = scores[scores.isfinite()]
        if len(finite) < 2:
            return weights
        self._warn_if_degenerate(finite)
        low, high = quantiles(finite, [self.low_q, self.high_q])
        focus = (scores >= low) & (scores <= high)
        return weights.where(~focus, weights.new_full((), self.focus_weight))

    def _warn_if_degenerate(self, scores: Tensor) -> None:
        most = int(torch.unique(scores, return_counts=True)[1].max())
        if most > 0.9 * len(scores) and not self._warned:
            logger.warning("difficulty_band: %d of %d rows share one score, its band says little", most, len(scores))
            self._warned = True
