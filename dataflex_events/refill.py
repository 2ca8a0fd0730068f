"""Replacing groups that a selection drops: what is asked for, what is decided about each group, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from dataflex_events.context import GroupContext
from dataflex_events.errors import DataflexError
from dataflex_events.events import Groups

OnExhausted = Literal["raise", "accept"]

_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Refill:
    """How dropped groups are replaced.

    Attributes:
        eager: Two fresh prompts for each dropped group, as verl does it for its own filter; what is too much is thrown
            away. False: one for each, so that nothing is too much, at the price of waiting.
        max_generated_factor: A step generates at most so many times the batch.
        on_exhausted: What happens then: stop the run ("raise"), or train on what there is ("accept").
    """

    eager: bool = True
    max_generated_factor: float = 10.0
    on_exhausted: OnExhausted = "raise"

    def __str__(self) -> str:
        how = "two fresh prompts for each, what is too much is discarded" if self.eager else "one fresh prompt for each"
        then = "the run stops" if self.on_exhausted == "raise" else "the step trains on what there is"
        return f"{how}; after {self.max_generated_factor:g} batches of prompts in one step {then}"


class RefillError(DataflexError):
    """A step generated as much as it may, and still has no full batch."""


def resolve_groups(context: GroupContext, groups: Groups) -> Tensor | None:
    """Which groups stay: `(G,)` bool, or None if nobody proposed anything.

    A group stays if all proposals keep all of its rows. One without rows does not: there is nothing to train on.
    """
    if not context.keeps:
        return None
    uid = context.batch.uid
    kept = torch.zeros(len(groups), dtype=torch.bool)
    kept[uid] = True
    for proposal in context.keeps.values():
        kept[uid[~proposal.mask]] = False
    return kept


@dataclass(slots=True)
class Account:
    """Why the groups of one step were dropped.

    Attributes:
        looked: Groups that were looked at.
        kept: How many of them stay.
        empty: How many had no rollout, because all of theirs failed.
        scores: For each handler that dropped groups, how many with which score.
    """

    looked: int = 0
    kept: int = 0
    empty: int = 0
    scores: dict[str, Counter[str]] = field(default_factory=dict)

    def add(self, context: GroupContext, kept: Tensor) -> None:
        """Count groups.

        Args:
            context: What was proposed about them.
            kept: `(G,)` bool, what was decided.
        """
        uid = context.batch.uid
        self.looked += len(kept)
        self.kept += int(kept.sum())
        self.empty += len(kept) - len(torch.unique(uid))
        for name, proposal in context.keeps.items():
            dropped = torch.zeros(len(kept), dtype=torch.bool)
            dropped[uid[~proposal.mask]] = True
            value = torch.full((len(kept),), torch.nan)
            if proposal.scores is not None:
                value[uid] = proposal.scores.to(value.dtype)
            counted = self.scores.setdefault(name, Counter())
            counted.update("no score" if score != score else f"{score:.3g}" for score in value[dropped].tolist())

    def __str__(self) -> str:
        parts = [f"{self.looked} groups were looked at and {self.kept} kept"]
        parts += [
            f"{name!r} dropped {counts.total()} ({_listed(counts)})" for name, counts in self.scores.items() if counts
        ]
        if self.empty:
            parts.append(f"{self.empty} had no rollout, because all of theirs failed")
        return "; ".join(parts)


def _listed(counts: Counter[str]) -> str:
    scored = Counter({score: count for score, count in counts.items() if score != "no score"})
    common = scored.most_common(_SHOWN)
    shown = [f"{count} with the score {score}" for score, count in common]
    if counts["no score"]:
        shown.append(f"{counts['no score']} without a score")
    others = scored.total() - sum(count for _, count in common)
    return ", ".join([*shown, *[f"{others} with others"] * (others > 0)])
