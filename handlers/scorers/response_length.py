"""Scorer `response_length`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dataflex_events import Batch, Scorer, register
from dataflex_events.segments import segment_reduce


@register("response_length")
@dataclass
class ResponseLength(Scorer):
    """Number of response tokens of each row.

    Each output of a session has its own length. An empty response, or one whose tokens are all masked, scores 0.

    Returns `(N,)` >= 0, in tokens.

    Attributes:
        valid_only: Count only tokens that the policy wrote (`response_mask` 1), not for example a tool's answer.
    """

    fields: ClassVar[tuple[str, ...]] = ("response_mask",)

    valid_only: bool = True

    def score(self, batch: Batch) -> Tensor:
        if self.valid_only:
            return segment_reduce(batch["response_mask"], batch.offsets, "sum")
        return batch.length.to(torch.float32)
