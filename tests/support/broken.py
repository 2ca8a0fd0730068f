"""Handlers that fail in every way that one can: before, while and after they propose something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from dataflex_events import AdvantageComputed, Event, EventBus, RolloutDone, ScoreReady, StepEnd, on


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside(Event):
    pass


def keep_first(event: Any) -> None:
    event.context.keep(torch.arange(len(event.batch)) == 0)


def weigh_double(event: Any) -> None:
    event.context.weigh(torch.full((len(event.batch),), 2.0))


class FailsAfterKeeping:
    @on(RolloutDone)
    def handle(self, event: Any) -> None:
        keep_first(event)
        event.context.metric("broken/metric", 1.0)
        raise ValueError


class FailsAfterWeighing:
    @on(AdvantageComputed)
    def handle(self, event: Any) -> None:
        weigh_double(event)
        keep_first(event)
        raise ValueError


class FailsAtTheScoresOfOthers:
    @on(ScoreReady)
    def handle(self, event: Any) -> None:
        keep_first(event.source)
        raise ValueError


class FailsInAnotherMethod:
    """What one method proposed goes too: a handler is detached as a whole."""

    @on(AdvantageComputed)
    def first(self, event: Any) -> None:
        weigh_double(event)

    @on(AdvantageComputed)
    def second(self, event: Any) -> None:
        raise ValueError


class FailsWhileItsOtherMethodRuns:
    """The outer method proposes after the inner one has got the object detached."""

    def __init__(self, bus: EventBus) -> None:
        self.bus = bus

    @on(AdvantageComputed)
    def outer(self, event: Any) -> None:
        self.bus.publish(Aside(step=event.step))
        weigh_double(event)

    @on(Aside)
    def inner(self, event: Any) -> None:
        raise ValueError


class ReturnsNonsense:
    @on(AdvantageComputed)
    def handle(self, event: Any) -> None:
        event.context.weigh(torch.full((len(event.batch),), float("nan")))


class ReadsTooMuch:
    @on(AdvantageComputed)
    def handle(self, event: Any) -> None:
        weigh_double(event)
        event.batch["values"]


class FailsAtTheEnd:
    @on(StepEnd)
    def handle(self, event: Any) -> None:
        raise ValueError


BROKEN = [
    FailsAfterKeeping,
    FailsAfterWeighing,
    FailsAtTheScoresOfOthers,
    FailsInAnotherMethod,
    FailsWhileItsOtherMethodRuns,
    ReturnsNonsense,
    ReadsTooMuch,
    FailsAtTheEnd,
]
