"""What is known about the domains: the scores of all rollouts that were generated, by domain and step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

# What `state_dict` holds besides the domains' names: name -> dtype.
_STATE = {
    "count": torch.int64,
    "latest": torch.float64,
    "proportions": torch.float64,
    "_steps_seen": torch.int64,
    "_step": torch.int64,
    "_total": torch.float64,
    "_number": torch.int64,
    "_values": torch.float32,
}


class DomainStats:
    """Scores of D domains. A rollout counts once, whatever later happens to it; one without a score does not count.

    Scores are collected while a step runs (`add`) and take effect at its end (`commit`), in an order that does not
    depend on who finished first. So the same rollouts always give the same numbers, to the last bit.

    Args:
        names: Names of the domains.
        steps: Of each domain the last so many steps in which it was generated are kept.
        rollouts: Of each domain the last so many scores are kept.

    Attributes:
        names: Names of the domains.
        count: `(D,)` int64 rollouts with a score since the beginning of the run.
        latest: `(D,)` float64 mean score in the latest step; NaN for a domain that it did not generate.
        proportions: `(D,)` float64 proportions by which the latest step drew; NaN before the first.
    """

    def __init__(self, names: Sequence[str], *, steps: int = 1, rollouts: int = 1) -> None:
        self.names = tuple(names)
        domains = len(self.names)
        self.count = torch.zeros(domains, dtype=torch.int64)
        self.latest = torch.full((domains,), torch.nan, dtype=torch.float64)
        self.proportions = torch.full((domains,), torch.nan, dtype=torch.float64)
        self._steps_seen = torch.zeros(domains, dtype=torch.int64)
        # Rings: the entry number i of a domain is in column i modulo their width.
        self._step = torch.full((domains, steps), -1, dtype=torch.int64)
        self._total = torch.zeros((domains, steps), dtype=torch.float64)
        self._number = torch.zeros((domains, steps), dtype=torch.int64)
        self._values = torch.full((domains, rollouts), torch.nan, dtype=torch.float32)
        self._pending: list[tuple[Tensor, Tensor, Tensor]] = []

    def __len__(self) -> int:
        """Number of domains D."""
        return len(self.names)

    @property
    def mean(self) -> Tensor:
        """`(D,)` float64 mean over the rollouts of the kept steps; NaN for a domain that was never generated."""
        return self._total.sum(dim=1) / self._number.sum(dim=1)

    @property
    def recent(self) -> Tensor:
        """`(D,)` float64 mean over the kept rollouts; NaN for a domain that was never generated."""
        return self._values.to(torch.float64).nanmean(dim=1)

    @property
    def slope(self) -> Tensor:
        """`(D,)` float64 least-squares slope of the mean scores of the kept steps, per step; 0 with fewer than two."""
        kept = self._step >= 0
        weight = kept.to(torch.float64)
        step = self._step.to(torch.float64) * weight
        score = torch.where(kept, self._total / self._number.clamp_min(1), 0.0)
        many = kept.sum(dim=1, keepdim=True).clamp_min(1)
        step = (step - step.sum(dim=1, keepdim=True) / many) * weight
        score = (score - score.sum(dim=1, keepdim=True) / many) * weight
        spread = step.square().sum(dim=1)
        return torch.where(spread > 0, (step * score).sum(dim=1) / spread, 0.0)

    def add(self, domain: Tensor, score: Tensor, order: Tensor) -> None:
        """Collect scores of the step that is running.

        Args:
            domain: `(N,)` int64 domain of each rollout.
            score: `(N,)` its score; NaN if it has none.
            order: `(N,)` int64 dataset row; rollouts count in the order of rows, and of scores within a row.
        """
        score = score.to(torch.float32) + 0.0  # two zeros that differ by their sign have no order
        scored = score.isfinite()
        self._pending.append((domain[scored], score[scored], order[scored]))

    def commit(self, step: int, proportions: Tensor) -> None:
        """Let what was collected take effect.

        Args:
            step: The step that ends.
            proportions: `(D,)` proportions by which it drew.
        """
        self.proportions = proportions.to(torch.float64).clone()
        self.latest = torch.full_like(self.latest, torch.nan)
        pending, self._pending = self._pending, []
        if not sum(len(score) for _, score, _ in pending):
            return
        domain, score = _in_order(*map(torch.cat, zip(*pending, strict=True)))
        size = len(self)
        number = torch.bincount(domain, minlength=size)
        total = torch.bincount(domain, weights=score.to(torch.float64), minlength=size)
        seen = number.nonzero().flatten()
        self.latest[seen] = total[seen] / number[seen]
        column = self._steps_seen[seen] % self._step.shape[1]
        self._step[seen, column] = step
        self._total[seen, column] = total[seen]
        self._number[seen, column] = number[seen]
        self._steps_seen[seen] += 1
        self._remember(domain, score, number)
        self.count += number

    def _remember(self, domain: Tensor, score: Tensor, number: Tensor) -> None:
        """Put the scores, which are sorted by domain, into the ring of the last ones."""
        width = self._values.shape[1]
        first = (number.cumsum(0) - number)[domain]
        rank = torch.arange(len(domain)) - first
        kept = rank >= number[domain] - width
        domain, rank, score = domain[kept], rank[kept], score[kept]
        self._values[domain, (self.count[domain] + rank) % width] = score

    def state_dict(self) -> dict[str, Any]:
        """Everything but what is collected for a step that has not ended."""
        return {"names": list(self.names), **{name.strip("_"): getattr(self, name).clone() for name in _STATE}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            ValueError: It is that of other domains or of other windows.
        """
        if list(self.names) != state.get("names"):
            raise ValueError(f"it is about the domains {state.get('names')}, and these are {list(self.names)}")
        read: dict[str, Tensor] = {}
        for name, dtype in _STATE.items():
            value, own = state.get(name.strip("_")), getattr(self, name)
            if not isinstance(value, Tensor) or value.dtype != dtype or value.shape != own.shape:
                raise ValueError(f"its {name.strip('_')!r} is not a {dtype} tensor of shape {tuple(own.shape)}")
            read[name] = value.clone()
        vars(self).update(read)
        self._pending = []


def _in_order(domain: Tensor, score: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted by domain, then dataset row, then score."""
    at = torch.arange(len(score))
    for key in (score, order, domain):
        at = at[torch.argsort(key[at], stable=True)]
    return domain[at], score[at]
