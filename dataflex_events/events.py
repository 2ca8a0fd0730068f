"""The events of a training step.

An event is a frozen dataclass. Its class is the subscription key, its snake-case name is how configuration and log
messages call it. What a handler may write is decided by the type of the event's context.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor
from typing_extensions import Self

from dataflex_events.batch import Batch
from dataflex_events.context import BatchContext, GroupContext, ScorerKey, UpdateContext
from dataflex_events.draw import DrawContext
from dataflex_events.run import RunFacts


@dataclass(frozen=True, slots=True)
class StepId:
    """A step of training. `micro` counts the local updates of one step, where the trainer makes several."""

    global_step: int
    micro: int = 0

    def is_due(self, warmup: int, every: int) -> bool:
        """True in one step of `every`, the first of them right after `warmup` steps."""
        since = self.global_step - warmup - 1
        return since >= 0 and since % every == 0

    def __str__(self) -> str:
        return f"step {self.global_step}" + (f".{self.micro}" if self.micro else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events. Derive a frozen dataclass from it to add your own."""

    step: StepId

    def discard(self, handler: str) -> None:
        """Forget what `handler` wrote while it handled this event."""

    def only(self, fields: Iterable[str], reader: str) -> Self:
        """The event as seen by a handler that declared `fields`."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(Event):
    """Training is about to start. All handlers are attached."""

    run: RunFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd(Event):
    """Training has ended. `error` is the exception that ended it, if one did."""

    run: RunFacts
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferSample(Event):
    """Prompts are about to be drawn from the data, to be generated. Validation draws nothing.

    A mix policy writes by which proportions the domains are drawn, a gate policy its gate; other handlers may log.

    Attributes:
        count: How many prompts.
        pool_sizes: `(D,)` int64 rows of each domain of `context.domains`. Without a mix policy nobody knows the
            domains, and D is 0.
    """

    count: int
    pool_sizes: Tensor
    context: DrawContext

    def discard(self, handler: str) -> None:
        self.context.discard(handler)


Fate = Literal["finished", "failed", "stale", "filtered"]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Groups of rollouts, each generated from one prompt.

    Attributes:
        row_id: `(G,)` int64 dataset row of the prompt, -1 if unknown.
        fate: What became of each: "finished"; "failed" if a rollout failed; "stale" or "filtered" if the trainer throws
            it away because it is too old, or because its rewards are all equal. A group that is thrown away only
            because the batch was full before, or that a policy with `refill` drops, is "finished".
    """

    row_id: Tensor
    fate: tuple[Fate, ...]

    def __len__(self) -> int:
        """Number of groups G."""
        return len(self.fate)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsFinished(Event):
    """Groups are generated. Every group is here exactly once, before anything of it can be thrown away.

    What a filter or a selection will drop is included, and so are failed groups.

    Attributes:
        batch: The trajectories that there are, with rewards. `batch.uid` numbers the groups as in `groups`; those
            without any trajectory come last there.
        groups: The groups.
        context: Takes scores and metrics and, in a run with `refill`, which groups to keep.
    """

    batch: Batch
    groups: Groups
    context: GroupContext

    def discard(self, handler: str) -> None:
        self.context.discard(handler)

    def only(self, fields: Iterable[str], reader: str) -> Self:
        return replace(self, batch=self.batch.only(fields, reader))


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutDone(Event):
    """The training batch is assembled: trajectories and rewards, before log-probs and advantages.

    Handlers may write scores and which rows to keep. Rows that are not kept leave the batch before any compute.
    """

    batch: Batch
    context: BatchContext

    def discard(self, handler: str) -> None:
        self.context.discard(handler)

    def only(self, fields: Iterable[str], reader: str) -> Self:
        return replace(self, batch=self.batch.only(fields, reader))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageComputed(Event):
    """Advantages are there, critic and actor update are still to come.

    Handlers may write scores, weights and which rows to keep. Rows that are not kept get weight 0.
    """

    batch: Batch
    context: UpdateContext

    def discard(self, handler: str) -> None:
        self.context.discard(handler)

    def only(self, fields: Iterable[str], reader: str) -> Self:
        return replace(self, batch=self.batch.only(fields, reader))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreReady(Event):
    """A scorer's scores are there for the batch of `source`.

    Attributes:
        scorer: Which scorer.
        scores: `(N,)` or `(T,)` float32. Scores that are not finite are NaN.
        source: The event whose batch and context they belong to.
    """

    scorer: ScorerKey
    scores: Tensor
    source: GroupsFinished | RolloutDone | AdvantageComputed

    @property
    def batch(self) -> Batch:
        """The batch that was scored."""
        return self.source.batch

    def discard(self, handler: str) -> None:
        self.source.discard(handler)

    def only(self, fields: Iterable[str], reader: str) -> Self:
        return replace(self, source=self.source.only(fields, reader))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd(Event):
    """The step's update is done.

    Attributes:
        rollout: The resolved context of `RolloutDone`.
        update: The resolved context of `AdvantageComputed`.
        weights: `(T,)` float32 weights that were applied to the tokens of `update.batch`, or None if there were none.
        mask: `(T,)` bool, tokens of `update.batch` that stayed valid, or None if none were masked.
        metrics: Scalars of the step. What handlers add is logged with them.
    """

    rollout: BatchContext | None
    update: UpdateContext | None
    weights: Tensor | None
    metrics: dict[str, float]
    mask: Tensor | None = None

    def only(self, fields: Iterable[str], reader: str) -> Self:
        declared = frozenset(fields)
        rollout, update = self.rollout, self.update
        return replace(
            self,
            rollout=rollout and replace(rollout, batch=rollout.batch.only(declared, reader)),
            update=update and replace(update, batch=update.batch.only(declared, reader)),
        )


def batches_of(event_type: type[Event]) -> tuple[type[Event], ...]:
    """The events whose batches the handlers of an event can read."""
    if event_type is ScoreReady:
        return GroupsFinished, RolloutDone, AdvantageComputed
    return (AdvantageComputed,) if event_type is StepEnd else (event_type,)


def event_name(event_type: type[Event]) -> str:
    """Snake-case name of an event class: `RolloutDone` is `rollout_done`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", event_type.__name__).lower()
