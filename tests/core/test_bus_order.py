"""Delivery order is attachment order, for every permutation and in every process."""

import functools
import itertools
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest

from dataflex_events import Event, EventBus, StepId, on


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(Event):
    pass


PING = Ping(step=StepId(1))


class Slotted:
    """Cannot be weakly referenced, which is why blinker's own default would refuse it."""

    __slots__ = ("label", "log")

    def __init__(self, log, label):
        self.log, self.label = log, label

    def __call__(self, event):
        self.log.append(self.label)

    def method(self, event):
        self.log.append(self.label)


def append(log, label, event):
    log.append(label)


def make(kind, log, label):
    def function(event):
        log.append(label)

    return {
        "function": function,
        "method": Slotted(log, label).method,
        "partial": functools.partial(append, log, label),
        "lambda": lambda event: log.append(label),
        "slotted": Slotted(log, label),
    }[kind]


KINDS = ["function", "method", "partial", "lambda", "slotted"]


@pytest.mark.parametrize("kinds", list(itertools.combinations(KINDS, 4)), ids=",".join)
def test_order_is_attachment_order_for_every_permutation(kinds):
    for order in itertools.permutations(kinds):
        log = []
        handlers = {kind: make(kind, log, kind) for kind in kinds}  # made in another order than attached
        bus = EventBus()
        for kind in order:
            bus.subscribe(Ping, handlers[kind])
        bus.publish(PING)
        assert log == list(order)


def test_closing_and_attaching_again_goes_to_the_end():
    log = []
    bus = EventBus()
    first = bus.subscribe(Ping, make("function", log, "first"))
    bus.subscribe(Ping, make("function", log, "second"))
    first.close()
    bus.subscribe(Ping, first.fn)
    bus.publish(PING)
    assert log == ["second", "first"]


def test_one_function_attached_twice_is_called_twice():
    log = []
    handler = make("function", log, "handler")
    bus = EventBus()
    first, _ = bus.subscribe(Ping, handler), bus.subscribe(Ping, handler)
    bus.publish(PING)
    assert log == ["handler", "handler"]
    first.close()
    bus.publish(PING)
    assert len(log) == 3


def test_order_is_the_same_in_every_process():
    # Python's hash seed moves objects and reorders sets; a bus that kept handlers in a set would follow it.
    program = textwrap.dedent(
        """
        from dataflex_events import EventBus, RunStart, RunFacts, StepId
        log = []
        class Handler:
            def __init__(self, label): self.label = label
            def method(self, event): log.append(self.label)
        bus = EventBus()
        for label in ["scorer", "actuator", "writer", "logger", "a", "b", "c", "d"]:
            bus.subscribe(RunStart, Handler(label).method)
        bus.publish(RunStart(step=StepId(0), run=RunFacts()))
        print(*log)
        """
    )
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1")
    ]
    for run in runs:
        assert run.communicate()[0].split() == ["scorer", "actuator", "writer", "logger", "a", "b", "c", "d"]


def test_methods_of_one_object_run_in_the_order_of_their_definition():
    log = []

    class Base:
        @on(Ping)
        def zebra(self, event):
            log.append("base zebra")

        @on(Ping)
        def apple(self, event):
            log.append("base apple")

    class Child(Base):
        @on(Ping)
        def mango(self, event):
            log.append("child mango")

        @on(Ping)
        def apple(self, event):  # replaces the base's, in the base's place
            log.append("child apple")

    bus = EventBus()
    bus.attach(Child())
    bus.publish(PING)
    assert log == ["base zebra", "child apple", "child mango"]


def test_only_the_exact_class_is_delivered():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class LoudPing(Ping):
        pass

    log = []
    bus = EventBus()
    bus.subscribe(Ping, lambda event: log.append("ping"))
    bus.subscribe(LoudPing, lambda event: log.append("loud"))
    bus.publish(LoudPing(step=StepId(1)))
    assert log == ["loud"]


def test_two_buses_do_not_see_each_other():
    log = []
    one, other = EventBus(), EventBus()
    one.subscribe(Ping, lambda event: log.append("one"))
    other.subscribe(Ping, lambda event: log.append("other"))
    one.publish(PING)
    assert log == ["one"]
    one.close()
    other.publish(PING)
    assert log == ["one", "other"]


def test_publishing_without_subscribers_is_fine():
    bus = EventBus()
    bus.publish(PING)
    assert not bus.has_subscribers(Ping)
    subscription = bus.subscribe(Ping, lambda event: None)
    assert bus.has_subscribers(Ping)
    assert not bus.has_subscribers(Pong)
    subscription.close()
    assert not bus.has_subscribers(Ping)
    bus.publish(PING)


def test_describe_lists_event_and_handler_in_attachment_order():
    bus = EventBus()
    bus.subscribe(Pong, lambda event: None, name="second")
    bus.subscribe(Ping, lambda event: None, name="first")
    assert bus.describe() == [("pong", "second"), ("ping", "first")]
