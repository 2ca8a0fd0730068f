"""Correct code: a type checker must have nothing to say about it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor
from typing_extensions import assert_type

import dataflex_events
from dataflex_events import (
    AdvantageComputed,
    Attachment,
    Batch,
    Event,
    EventBus,
    HandlerError,
    Observer,
    Reweighter,
    RolloutDone,
    RunEnd,
    RunStart,
    Scorer,
    ScoreReady,
    Selector,
    StepEnd,
    StepId,
    Subscription,
    make_plan,
    on,
    register,
)
from dataflex_events.segments import segment_reduce
from dataflex_events.testing import Recorder, make_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class MyEvent(Event):
    value: int


@on(StepEnd)
def log(event: StepEnd) -> None:
    print(event.step, event.metrics)


@on(AdvantageComputed, fields=["advantages", "response_mask"])
def weigh(event: AdvantageComputed) -> None:
    event.context.weigh(event.batch["advantages"].abs(), normalize="token")


@on(RunStart, RunEnd)
def any_event(event: Event) -> None:
    print(event.step)


class Watcher(Observer):
    @on(ScoreReady)
    def score(self, event: ScoreReady) -> None:
        print(event.scorer, event.scores.shape, event.batch.groups)

    @on(RunStart, StepEnd, RunEnd)
    def edges(self, event: Event) -> None:
        print(event.step)

    @on(RolloutDone, AdvantageComputed, fields=["reward"])
    def batches(self, event: RolloutDone | AdvantageComputed) -> None:
        print(event.batch["reward"], event.context.scores)

    @on(MyEvent)
    def mine(self, event: MyEvent) -> None:
        print(event.value)

    @staticmethod
    @on(StepEnd)
    def static(event: StepEnd) -> None:
        print(event.weights)


@register("my_scorer", aliases=["mine"])
@dataclass
class MyScorer(Scorer):
    fields: ClassVar[tuple[str, ...]] = ("advantages",)
    per: ClassVar[Literal["group", "row", "token"]] = "row"

    agg: Literal["mean", "max"] = "mean"

    def score(self, batch: Batch) -> Tensor:
        return segment_reduce(batch["advantages"], batch.offsets, self.agg)


@register("my_reweighter", aliases={"sharp": {"power": 2.0}})
@dataclass
class MyReweighter(Reweighter):
    power: Annotated[float, Field(gt=0)] = 1.0

    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        return scores.abs().pow(self.power)


@register("my_selector")
@dataclass
class MySelector(Selector):
    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        return scores > scores.mean()


def with_prefix(prefix: str, event: StepEnd) -> None:
    print(prefix, event.metrics)


def either(event: RolloutDone | AdvantageComputed) -> None:
    print(len(event.batch))


bus = EventBus(on_error="detach")
assert_type(bus.subscribe(StepEnd, log), Subscription[StepEnd])
bus.subscribe(StepEnd, lambda event: print(event.metrics["dataflex/weight_mean"]))
bus.subscribe(StepEnd, partial(with_prefix, "run 1"))
bus.subscribe(MyEvent, lambda event: print(event.value + 1))
bus.subscribe(RolloutDone, either)
bus.subscribe(AdvantageComputed, either)
assert_type(bus.attach(Watcher()), Attachment)
with bus.attach(any_event), bus.subscribe(RunEnd, any_event):
    bus.publish(MyEvent(step=StepId(1), value=3))
log(StepEnd(step=StepId(1), rollout=None, update=None, weights=None, metrics={}))
assert_type(MyScorer(agg="max").score(make_batch([[1.0, 0.0]])), Tensor)
assert_type(dataflex_events.Batch, type[Batch])
assert_type(Recorder(bus, StepEnd).names, list[str])
try:
    make_plan({"handlers": ["my_package.handlers:log"]})
except (HandlerError, dataflex_events.ConfigError) as error:
    print(error)
