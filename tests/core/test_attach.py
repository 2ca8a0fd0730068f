"""`attach`: an object is attached whole or not at all, under names of its own."""

from dataclasses import dataclass
from types import ModuleType

import pytest

from dataflex_events import Event, EventBus, on


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Event):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong(Event):
    pass


@pytest.mark.parametrize("handler", [object(), lambda event: None, ModuleType("empty"), 3])
def test_an_object_with_nothing_marked_is_an_error(handler):
    with pytest.raises(TypeError, match="has nothing to attach: mark its functions with @on"):
        EventBus().attach(handler)


def test_a_class_is_an_error_that_says_to_make_an_instance():
    class Handler:
        @on(Ping)
        def handle(self, event):
            pass

    with pytest.raises(TypeError, match="make an instance"):
        EventBus().attach(Handler)


def test_an_object_is_attached_whole_or_not_at_all():
    class Handler:
        @on(Ping)
        def fine(self, event):
            pass

        @on(Ping)
        async def not_fine(self, event):
            pass

    bus = EventBus()
    with pytest.raises(TypeError, match="asynchronous"):
        bus.attach(Handler())
    assert not bus.has_subscribers(Ping)


def test_two_objects_of_one_class_have_names_of_their_own():
    class Handler:
        @on(Ping)
        def handle(self, event):
            pass

    bus = EventBus()
    first, second = bus.attach(Handler()), bus.attach(Handler())
    names = [attachment.subscriptions[0].name for attachment in (first, second)]
    assert names[1] == f"{names[0]}_2"


def test_a_given_name_is_shared_by_all_methods_of_an_object():
    class Handler:
        @on(Ping)
        def ping(self, event):
            pass

        @on(Pong)
        def pong(self, event):
            pass

    bus = EventBus()
    bus.attach(Handler(), name="mine")
    bus.attach(Handler(), name="mine")
    assert [name for _, name in bus.describe()] == ["mine", "mine", "mine_2", "mine_2"]
