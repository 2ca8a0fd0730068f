"""Scores of groups that come at odd times, named by import string such as `gatescores:LateGroupScore`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dataflex_events import Batch, Scorer


@dataclass
class LateGroupScore(Scorer):
    """One score a group, from what exists only after advantages are computed."""

    per = "group"
    fields = ("advantages",)

    def score(self, batch: Batch) -> Tensor:
        return torch.zeros(len(batch))
