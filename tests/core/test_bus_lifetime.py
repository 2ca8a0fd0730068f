"""What is attached stays attached until it is closed; closing and attaching during a publish."""

import gc
import weakref
from dataclasses import dataclass

from dataflex_events import Event, EventBus, StepId, on


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Event):
    pass


PING = Ping(step=StepId(1))


class Counter:
    def __init__(self, log):
        self.log = log

    @on(Ping)
    def count(self, event):
        self.log.append("object")


def test_a_handler_does_not_vanish_with_its_last_other_reference():
    log = []
    bus = EventBus()
    bus.subscribe(Ping, lambda event: log.append("lambda"))
    bus.subscribe(Ping, Counter(log).count)  # a bound method of a temporary
    bus.attach(Counter(log))
    gc.collect()
    bus.publish(PING)
    assert log == ["lambda", "object", "object"]


def test_a_closed_handler_is_let_go():
    counter = Counter([])
    gone = weakref.ref(counter)
    bus = EventBus()
    attachment = bus.attach(counter)
    del counter
    gc.collect()
    assert gone() is not None
    attachment.close()
    del attachment
    gc.collect()
    assert gone() is None


def test_closing_twice_is_fine():
    log = []
    bus = EventBus()
    subscription = bus.subscribe(Ping, lambda event: log.append("one"))
    attachment = bus.attach(Counter(log))
    for _ in range(2):
        subscription.close()
        attachment.close()
        bus.close()
    bus.publish(PING)
    assert log == []
    assert bus.describe() == []


def test_closing_one_subscription_twice_leaves_its_successor_alone():
    log = []
    bus = EventBus()
    handler = log.append
    first = bus.subscribe(Ping, handler)
    first.close()
    bus.subscribe(Ping, handler)
    first.close()
    bus.publish(PING)
    assert log == [PING]


def test_a_with_block_closes():
    log = []
    bus = EventBus()
    with bus.subscribe(Ping, lambda event: log.append("one")), bus.attach(Counter(log)):
        bus.publish(PING)
    bus.publish(PING)
    assert log == ["one", "object"]


def test_close_detaches_everything():
    log = []
    bus = EventBus()
    bus.subscribe(Ping, lambda event: log.append("one"))
    bus.attach(Counter(log))
    bus.close()
    bus.publish(PING)
    assert log == []


def test_who_is_attached_during_a_publish_waits_for_the_next():
    log = []
    bus = EventBus()

    def recruit(event):
        log.append("recruit")
        if len(log) == 1:
            bus.subscribe(Ping, lambda event: log.append("late"))

    bus.subscribe(Ping, recruit)
    bus.publish(PING)
    assert log == ["recruit"]
    bus.publish(PING)
    assert log == ["recruit", "recruit", "late"]


def test_who_is_closed_during_a_publish_is_skipped_at_once():
    log = []
    bus = EventBus()
    later = []
    bus.subscribe(Ping, lambda event: later[0].close())
    later.append(bus.subscribe(Ping, lambda event: log.append("closed")))
    bus.subscribe(Ping, lambda event: log.append("last"))
    bus.publish(PING)
    assert log == ["last"]


def test_a_handler_may_close_itself():
    log = []
    bus = EventBus()
    own = []

    def once(event):
        log.append("once")
        own[0].close()

    own.append(bus.subscribe(Ping, once))
    bus.subscribe(Ping, lambda event: log.append("last"))
    bus.publish(PING)
    bus.publish(PING)
    assert log == ["once", "last", "last"]


def test_closing_the_bus_during_a_publish_stops_the_rest():
    log = []
    bus = EventBus()
    bus.subscribe(Ping, lambda event: bus.close())
    bus.subscribe(Ping, lambda event: log.append("never"))
    bus.publish(PING)
    assert log == []
