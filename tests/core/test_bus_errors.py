"""What happens when a handler raises."""

import logging
import pickle
from dataclasses import dataclass

import pytest

from dataflex_events import Event, EventBus, HandlerError, StepId, on


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(Event):
    pass


STEP = StepId(7, micro=2)


def fail(event):
    raise ValueError("no such luck")


class Nested:
    """Publishes an event whose handler fails."""

    def __init__(self, bus):
        self.bus = bus

    def relay(self, event):
        self.bus.publish(Pong(step=event.step))


def test_raise_names_handler_event_and_step_and_chains_the_cause():
    bus = EventBus()
    bus.subscribe(Ping, fail, name="unlucky")
    with pytest.raises(HandlerError) as caught:
        bus.publish(Ping(step=STEP))
    assert str(caught.value) == "handler 'unlucky' failed at ping, step 7.2: ValueError: no such luck"
    assert isinstance(caught.value.__cause__, ValueError)


def test_after_an_error_no_later_handler_runs():
    log = []
    bus = EventBus()
    bus.subscribe(Ping, lambda event: log.append("before"))
    bus.subscribe(Ping, fail)
    bus.subscribe(Ping, lambda event: log.append("after"))
    with pytest.raises(HandlerError):
        bus.publish(Ping(step=STEP))
    assert log == ["before"]


def test_a_nested_error_is_wrapped_once_where_it_happened():
    bus = EventBus()
    bus.subscribe(Ping, Nested(bus).relay, name="outer")
    bus.subscribe(Pong, fail, name="inner")
    with pytest.raises(HandlerError) as caught:
        bus.publish(Ping(step=STEP))
    assert str(caught.value).startswith("handler 'inner' failed at pong")
    assert "outer" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("on_error", ["raise", "detach"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_ends_the_process_passes_unwrapped(kind, on_error):
    def stop(event):
        raise kind

    bus = EventBus(on_error)
    bus.subscribe(Ping, Nested(bus).relay)
    bus.subscribe(Pong, stop)
    with pytest.raises(kind):
        bus.publish(Ping(step=STEP))
    assert not bus.errors


def test_detach_logs_the_traceback_once_counts_and_goes_on(caplog):
    log = []
    bus = EventBus("detach")
    bus.subscribe(Ping, fail, name="unlucky")
    bus.subscribe(Ping, lambda event: log.append("after"))
    with caplog.at_level(logging.DEBUG, logger="dataflex"):
        bus.publish(Ping(step=STEP))
        bus.publish(Ping(step=STEP))
    assert log == ["after", "after"]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().startswith("handler 'unlucky' failed at ping, step 7.2; it is detached")
    assert record.exc_info[0] is ValueError
    assert bus.errors == {"unlucky": 1}
    assert [name for _, name in bus.describe()] == [
        "test_detach_logs_the_traceback_once_counts_and_goes_on.<locals>.<lambda>"
    ]


def test_detach_closes_the_whole_object_and_nothing_else():
    log = []

    class Handler:
        @on(Ping)
        def ping(self, event):
            raise ValueError

        @on(Pong)
        def pong(self, event):
            log.append("pong")

    bus = EventBus("detach")
    bus.attach(Handler())
    other = bus.attach(Handler())
    bus.publish(Pong(step=STEP))
    assert log == ["pong", "pong"]
    other.close()
    bus.publish(Ping(step=STEP))
    bus.publish(Pong(step=STEP))
    assert log == ["pong", "pong"]


def test_detach_in_a_nested_event_lets_the_outer_handler_finish():
    log = []
    bus = EventBus("detach")
    relay = Nested(bus).relay

    def outer(event):
        relay(event)
        log.append("outer finished")

    bus.subscribe(Ping, outer)
    bus.subscribe(Pong, fail)
    bus.subscribe(Pong, lambda event: log.append("inner neighbour"))
    bus.publish(Ping(step=STEP))
    assert log == ["inner neighbour", "outer finished"]


def test_a_handler_may_have_a_policy_of_its_own():
    strict = EventBus("detach")
    strict.subscribe(Ping, fail, on_error="raise")
    with pytest.raises(HandlerError):
        strict.publish(Ping(step=STEP))

    lenient = EventBus("raise")
    lenient.subscribe(Ping, fail, on_error="detach")
    lenient.publish(Ping(step=STEP))
    assert sum(lenient.errors.values()) == 1


def test_the_bus_is_usable_after_an_error():
    log = []
    bus = EventBus()
    bus.subscribe(Ping, Nested(bus).relay)
    failing = bus.subscribe(Pong, fail)
    for _ in range(20):  # more often than the nesting bound
        with pytest.raises(HandlerError, match="ValueError"):
            bus.publish(Ping(step=STEP))
    failing.close()
    bus.subscribe(Pong, lambda event: log.append("pong"))
    bus.publish(Ping(step=STEP))
    assert log == ["pong"]


def test_an_error_survives_pickling():
    bus = EventBus()
    bus.subscribe(Ping, fail, name="unlucky")
    with pytest.raises(HandlerError) as caught:
        bus.publish(Ping(step=STEP))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
