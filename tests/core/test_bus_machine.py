"""Random sequences of subscribe, close and publish, with handlers that raise, publish and close, against a model."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from dataflex_events import Event, EventBus, HandlerError, StepId


@dataclass(frozen=True, slots=True, kw_only=True)
class A(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class B(Event):
    pass


class Model:
    """What the bus promises, in a few lines: ordered lists, a copy for each publish, skip who has left meanwhile."""

    def __init__(self, detach):
        self.detach, self.handlers, self.trace, self.errors = detach, [], [], 0

    def publish(self, kind):
        for handler in [handler for handler in self.handlers if handler.kind is kind]:
            if handler in self.handlers:
                self.trace.append(handler.number)
                try:
                    handler.act(self)
                except ZeroDivisionError:
                    if not self.detach:
                        raise
                    self.errors += 1
                    self.handlers.remove(handler)


@dataclass(eq=False)
class Handler:
    number: int
    kind: type[Event]
    action: str
    victim: "Handler | None"

    def act(self, world):
        if self.action == "raise":
            raise ZeroDivisionError
        if self.action == "nest" and self.kind is A:
            world.publish(B)
        if self.action == "close" and self.victim in world.handlers:
            world.handlers.remove(self.victim)


class Real:
    """The same interface on a bus, so that one `act` serves both."""

    def __init__(self, detach):
        self.bus, self.trace, self.subscriptions = EventBus("detach" if detach else "raise"), [], {}

    @property
    def handlers(self):
        return self

    def __contains__(self, handler):
        return handler in self.subscriptions

    def remove(self, handler):
        self.subscriptions[handler].close()

    def append(self, handler):
        def call(event):
            self.trace.append(handler.number)
            handler.act(self)

        self.subscriptions[handler] = self.bus.subscribe(handler.kind, call)

    def publish(self, kind):
        self.bus.publish(kind(step=StepId(1)))


class BusMachine(RuleBasedStateMachine):
    detach = False

    def __init__(self):
        super().__init__()
        self.made, self.model, self.real = [], Model(self.detach), Real(self.detach)

    @rule(kind=st.sampled_from([A, B]), action=st.sampled_from(["", "", "raise", "nest", "close"]), data=st.data())
    def subscribe(self, kind, action, data):
        victim = data.draw(st.sampled_from(self.made)) if self.made else None
        handler = Handler(len(self.made), kind, action, victim)
        self.made.append(handler)
        for world in (self.model, self.real):
            world.handlers.append(handler)

    @precondition(lambda self: self.made)
    @rule(data=st.data())
    def close(self, data):
        handler = data.draw(st.sampled_from(self.made))
        if handler in self.model.handlers:
            self.model.handlers.remove(handler)
        self.real.handlers.remove(handler)  # closing again must be fine

    @rule(kind=st.sampled_from([A, B]))
    def publish(self, kind):
        failed = False
        try:
            self.model.publish(kind)
        except ZeroDivisionError:
            failed = True
        if failed:
            with pytest.raises(HandlerError):
                self.real.publish(kind)
        else:
            self.real.publish(kind)
        assert self.real.trace == self.model.trace
        assert sum(self.real.bus.errors.values()) == self.model.errors


class DetachingBusMachine(BusMachine):
    detach = True


TestRaise = BusMachine.TestCase
TestDetach = DetachingBusMachine.TestCase
TestRaise.settings = TestDetach.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
