"""Scorer `token_entropy`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dataflex_events import Batch, Scorer, register
from dataflex_events.components import Scope


@register("token_entropy")
@dataclass
class TokenEntropy(Scorer):
    """Entropy, in nats, of the policy's next-token distribution at each response token, before the update.

    It is verl's `entropy` column, a by-product of the recomputation of log-probs. A run that bypasses the recomputation
    has no such column and is refused.

    Returns `(T,)` >= 0; masked tokens are scored too.
    """

    fields: ClassVar[tuple[str, ...]] = ("entropy",)
    per: ClassVar[Scope] = "token"

    def score(self, batch: Batch) -> Tensor:
        return batch["entropy"]
