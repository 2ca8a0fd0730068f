"""Selector `max_variance`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Selector, register
from dataflex_events.components import Baseline, SelectorScope
from dataflex_events.segments import group_rank, group_reduce

TOLERANCE = 1e-9


@register("max_variance", aliases=["pods_maxvar", "pods"])
@dataclass
class MaxVariance(Selector):
    """Of each group keep the m rollouts whose rewards vary most: PODS (arXiv 2504.13818), scorer `reward`.

    The subset of highest variance is the a lowest and the m - a highest scores, for some a in 0..m; that a is looked
    for among all. Of equally good ones the smallest wins, as in the authors' code, and of equal scores the lower row
    number: of a constant group the first m rows are kept. `m = max(2, floor(keep_fraction * G + 0.5))` of G sessions,
    or all, if there are fewer.

    Variances are compared after the group's scores are scaled to [0, 1]; a difference below 1e-9 counts as none. A row
    without a score (NaN) counts in G and is never kept. A session with several outputs has the score of its final one.

    Attributes:
        keep_fraction: Share of a group to keep, in (0, 1].
        advantages: "subset" for baselines of the kept rows, as in the paper; "full" for those of the whole group.
    """

    scope: ClassVar[SelectorScope] = "within_group"

    keep_fraction: Annotated[float, Field(gt=0, le=1)] = 0.5
    advantages: Baseline = "subset"

    def baseline(self) -> Baseline:
        return self.advantages

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        uid = batch.uid
        candidates = scores.isfinite() & batch.last_output
        size = uid[batch.last_output].bincount(minlength=batch.groups)
        n = uid[candidates].bincount(minlength=batch.groups)
        m = (self.keep_fraction * size + 0.5 + 1e-9).floor().to(torch.int64).clamp_min(2).minimum(n)

        rank = group_rank(scores, uid, candidates)
        ordered = scores.new_zeros(len(n), int(n.max()) if len(n) else 0, dtype=torch.float64)
        ordered[uid[candidates], rank[candidates]] = _scaled(scores, uid, candidates)[candidates]
        a = _best_split(ordered, n, m)

        lowest = candidates & (rank < a[uid])
        highest = candidates & (group_rank(scores, uid, candidates, descending=True) < (m - a)[uid])
        return group_reduce(lowest | highest, batch.session, "max") > 0


def _scaled(scores: Tensor, uid: Tensor, candidates: Tensor) -> Tensor:
    """Scores `(N,)` float64 on a scale of 0 to 1 within their group; 0 in a constant group."""
    low = group_reduce(scores, uid, "min", candidates).to(torch.float64)
    spread = group_reduce(scores, uid, "max", candidates).to(torch.float64) - low
    return (scores - low) / spread.where(spread > 0, spread.new_ones(()))


def _best_split(ordered: Tensor, n: Tensor, m: Tensor) -> Tensor:
    """How many of the lowest to take in each group, with the highest as the rest of its m: `(G,)` int64.

    Args:
        ordered: `(G, W)` scores of each group in ascending order, 0 beyond its n.
        n: `(G,)` number of scores.
        m: `(G,)` number to take.
    """
    a = torch.arange(ordered.shape[1] + 1, device=ordered.device)
    begin = (n - m)[:, None] + a  # of the highest m - a
    lowest = torch.nn.functional.pad(torch.stack([ordered, ordered.square()]).cumsum(2), (1, 0))
    highest = lowest[:, :, -1:] - lowest.gather(2, begin.clamp_max(len(a) - 1).expand(2, -1, -1))
    mean, square = (lowest + highest) / m[:, None].clamp_min(1)
    variance = (square - mean.square()).where(a <= m[:, None], ordered.new_full((), -1.0))
    as_good = variance >= variance.amax(1, keepdim=True) - TOLERANCE
    first: Tensor = as_good.to(torch.int8).argmax(1)
    return first
