"""A policy: one scorer, one actuator, and where in the step the actuator acts."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from dataflex_events._current import current_handler
from dataflex_events.bus import Attachment, EventBus
from dataflex_events.components import Handler, Reweighter, Scorer, Selector
from dataflex_events.context import Apply, Baseline, BatchContext, Normalize, ScorerKey, Unit, UpdateContext
from dataflex_events.errors import HandlerOutputError
from dataflex_events.events import AdvantageComputed, GroupsFinished, RolloutDone, ScoreReady
from dataflex_events.fields import first_moment
from dataflex_events.gating import GatePolicy
from dataflex_events.marks import marked
from dataflex_events.mixing import MixPolicy
from dataflex_events.parameters import parameters
from dataflex_events.refill import Refill

logger = logging.getLogger("dataflex")


@dataclass(frozen=True, slots=True)
class Policy:
    """A scorer whose scores an actuator turns into weights or into a choice of rows.

    Attributes:
        name: Unique in the run; names the policy in logs and metrics.
        key: Identity of the scorer. Policies with equal keys share one.
        scorer: Scores the batch.
        actuator: Acts on the scores.
        acts_at: Where it acts. A selector drops rows at `RolloutDone` and gives them weight 0 at `AdvantageComputed`;
            a reweighter acts at `AdvantageComputed`.
        normalize: How its weights, or what a selection leaves, are normalised.
        apply: What becomes of what it does not keep at `AdvantageComputed`.
        baseline: Over which rows of a group it wants the group's baseline.
        warmup_step: Steps at the beginning of the run in which it does nothing.
        update_step: From then on it acts in one step of so many.
        shadow: It acts, and logs what it does, and nothing is applied.
        refill: How groups that it drops are replaced by fresh ones; None: they are not.
        path: Where it stands in the configuration.
    """

    name: str
    key: ScorerKey
    scorer: Scorer
    actuator: Reweighter | Selector
    acts_at: type[RolloutDone] | type[AdvantageComputed]
    normalize: Normalize = "auto"
    apply: Apply = "weight"
    baseline: Baseline | None = None
    warmup_step: int = 0
    update_step: int = 1
    shadow: bool = False
    refill: Refill | None = None
    path: str = field(default="", compare=False)

    @property
    def refills(self) -> bool:
        """True if groups that it drops are replaced."""
        return self.refill is not None and not self.shadow

    def subscribe(self, bus: EventBus) -> None:
        """Act whenever the scorer's scores are ready at the right event."""
        owner = Attachment()
        for act, moment in ((self._act, self.acts_at), *[(self._sift, GroupsFinished)] * self.refills):
            bus.subscribe(ScoreReady, act, name=self.name, fields=self.actuator.fields, reads_at=moment, owner=owner)

    def _is_asked(self, event: ScoreReady) -> bool:
        return event.scorer == self.key and event.step.is_due(self.warmup_step, self.update_step)

    def _sift(self, event: ScoreReady) -> None:
        """Tell which groups stay, as soon as they are finished."""
        source = event.source
        if (
            event.scorer != self.key
            or not isinstance(source, GroupsFinished)
            or not event.step.is_due(self.warmup_step, self.update_step)
        ):
            return
        assert isinstance(self.actuator, Selector)
        source.context.keep(self.actuator.select(event.scores, event.batch), scores=event.scores)

    def _act(self, event: ScoreReady) -> None:
        if (
            event.scorer != self.key
            or not isinstance(event.source, self.acts_at)
            or not event.step.is_due(self.warmup_step, self.update_step)
        ):
            return
        context, prefix = event.source.context, f"dataflex/policy/{self.name}"
        finite = event.scores[event.scores.isfinite()].to(torch.float64)
        if len(finite):
            context.metric(f"{prefix}/score_mean", finite.mean().item())
            context.metric(f"{prefix}/score_std", finite.std(correction=0).item())
        # A twin takes the proposals of a shadow policy: they are checked like any other, and go no further.
        target = type(context)(context.batch) if self.shadow else context
        if self.shadow:
            context.shadows[current_handler()] = target
            context.metric(f"{prefix}/shadow", 1.0)
        if isinstance(self.actuator, Selector):
            kept = self.actuator.select(event.scores, event.batch)
            self._keep(target, kept, event.scores)
            if len(kept):
                context.metric(f"{prefix}/kept_frac", kept.to(torch.float64).mean().item())
        elif isinstance(target, UpdateContext):
            weights = self.actuator.weigh(event.scores, event.batch)
            target.weigh(weights, normalize=self.normalize, per=self._unit(weights, event.scores))
            if len(weights):
                context.metric(f"{prefix}/weight_mean", weights.to(torch.float64).mean().item())
                context.metric(f"{prefix}/weight_std", weights.to(torch.float64).std(correction=0).item())

    def _keep(self, target: BatchContext, kept: Tensor, scores: Tensor) -> None:
        if isinstance(target, UpdateContext):
            unit = self._unit(kept, scores)
            target.keep(kept, apply=self.apply, normalize=self.normalize, per=unit)
        else:
            target.keep(kept)

    def _unit(self, values: Tensor, scores: Tensor) -> Unit | None:
        """The shape says what there is one value for, unless the batch has as many rows as tokens."""
        like_scores = getattr(values, "shape", None) == scores.shape
        unit: Unit = "token" if self.key.per == "token" else "row"
        return unit if like_scores else None


class ScorerNode:
    """Runs one scorer once a step, as early as its fields allow, and announces its scores where they are needed.

    A score that exists at `RolloutDone` is computed there, on whole groups. At `AdvantageComputed` the same scores are
    announced again for the rows that are left. For a mix policy, and for one that replaces what it drops, all groups
    are scored when they are finished.
    """

    def __init__(self, key: ScorerKey, scorer: Scorer) -> None:
        self.key = key
        self.at_groups = self.acts = False  # whether somebody asks for it at finished groups, or for the batch
        self._scorer = scorer
        self._warned = False

    def subscribe(self, bus: EventBus) -> None:
        """Subscribe to the events at which its scores are needed and it can run."""
        self._bus = bus
        early = first_moment(self._scorer.fields) == "rollout_done"
        name, fields, owner = str(self.key), self._scorer.fields, Attachment()
        if self.at_groups:
            bus.subscribe(GroupsFinished, self._run, name=name, fields=fields, owner=owner)
        if not self.acts:
            return
        if early:
            bus.subscribe(RolloutDone, self._run, name=name, fields=fields, owner=owner)
        # An early scorer reads nothing more here: its scores are carried over.
        bus.subscribe(AdvantageComputed, self._run, name=name, fields=() if early else fields, owner=owner)

    def _run(self, event: GroupsFinished | RolloutDone | AdvantageComputed) -> None:
        scores = event.context.scores.get(self.key)
        if scores is None:
            scores = self._checked(self._scorer.score(event.batch), event)
            event.context.scores[self.key] = scores
        self._bus.publish(ScoreReady(step=event.step, scorer=self.key, scores=scores, source=event))

    def _checked(self, scores: Tensor, event: GroupsFinished | RolloutDone | AdvantageComputed) -> Tensor:
        rows, tokens = len(event.batch), event.batch.tokens
        expected = (tokens,) if self._scorer.per == "token" else (rows,)
        if not isinstance(scores, Tensor) or scores.shape != expected:
            shape = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise HandlerOutputError(f"scorer {self.key} returned {shape}, expected a tensor of shape {expected}")
        scores = scores.to(torch.float32)
        finite = scores.isfinite()
        missing = int((~finite).sum())
        if missing:
            metric = f"dataflex/nonfinite/{self.key.name}"  # another scorer may share the name
            event.context.metric(metric, event.context.metrics.get(metric, 0.0) + missing)
            if not self._warned:
                what = "tokens" if self._scorer.per == "token" else "rows"
                logger.warning(
                    "%s: scorer %s has no score for %d of %d %s", event.step, self.key, missing, len(scores), what
                )
                self._warned = True
        return scores.where(finite, scores.new_full((), float("nan")))


def subscribe_policies(
    bus: EventBus, policies: Iterable[Policy], mix: MixPolicy | None = None, gate: GatePolicy | None = None
) -> None:
    """Attach policies to a bus. Actuators come before scorers, so that all are there when scores are announced."""
    nodes: dict[ScorerKey, ScorerNode] = {}
    policies = list(policies)
    listed: list[Handler] = [part for policy in policies for part in (policy.scorer, policy.actuator)]
    listed += [] if mix is None else [mix.scorer, mix.mixer]
    listed += [] if gate is None else [gate.gate]
    parts = {id(part): part for part in listed}
    for part in parts.values():
        if any(marked(part)):  # it listens to events of its own, for example to `RunStart`
            bus.attach(part)
    for policy in policies:
        policy.subscribe(bus)
        node = nodes.setdefault(policy.key, ScorerNode(policy.key, policy.scorer))
        node.acts, node.at_groups = True, node.at_groups or policy.refills
    if mix is not None:
        mix.subscribe(bus)
        nodes.setdefault(mix.key, ScorerNode(mix.key, mix.scorer)).at_groups = True
    if gate is not None:
        gate.subscribe(bus)
    for node in nodes.values():
        node.subscribe(bus)


def scorer_key(name: str, scorer: Scorer) -> ScorerKey:
    """The identity of a scorer with all of its parameters."""
    params = ((label, getattr(scorer, label)) for label in sorted(parameters(type(scorer))))
    return ScorerKey(name, ", ".join(f"{label}={value!r}" for label, value in params), scorer.per)
