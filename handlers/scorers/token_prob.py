"""Scorer `token_prob`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dataflex_events import Batch, Scorer, register
from dataflex_events.components import Scope


@register("token_prob")
@dataclass
class TokenProb(Scorer):
    """Probability of each response token under the policy before the update: `exp(old_log_probs)`.

    Masked tokens are scored too. Where verl's rollout correction bypasses the recomputation of log-probs, these are the
    rollout engine's.

    Returns `(T,)` in [0, 1].
    """

    fields: ClassVar[tuple[str, ...]] = ("old_log_probs",)
    per: ClassVar[Scope] = "token"

    def score(self, batch: Batch) -> Tensor:
        return batch["old_log_probs"].exp()
