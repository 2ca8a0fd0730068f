"""Publishes the events of training steps and resolves what the handlers proposed. Knows no trainer.

A trainer's adapter calls it from its hooks; tests call it with a batch made by hand (`dataflex_events.testing`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.bus import EventBus
from dataflex_events.context import (
    Baseline,
    BatchContext,
    Context,
    GroupContext,
    ScorerKey,
    UpdateContext,
    carry_scores,
)
from dataflex_events.draw import DrawContext, DrawDecision
from dataflex_events.events import (
    AdvantageComputed,
    BufferSample,
    Groups,
    GroupsFinished,
    RolloutDone,
    RunEnd,
    RunStart,
    StepEnd,
    StepId,
)
from dataflex_events.metrics import keep_metrics, loggable, reward_metrics, token_metrics, weight_metrics
from dataflex_events.refill import Account, resolve_groups
from dataflex_events.resolve import KeepDecision, UpdateDecision, resolve_keep, resolve_update
from dataflex_events.run import RunFacts


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """What one step decided.

    Attributes:
        keep: `(N,)` bool, the rows that stayed in the batch, or None if nobody asked to drop any.
        weights: `(T',)` float32 for the tokens of the rows that stayed, or None if nobody asked for any.
        metrics: Scalars to log.
        mask: `(T',)` bool, response tokens that stayed valid, or None if nobody asked to mask any.
    """

    keep: Tensor | None
    weights: Tensor | None
    metrics: dict[str, float]
    mask: Tensor | None = None


class StepDriver:
    """Takes a step from event to event, in this order: `rollout_done`, `advantage_computed`, `step_end`.

    Before them, or in an asynchronous trainer at any time, come `buffer_sample` and `groups_finished`.

    Args:
        bus: Where handlers are attached.
        run: Facts about the run.
        baseline: Over which rows of a group the trainer computes the baseline of a selection: those that are kept
            ("subset"), all ("full"), or as it comes: what was dropped before is not there, the rest is (None).
        shadow: Resolve and log what the handlers propose, and decide nothing.
        refills: Groups that handlers drop when they are finished are replaced by fresh ones.

    Attributes:
        account: Why groups were dropped when they were finished, since the last step's end.
    """

    def __init__(
        self,
        bus: EventBus,
        run: RunFacts,
        *,
        baseline: Baseline | None = None,
        shadow: bool = False,
        refills: bool = False,
    ) -> None:
        self.bus = bus
        self.run = run
        self._baseline = baseline
        self._shadow = shadow
        self._refills = refills
        self.account = Account()
        self._shown: Tensor | None = None  # rows that a selection would have left, where it only shows what it would do
        self._begin: float | None = None
        self._rollout: BatchContext | None = None
        self._update: UpdateContext | None = None
        self._weights: Tensor | None = None
        self._mask: Tensor | None = None
        self._before: list[Context] = []  # of draws and finished groups since the last step's end
        self._seconds = 0.0

    @property
    def draws(self) -> bool:
        """True if somebody listens to `BufferSample`."""
        return self.bus.has_subscribers(BufferSample)

    @property
    def watches_groups(self) -> bool:
        """True if somebody listens to `GroupsFinished`."""
        return self.bus.has_subscribers(GroupsFinished)

    @property
    def knows_rows(self) -> bool:
        """True if somebody reads which row of the dataset a rollout is of."""
        moments = (GroupsFinished, RolloutDone, AdvantageComputed)
        return self.watches_groups or any("row_id" in self.bus.fields(event) for event in moments)

    @property
    def group_fields(self) -> frozenset[str]:
        """Batch fields that handlers read at `GroupsFinished`."""
        return self.bus.fields(GroupsFinished)

    @property
    def rollout_fields(self) -> frozenset[str]:
        """Batch fields that handlers read at `RolloutDone`; none if nobody listens there."""
        if not self.bus.has_subscribers(RolloutDone):
            return frozenset()
        return self.bus.fields(RolloutDone) | {"reward"}  # the reward before a selection is logged

    @property
    def update_fields(self) -> frozenset[str]:
        """Batch fields that handlers read at `AdvantageComputed`. Weights need the response mask as well."""
        return self.bus.fields(AdvantageComputed) | {"response_mask"}

    def start(self) -> None:
        """Announce the run."""
        self.bus.publish(RunStart(step=StepId(0), run=self.run))

    def end(self, step: StepId, error: BaseException | None = None) -> None:
        """Announce the end of the run."""
        self.bus.publish(RunEnd(step=step, run=self.run, error=error))

    def buffer_sample(
        self, step: StepId, count: int, domains: Sequence[str] = (), pool_sizes: Tensor | None = None
    ) -> DrawDecision:
        """Publish `BufferSample` and resolve how to draw.

        Args:
            step: The step.
            count: How many prompts are to be drawn.
            domains: Names of the D domains.
            pool_sizes: `(D,)` int64 rows of each.
        """
        with self.timed():
            context = DrawContext(tuple(domains))
            sizes = torch.zeros(len(domains), dtype=torch.int64) if pool_sizes is None else pool_sizes
            self._before.append(context)
            self.bus.publish(BufferSample(step=step, count=count, pool_sizes=sizes, context=context))
            return context.resolve(shadow=self._shadow)

    def groups_finished(self, step: StepId, batch: Batch, groups: Groups) -> Tensor | None:
        """Publish `GroupsFinished` and resolve which groups stay.

        Returns:
            `(G,)` bool, or None if nobody proposed anything.
        """
        with self.timed():
            context = GroupContext(batch, refills=self._refills)
            self._before.append(context)
            self.bus.publish(GroupsFinished(step=step, batch=batch, groups=groups, context=context))
            kept = resolve_groups(context, groups)
            if kept is not None:
                self.account.add(context, kept)
            return None if self._shadow else kept

    def rollout_done(self, step: StepId, batch: Batch) -> KeepDecision:
        """Publish `RolloutDone` and resolve which rows stay."""
        with self.timed():
            self._rollout = context = BatchContext(batch)
            self.bus.publish(RolloutDone(step=step, batch=batch, context=context))
            regroup = self.run.group_baseline and self._baseline != "full"
            decision = resolve_keep(context, regroup=regroup)
            context.metrics.update(reward_metrics(batch) | keep_metrics(decision, len(batch)))
            if self._shadow:
                self._shown = decision.keep
                return KeepDecision(None)
            return decision

    def advantage_computed(self, step: StepId, batch: Batch, rows: Tensor | None = None) -> UpdateDecision:
        """Publish `AdvantageComputed` and resolve what counts in the update, and how much.

        Args:
            step: The step.
            batch: The rows that are left, in any order.
            rows: `(M,)` int64, the row numbers that they had at `RolloutDone`. By default all, in the same order.

        Raises:
            ValueError: `rows` does not name one row for each row of the batch.
        """
        with self.timed():
            scores: dict[ScorerKey, Tensor] = {}
            if self._rollout is not None:
                before = self._rollout.batch
                rows = torch.arange(len(before), device=before.offsets.device) if rows is None else rows
                if len(rows) != len(batch):
                    raise ValueError(f"the batch has {len(batch)} rows, but `rows` names {len(rows)} of rollout_done's")
                if self._shown is not None:  # the rows are all here still; handlers see those that would be
                    left = self._shown[rows].nonzero().flatten()
                    batch, rows = batch.take(left), rows[left]
                scores = carry_scores(self._rollout.scores, before, rows)
            self._update = context = UpdateContext(batch, scores=scores)
            self.bus.publish(AdvantageComputed(step=step, batch=batch, context=context))
            mask = batch["response_mask"].to(torch.bool)
            regroup = self.run.group_baseline and self._baseline == "subset"
            decision = resolve_update(context, mask, self.run.loss_agg_mode, regroup=regroup)
            self._weights, self._mask = decision.weights, decision.mask
            if decision.weights is not None:
                counting = mask if decision.mask is None else decision.mask
                context.metrics.update(weight_metrics(decision.weights[counting]))
            generated = len(batch) if self._rollout is None else len(self._rollout.batch)
            context.metrics.update(keep_metrics(decision, generated, earlier=self._rollout))
            context.metrics.update(token_metrics(decision, mask))
            return UpdateDecision(None) if self._shadow else decision

    def step_end(self, step: StepId) -> dict[str, float]:
        """Publish `StepEnd` and hand over all scalars of the step."""
        metrics: dict[str, float] = {}
        with self.timed():
            for context in (*self._before, self._rollout, self._update):
                for name, value in (context.metrics if context is not None else {}).items():
                    counted = name.startswith("dataflex/nonfinite/")
                    metrics[name] = value + metrics.get(name, 0.0) * counted
            self.bus.publish(
                StepEnd(
                    step=step,
                    rollout=self._rollout,
                    update=self._update,
                    weights=self._weights,
                    metrics=metrics,
                    mask=self._mask,
                )
            )
        metrics["dataflex/handler_errors"] = float(sum(self.bus.errors.values()))
        metrics["timing_s/dataflex"] = self._seconds
        if self._shadow:
            metrics["dataflex/shadow"] = 1.0
        self._reset()
        return loggable(metrics)

    def step(self, step: StepId, batch: Batch) -> StepResult:
        """A whole step over a batch that already holds every field, advantages included."""
        decision = self.rollout_done(step, batch)
        rows = None if decision.keep is None else decision.keep.nonzero().flatten()
        update = self.advantage_computed(step, batch if rows is None else batch.take(rows), rows)
        return StepResult(decision.keep, update.weights, self.step_end(step), update.mask)

    def _reset(self) -> None:
        self._rollout = self._update = self._weights = self._mask = self._shown = None
        self._before = []
        self.account = Account()
        self._seconds = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count the time spent inside as ours (`timing_s/dataflex`). May be nested."""
        begin = self._begin
        self._begin = begin or time.perf_counter()
        try:
            yield
        finally:
            if begin is None:
                self._seconds += time.perf_counter() - self._begin
                self._begin = None
