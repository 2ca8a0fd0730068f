"""Handlers may publish; how deep is bounded."""

from dataclasses import dataclass

import pytest

from dataflex_events import DataflexError, Event, EventBus, StepId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(Event):
    pass


STEP = StepId(7)


def test_a_nested_event_is_delivered_before_publish_returns():
    log = []
    bus = EventBus()

    def relay(event):
        log.append("before")
        bus.publish(Pong(step=event.step))
        log.append("after")

    bus.subscribe(Ping, relay)
    bus.subscribe(Pong, lambda event: log.append("nested"))
    bus.subscribe(Ping, lambda event: log.append("next"))
    bus.publish(Ping(step=STEP))
    assert log == ["before", "nested", "after", "next"]


def test_endless_recursion_has_a_bound_and_a_clear_error():
    bus = EventBus()
    calls = []

    def echo(event):
        calls.append(event)
        bus.publish(event)

    subscription = bus.subscribe(Ping, echo, name="echo")
    with pytest.raises(DataflexError, match="ping was published 16 levels deep: handlers set each other off"):
        bus.publish(Ping(step=STEP))
    assert len(calls) == 16

    # The bus is as good as new, and depth is counted from zero again.
    subscription.close()
    bus.subscribe(Ping, lambda event: calls.append("fine"))
    for _ in range(20):
        bus.publish(Ping(step=STEP))
    assert calls[16:] == ["fine"] * 20


def test_fifteen_levels_are_still_allowed():
    bus = EventBus()
    depths = []

    def descend(event):
        depths.append(event.step.micro)
        if event.step.micro < 15:
            bus.publish(Ping(step=StepId(1, event.step.micro + 1)))

    bus.subscribe(Ping, descend)
    bus.publish(Ping(step=StepId(1, 1)))
    assert depths == list(range(1, 16))
