"""A mix policy: a scorer whose scores are kept by domain, and a mixer that decides by them what is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.bus import Attachment, EventBus
from dataflex_events.components import Mixer, Scorer
from dataflex_events.context import ScorerKey
from dataflex_events.draw import normalized
from dataflex_events.events import AdvantageComputed, BufferSample, GroupsFinished, ScoreReady, StepEnd
from dataflex_events.shares import shares_of
from dataflex_events.stats import DomainStats

Unlisted = Literal["keep", "ignore"]
Initial = Literal["data", "uniform"] | dict[str, float]

# Backends draw a chart for each scalar.
MOST_LOGGED = 100


@dataclass(slots=True, eq=False)
class MixPolicy:
    """Decides, once a step, by which proportions the domains are drawn.

    What was generated up to the end of a step counts for the draws of the next one. All draws of a step, refills
    included, follow the same proportions, so that they do not depend on which rollout finished first.

    Attributes:
        name: Names the policy in logs.
        key: Identity of the scorer.
        scorer: Scores each generated rollout.
        mixer: Decides.
        domains: The domains that are drawn, or None for all that the data has.
        domain_key: The dataset column with the domain.
        unlisted: What happens to rows of other domains: they are domains too ("keep"), or never drawn ("ignore").
        initial: Proportions during the warm-up: those of the data, equal ones, or by name.
        warmup_step: Steps at the beginning of the run in which `initial` holds.
        update_step: From then on the mixer decides in one step of so many, and its decision holds until the next.
        shadow: Its decision is logged and not applied.
        path: Where it stands in the configuration.
        stats: What is known about the domains; there after `begin`.
        proportions: `(D,)` float64 in force; there after `begin`.
    """

    name: str
    key: ScorerKey
    scorer: Scorer
    mixer: Mixer
    domains: tuple[str, ...] | None = None
    domain_key: str = "domain"
    unlisted: Unlisted | None = None
    initial: Initial = "data"
    warmup_step: int = 0
    update_step: int = 1
    shadow: bool = False
    path: str = ""
    stats: DomainStats = field(init=False, repr=False)
    proportions: Tensor = field(init=False, repr=False)
    _rewards: DomainStats = field(init=False, repr=False)
    _generated: Tensor = field(init=False, repr=False)
    _shares: Tensor = field(init=False, repr=False)
    _drawn_at: int | None = field(default=None, init=False, repr=False)

    def begin(self, names: Sequence[str], shares: Tensor) -> None:
        """Learn the domains, before the first draw.

        Args:
            names: Names of the D domains.
            shares: `(D,)` their shares of the data.

        Raises:
            ValueError: The mixer's parameters, or `initial`, do not fit these domains.
        """
        mixer = self.mixer
        mixer.begin(names)
        self.stats = DomainStats(names, steps=mixer.keeps_steps, rollouts=mixer.keeps_rollouts)
        self.proportions = initial_proportions(self.initial, names, shares)
        self._shares = initial_proportions("data", names, shares)
        self._rewards = DomainStats(names)
        self._generated = torch.zeros(len(names), dtype=torch.int64)

    def subscribe(self, bus: EventBus) -> None:
        """Collect scores, decide at draws, let the statistics take effect at the end of a step."""
        owner = Attachment()
        seen, trained = ("domain", "reward", "row_id"), ("domain",)
        bus.subscribe(GroupsFinished, self._count, name=self.name, fields=seen, owner=owner)
        bus.subscribe(ScoreReady, self._collect, name=self.name, fields=seen, reads_at=GroupsFinished, owner=owner)
        bus.subscribe(BufferSample, self._decide, name=self.name, owner=owner)
        bus.subscribe(StepEnd, self._commit, name=self.name, fields=trained, reads_at=AdvantageComputed, owner=owner)

    def _count(self, event: GroupsFinished) -> None:
        batch = event.batch
        rollout = _rollouts(batch)
        domain = batch["domain"][rollout]
        self._rewards.add(domain, batch["reward"][rollout], batch["row_id"][rollout])
        self._generated += torch.bincount(domain, minlength=len(self._generated))

    def _collect(self, event: ScoreReady) -> None:
        if event.scorer == self.key and isinstance(event.source, GroupsFinished):
            batch = event.batch
            rollout = _rollouts(batch)
            self.stats.add(batch["domain"][rollout], event.scores[rollout], batch["row_id"][rollout])

    def _decide(self, event: BufferSample) -> None:
        step = event.step.global_step
        if event.step.is_due(self.warmup_step, self.update_step) and step != self._drawn_at:
            self.proportions = normalized(self.mixer.mix(self.stats), len(self.stats), self.name)
        self._drawn_at = step
        event.context.mix(self.proportions, shadow=self.shadow)

    def _commit(self, event: StepEnd) -> None:
        followed = self._shares if self.shadow else self.proportions
        for stats in (self.stats, self._rewards):
            stats.commit(event.step.global_step, followed)
        self.mixer.update(self.stats)
        kept = None if event.update is None else event.update.batch["domain"][_rollouts(event.update.batch)]
        event.metrics.update(self._metrics(kept))
        self._generated.zero_()

    def _metrics(self, kept: Tensor | None) -> dict[str, float]:
        shares = self.proportions
        entropy = -torch.special.xlogy(shares, shares).sum()
        metrics = {
            "dataflex/mix/largest": shares.max().item(),
            "dataflex/mix/smallest": shares.min().item(),
            "dataflex/mix/effective_domains": entropy.exp().item(),
        }
        if self.shadow:
            metrics[f"dataflex/policy/{self.name}/shadow"] = 1.0
        names = self.stats.names
        if len(names) > MOST_LOGGED:
            return metrics
        columns = {
            "dataflex/prop_{}": shares,
            "dataflex/reward_{}": self._rewards.latest,
            "dataflex/domain/{}/score": self.stats.latest,
            "dataflex/domain/{}/generated": self._generated,
        }
        if kept is not None:
            columns["dataflex/domain/{}/kept"] = torch.bincount(kept, minlength=len(names))
        for label, values in columns.items():
            known = values == values  # what was not generated has no score
            metrics |= {
                label.format(name): value
                for name, value, there in zip(names, values.tolist(), known.tolist(), strict=True)
                if there
            }
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Statistics and the proportions in force. The mixer has a state of its own."""
        return {"stats": self.stats.state_dict(), "proportions": self.proportions.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            ValueError: It is not the state of such a policy with these domains.
        """
        missing = {"stats", "proportions"} - state.keys()
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        normalized(state["proportions"], len(self.stats), self.name)  # a check: dividing again would change bits
        self.stats.load_state_dict(state["stats"])
        self.proportions = state["proportions"].clone()


def _rollouts(batch: Batch) -> Tensor:
    """`(N,)` bool, true for one row of each rollout: a session with several outputs is one.

    Rows that no domain has (-1) are generated only where the mix is not applied.
    """
    return batch.last_output & (batch["domain"] >= 0)


def initial_proportions(initial: Initial, names: Sequence[str], shares: Tensor) -> Tensor:
    """Proportions `(D,)` float64 with sum 1 that hold until the mixer decides.

    Raises:
        ValueError: A mapping that is not about these domains.
    """
    if initial == "data":
        return shares.to(torch.float64) / shares.sum()
    if initial == "uniform":
        return torch.full((len(names),), 1 / len(names), dtype=torch.float64)
    assert isinstance(initial, dict)
    return shares_of(initial, names)
