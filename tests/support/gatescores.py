"""Components that come too late or fail, named by import string such as `gatescores:LateGroupScore`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dataflex_events import Batch, ChanceGate, PromptHistory, Scorer


@dataclass
class LateGroupScore(Scorer):
    """One score a group, from what exists only after advantages are computed."""

    per = "group"
    fields = ("advantages",)

    def score(self, batch: Batch) -> Tensor:
        return torch.zeros(len(batch))


@dataclass
class Breaks(ChanceGate):
    """Fails whenever it is asked."""

    def chance(self, prompts: PromptHistory) -> np.ndarray:
        raise KeyError("mine")
