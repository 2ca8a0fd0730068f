"""What is wrong with a handler is said when it is subscribed, not when the first event reaches it."""

import functools
from dataclasses import dataclass

import pytest

from dataflex_events import AdvantageComputed, Event, EventBus, FieldError, RolloutDone, ScoreReady, StepEnd, StepId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping(Event):
    pass


async def coroutine_function(event):
    pass


async def async_generator(event):
    yield


def generator(event):
    yield


class AsyncCall:
    async def __call__(self, event):
        pass


class Methods:
    async def asynchronous(self, event):
        pass

    def too_few(self):
        pass

    def too_many(self, event, other):
        pass

    def keyword_only(self, *, event):
        pass

    def fits(self, event, other=None):
        pass


ASYNCHRONOUS = {
    "coroutine function": coroutine_function,
    "async generator": async_generator,
    "async __call__": AsyncCall(),
    "async method": Methods().asynchronous,
    "partial of a coroutine function": functools.partial(coroutine_function),
    "partial of an async __call__": functools.partial(functools.partial(AsyncCall())),
}


@pytest.mark.parametrize("handler", ASYNCHRONOUS.values(), ids=ASYNCHRONOUS)
def test_asynchronous_handlers_are_rejected(handler):
    with pytest.raises(TypeError, match="asynchronous"):
        EventBus().subscribe(Ping, handler)


def test_a_generator_is_rejected_because_calling_it_runs_nothing():
    with pytest.raises(TypeError, match="'generator' is a generator"):
        EventBus().subscribe(Ping, generator)


def test_a_coroutine_that_only_shows_when_called_is_an_error_then():
    bus = EventBus()
    bus.subscribe(Ping, lambda event: coroutine_function(event), name="sneaky")
    with pytest.raises(Exception, match="'sneaky' failed at ping, step 1: TypeError: it returned a coroutine"):
        bus.publish(Ping(step=StepId(1)))


@pytest.mark.parametrize("handler", [Methods().too_few, Methods().too_many, Methods().keyword_only, Methods.fits])
def test_handlers_that_do_not_take_exactly_one_argument_are_rejected(handler):
    with pytest.raises(TypeError, match="must take exactly one argument, the event"):
        EventBus().subscribe(Ping, handler)


def test_what_is_not_callable_is_rejected():
    with pytest.raises(TypeError, match="is not callable"):
        EventBus().subscribe(Ping, {})


@pytest.mark.parametrize("handler", [Methods().fits, lambda *events: None, [].append, set().add, print])
def test_handlers_that_can_take_one_argument_are_accepted(handler):
    bus = EventBus()
    bus.subscribe(Ping, handler)
    assert bus.has_subscribers(Ping)


def test_a_class_that_is_no_event_is_rejected_with_the_nearest_one():
    class RolloutDon:
        pass

    with pytest.raises(TypeError, match=r"is not an event class \(did you mean 'RolloutDone'\?\)"):
        EventBus().subscribe(RolloutDon, print)
    with pytest.raises(TypeError, match=r"'rollout_done' is not an event class"):
        EventBus().subscribe("rollout_done", print)


def test_the_base_of_all_events_is_rejected_because_nobody_publishes_it():
    with pytest.raises(TypeError, match="never published"):
        EventBus().subscribe(Event, print)


def test_a_rejected_handler_leaves_nothing_behind():
    bus = EventBus()
    with pytest.raises(TypeError):
        bus.subscribe(Ping, coroutine_function)
    assert not bus.has_subscribers(Ping)
    assert bus.describe() == []


def test_publishing_what_is_no_event_is_an_error():
    with pytest.raises(TypeError, match="is not an event"):
        EventBus().publish(Ping)  # the class instead of an instance


def test_unknown_fields_are_rejected_with_the_nearest_one():
    with pytest.raises(FieldError, match=r"'advantage'.*did you mean 'advantages'"):
        EventBus().subscribe(AdvantageComputed, print, fields=["advantage"])


def test_fields_may_be_given_as_one_string():
    bus = EventBus()
    bus.subscribe(AdvantageComputed, print, fields="advantages")
    assert bus.fields(AdvantageComputed) == {"advantages"}


def test_fields_that_come_later_are_rejected_at_rollout_done():
    with pytest.raises(FieldError, match="rollout_done has no 'advantages' yet; it is there at advantage_computed"):
        EventBus().subscribe(RolloutDone, print, fields=["advantages"])


def test_attributes_of_every_batch_need_no_declaration():
    with pytest.raises(FieldError, match=r"'length' is an attribute of every batch \(`batch.length`\)"):
        EventBus().subscribe(RolloutDone, print, fields=["length"])


def test_fields_are_the_union_over_all_readers_of_an_event():
    bus = EventBus()
    bus.subscribe(RolloutDone, print, fields=["reward"])
    bus.subscribe(AdvantageComputed, print, fields=["advantages"])
    bus.subscribe(StepEnd, print, fields=["response_mask"])  # reads the batch of the update
    policy = bus.subscribe(ScoreReady, print, fields=["rm_scores"], reads_at=RolloutDone)
    assert bus.fields(RolloutDone) == {"reward", "rm_scores"}
    assert bus.fields(AdvantageComputed) == {"advantages", "response_mask"}
    policy.close()
    assert bus.fields(RolloutDone) == {"reward"}


def test_a_plain_score_handler_reads_at_both_events_what_is_there():
    bus = EventBus()
    bus.subscribe(ScoreReady, print, fields=["domain", "entropy"])
    assert bus.fields(RolloutDone) == {"domain"}
    assert bus.fields(AdvantageComputed) == {"domain", "entropy"}


def test_an_unknown_error_policy_is_rejected():
    with pytest.raises(ValueError, match="on_error is 'raise' or 'detach', not 'ignore'"):
        EventBus(on_error="ignore")
    with pytest.raises(ValueError, match="not 'ignore'"):
        EventBus().subscribe(Ping, print, on_error="ignore")


def test_handlers_of_one_name_get_names_of_their_own():
    # Proposals are kept by name: with one name, the second handler would replace the first one's.
    bus = EventBus()
    for _ in range(2):
        bus.subscribe(Ping, lambda event: None, name="band")
    assert bus.describe() == [("ping", "band"), ("ping", "band_2")]


def test_a_handler_is_called_after_its_function():
    bus = EventBus()
    bus.subscribe(Ping, Methods().fits)
    bus.subscribe(Ping, functools.partial(print))
    assert [name for _, name in bus.describe()] == ["Methods.fits", "print"]
