"""Selector `threshold_band`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dataflex_events import Batch, Selector, register

TOLERANCE = 1e-6


@register("threshold_band", aliases={"difficulty_filtering": {"low": 0.2, "high": 0.8}})
@dataclass
class ThresholdBand(Selector):
    """Keep rows whose score lies between two bounds.

    With `group_solve_rate` and the bounds 0 and 1 it keeps the groups that have both successes and failures, the filter
    of DAPO (arXiv 2503.14476); with 0.2 and 0.8 it is online difficulty filtering (arXiv 2504.03380).

    Scores within 1e-6 of a bound count as equal to it, so that 2 of 10 is not above 0.2. A row without a score (NaN) is
    not kept.

    Attributes:
        low: Lower bound.
        high: Upper bound.
        inclusive: Keep scores that equal a bound.
    """

    low: float = 0.0
    high: float = 1.0
    inclusive: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.low <= self.high if self.inclusive else self.low < self.high):
            raise ValueError(f"no score lies between low {self.low} and high {self.high}")

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        if self.inclusive:
            return (scores >= self.low - TOLERANCE) & (scores <= self.high + TOLERANCE)
        return (scores > self.low + TOLERANCE) & (scores < self.high - TOLERANCE)
