"""Selector `gfpo`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from dataflex_events import Batch, Selector, register
from dataflex_events.components import Baseline, SelectorScope
from dataflex_events.segments import group_moments, group_rank, group_reduce, quantiles, segment_reduce

logger = logging.getLogger("dataflex")


@register("gfpo")
@dataclass
class Gfpo(Selector):
    """Of each group keep the k rollouts that are shortest, or have the most reward per token: GFPO (arXiv 2508.09726).

    It reads reward and length itself; of its scorer it takes only which rows have a score: name `reward`. Length is the
    number of valid tokens (`response_mask` 1) of all outputs of a session; for "efficiency" an empty response counts as
    one. Of equally good rollouts the lower row number wins. A row without a score or a finite reward is never kept.

    With `adaptive`, k depends on the group's mean reward against the quartiles of groups of earlier steps; a group on a
    quartile counts as the harder. Constants and baselines follow accounts of the paper, not the paper itself.

    Attributes:
        k: Rollouts to keep of each group; at least 2 with `advantages: subset`, since a lone one has no baseline.
        metric: "efficiency" (highest reward / length; warns of negative rewards, where longer is higher) or "short".
        adaptive: Keep more of hard groups than of easy ones.
        adaptive_k: Rollouts to keep of very hard, hard, easy and very easy groups.
        warmup_steps: Steps with `k` before `adaptive` begins.
        history: Groups to remember.
        advantages: "subset" for baselines of the kept rows, as in the paper; "full" for those of the whole group.
    """

    fields: ClassVar[tuple[str, ...]] = ("reward", "response_mask")
    scope: ClassVar[SelectorScope] = "within_group"

    k: PositiveInt
    metric: Literal["efficiency", "short"] = "efficiency"
    adaptive: bool = False
    adaptive_k: tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt] = (8, 8, 6, 4)
    warmup_steps: Annotated[int, Field(ge=0)] = 10
    history: PositiveInt = 4096
    advantages: Baseline = "subset"

    _steps: int = field(default=0, init=False, repr=False, compare=False)
    _means: list[float] = field(default_factory=list, init=False, repr=False, compare=False)
    _warned: bool = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.advantages == "subset" and min([self.k, *self.adaptive_k] if self.adaptive else [self.k]) < 2:
            raise ValueError("a lone rollout has no baseline: keep at least 2 of a group, or say `advantages: full`")

    def baseline(self) -> Baseline:
        return self.advantages

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        reward = batch["reward"].to(torch.float64)
        length = group_reduce(segment_reduce(batch["response_mask"], batch.offsets, "sum"), batch.session, "sum")
        known = reward.isfinite() & batch.last_output
        candidates = known & scores.isfinite()
        if self.metric == "efficiency" and not self._warned and bool((reward[candidates] < 0).any()):
            logger.warning("gfpo: rewards are negative; per token, a longer failure then ranks above a shorter one")
            self._warned = True
        merit = -length if self.metric == "short" else reward / length.clamp_min(1)
        rank = group_rank(merit, batch.uid, candidates, descending=True)
        k = self._adapted(reward, batch, known) if self.adaptive else self.k
        return group_reduce(candidates & (rank < k), batch.session, "max") > 0

    def _adapted(self, reward: Tensor, batch: Batch, known: Tensor) -> Tensor | int:
        """k for each row's group; then remember the groups."""
        k: Tensor | int = self.k
        mean, _ = group_moments(reward, batch.uid, known)
        if self._steps >= self.warmup_steps and self._means:
            easier = mean[:, None] > quantiles(mean.new_tensor(self._means), [0.25, 0.5, 0.75])
            k = torch.tensor(self.adaptive_k, device=mean.device)[easier.sum(1)]
        by_group = mean.new_full((batch.groups,), float("nan")).scatter(0, batch.uid[known], mean[known])
        self._means = [*self._means, *by_group[by_group.isfinite()].tolist()][-self.history :]
        self._steps += 1
        return k

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._steps, "means": list(self._means)} if self.adaptive else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not self.adaptive:
            return super().load_state_dict(state)
        if state.keys() != {"steps", "means"}:
            raise ValueError(f"the state of an adaptive gfpo is 'steps' and 'means', not {sorted(state)}")
        self._steps, self._means = int(state["steps"]), [*map(float, state["means"])][-self.history :]
