"""`@on`: everything that can be marked, and what cannot."""

from dataclasses import dataclass
from types import ModuleType

import pytest

from dataflex_events import AdvantageComputed, Event, EventBus, FieldError, StepId, on


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(Event):
    pass


PING, PONG = Ping(step=StepId(1)), Pong(step=StepId(1))


def deliver(handler, *events):
    bus = EventBus()
    bus.attach(handler)
    for event in events:
        bus.publish(event)
    return bus


def test_a_marked_function_is_still_a_function():
    log = []

    @on(Ping)
    def handler(event):
        log.append(event)

    handler("direct")
    deliver(handler, PING)
    assert log == ["direct", PING]


def test_one_function_may_handle_several_events():
    log = []

    @on(Ping)
    @on(Pong)
    def handler(event):
        log.append(type(event).__name__)

    deliver(handler, PING, PONG)
    assert log == ["Ping", "Pong"]


def test_methods_static_and_class_methods_whichever_decorator_is_on_top():
    log = []

    class Handler:
        @on(Ping)
        def method(self, event):
            log.append(("method", type(self)))

        @on(Ping)
        @classmethod
        def class_method(cls, event):
            log.append(("class method", cls))

        @classmethod
        @on(Ping)
        def marked_inside(cls, event):
            log.append(("class method, marked inside", cls))

        @on(Ping)
        @staticmethod
        def static_method(event):
            log.append(("static method", None))

        @staticmethod
        @on(Ping)
        def static_marked_inside(event):
            log.append(("static method, marked inside", None))

    deliver(Handler(), PING)
    assert log == [
        ("method", Handler),
        ("class method", Handler),
        ("class method, marked inside", Handler),
        ("static method", None),
        ("static method, marked inside", None),
    ]


def test_a_bound_method_can_be_attached_alone():
    log = []

    class Handler:
        @on(Ping)
        def one(self, event):
            log.append("one")

        @on(Ping)
        def other(self, event):
            log.append("other")

    deliver(Handler().other, PING)
    assert log == ["other"]


def test_the_marked_functions_of_a_module_run_in_the_order_of_their_definition():
    log = []
    module = ModuleType("my_handlers")
    source = """
from dataflex_events import Event, on
@on(Ping)
def zebra(event): log.append("zebra")
def unmarked(event): log.append("unmarked")
@on(Ping)
def apple(event): log.append("apple")
"""
    vars(module).update(Ping=Ping, log=log)
    exec(source, vars(module))
    deliver(module, PING)
    assert log == ["zebra", "apple"]


def test_a_function_with_two_names_is_attached_once():
    log = []

    class Handler:
        @on(Ping)
        def handle(self, event):
            log.append("once")

        same = handle

    deliver(Handler(), PING)
    assert log == ["once"]


def test_a_marked_method_must_not_be_overridden_by_one_that_is_not():
    class Base:
        @on(Ping)
        def handle(self, event):
            pass

        @on(Ping)
        def other(self, event):
            pass

    class Forgot(Base):
        def handle(self, event):
            pass

    class SwitchedOff(Base):
        handle = None

    with pytest.raises(TypeError, match=r"Forgot\.handle overrides a handler and is not marked with @on itself"):
        EventBus().attach(Forgot())
    assert len(deliver(SwitchedOff()).describe()) == 1


def test_properties_are_not_run_by_attaching():
    class Handler:
        @property
        def expensive(self):
            raise AssertionError("attach looked at a property")

        @on(Ping)
        def handle(self, event):
            pass

    assert deliver(Handler()).describe() == [("ping", f"{Handler.handle.__qualname__}")]


def test_mistakes_in_a_mark_are_found_where_it_stands():
    with pytest.raises(TypeError, match="not an event class"):
        on("ping")
    with pytest.raises(FieldError, match="did you mean 'advantages'"):
        on(AdvantageComputed, fields=["advantage"])
