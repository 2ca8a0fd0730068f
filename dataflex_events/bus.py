"""Typed event bus on blinker.

Promises, each with a test: delivery order is attachment order, in every process; what is attached stays attached;
subscribing or closing during a publish affects later publishes (a closed subscription is skipped at once); two buses
never see each other; nothing that a handler raises is swallowed.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Literal, TypeVar, cast, get_args

import blinker

from dataflex_events._current import running
from dataflex_events.errors import DataflexError, HandlerError
from dataflex_events.events import Event, GroupsFinished, RolloutDone, batches_of, event_name
from dataflex_events.fields import moment
from dataflex_events.marks import check_callable, check_event_type, check_fields, marked, name_of

E = TypeVar("E", bound=Event)
T = TypeVar("T")
OnError = Literal["raise", "detach"]

MAX_DEPTH = 16

logger = logging.getLogger("dataflex")


class _OrderedSet(dict[Hashable, None]):
    """Insertion-ordered stand-in for the set in which blinker keeps receivers; a set would deliver in any order."""

    def add(self, item: Hashable) -> None:
        self[item] = None

    def discard(self, item: Hashable) -> None:
        self.pop(item, None)

    def copy(self) -> _OrderedSet:
        return _OrderedSet(self)

    def __or__(self, other: Iterable[Hashable]) -> _OrderedSet:  # type: ignore[override]
        return _OrderedSet(dict.fromkeys([*self, *other]))


class _Signal(blinker.Signal):
    set_class = _OrderedSet  # type: ignore[assignment]


class Subscription(Generic[E]):
    """One handler attached to one event. Close it, or leave its `with` block, to detach."""

    __slots__ = ("_bus", "event_type", "failed", "fields", "fn", "name", "on_error", "owner", "reads_at")

    def __init__(
        self,
        bus: EventBus,
        event_type: type[E],
        fn: Callable[[E], None],
        name: str,
        fields: frozenset[str],
        reads_at: type[Event],
        on_error: OnError,
        owner: Attachment | None,
    ) -> None:
        self._bus = bus
        self.event_type = event_type
        self.fn = fn
        self.name = name
        self.fields = fields
        self.reads_at = reads_at
        self.on_error = on_error
        self.owner = owner
        self.failed = False

    def __call__(self, event: E) -> None:
        token = running.set(self.name)
        try:
            result: object = cast("Callable[[E], object]", self.fn)(event.only(self.fields, self.name))
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError("it returned a coroutine, which nobody awaits: a handler must not be asynchronous")
            if self.failed:  # while it ran, in an event that it set off itself
                event.discard(self.name)
        except HandlerError:
            raise  # wrapped where it happened, by a handler that this one set off
        except Exception as error:
            self._bus._failed(self, event, error)
        finally:
            running.reset(token)

    def close(self) -> None:
        """Detach. Closing twice is fine."""
        self._bus._close(self)

    def __enter__(self) -> Subscription[E]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Attachment:
    """All subscriptions of one attached object."""

    def __init__(self) -> None:
        self.subscriptions: list[Subscription[Any]] = []

    def close(self) -> None:
        """Detach the whole object. Closing twice is fine."""
        for subscription in self.subscriptions:
            subscription.close()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class EventBus:
    """Publish events to the handlers that subscribed to their class, in the order in which they were attached.

    Args:
        on_error: What happens when a handler raises: stop with a `HandlerError` ("raise"), or log the traceback, drop
            what the handler contributed to the event, detach it and go on ("detach").

    Attributes:
        errors: How often each handler was detached for raising.
    """

    def __init__(self, on_error: OnError = "raise") -> None:
        _check_on_error(on_error)
        self.on_error: OnError = on_error
        self.errors: Counter[str] = Counter()
        self._signals: dict[type[Event], _Signal] = {}
        self._subscriptions: dict[Subscription[Any], None] = {}
        self._depth = 0

    def subscribe(
        self,
        event_type: type[E],
        fn: Callable[[E], None],
        *,
        name: str | None = None,
        fields: Iterable[str] = (),
        reads_at: type[Event] | None = None,
        on_error: OnError | None = None,
        owner: Attachment | None = None,
    ) -> Subscription[E]:
        """Call `fn(event)` whenever an event of exactly this class is published.

        Args:
            event_type: The event's class.
            fn: Takes the event. Kept alive by the bus until the subscription is closed.
            name: Name in messages and of the handler's proposals; by default the function's qualified name. A number
                is added where another handler has it already.
            fields: Batch fields that `fn` reads.
            reads_at: The event at which the fields are fetched, for a `ScoreReady` handler; by default `event_type`.
            on_error: Overrides the bus's own.
            owner: The attachment that it belongs to: a handler is detached as a whole.

        Raises:
            TypeError: Not an event class, or `fn` is asynchronous or cannot take one argument.
            FieldError: A field that no run has, or not yet at this event.
        """
        check_event_type(event_type)
        check_callable(fn)
        _check_on_error(on_error or self.on_error)
        subscription = Subscription(
            self,
            event_type,
            fn,
            self._free_name(name or name_of(fn), owner),
            check_fields(fields, reads_at or event_type),
            reads_at or event_type,
            on_error or self.on_error,
            owner,
        )
        signal = self._signals.setdefault(event_type, _Signal())
        signal.connect(cast("Callable[..., Any]", subscription), weak=False)
        self._subscriptions[subscription] = None
        if owner is not None:
            owner.subscriptions.append(subscription)
        return subscription

    def attach(self, handler: object, *, name: str | None = None, on_error: OnError | None = None) -> Attachment:
        """Subscribe everything in `handler` that is marked with `@on`.

        Args:
            handler: A marked function, or an object or module with marked functions.
            name: Name for all of its subscriptions.
            on_error: Overrides the bus's own.

        Raises:
            TypeError: Nothing in it is marked.
        """
        attachment = Attachment()
        try:
            for fn, marks in marked(handler):
                label = name or self._free_name(name_of(fn), None)
                for event_type, fields in marks:
                    self.subscribe(event_type, fn, name=label, fields=fields, on_error=on_error, owner=attachment)
        except Exception:
            attachment.close()  # all of it or nothing
            raise
        if not attachment.subscriptions:
            hint = "make an instance and attach that" if isinstance(handler, type) else "mark its functions with @on"
            raise TypeError(f"{handler!r} has nothing to attach: {hint}")
        return attachment

    def publish(self, event: Event) -> None:
        """Deliver an event. Handlers may publish in turn; their events are delivered before this call returns.

        Raises:
            HandlerError: A handler raised, and its error policy is "raise".
            DataflexError: Handlers set each other off without end.
            TypeError: Not an event.
        """
        if not isinstance(event, Event):
            raise TypeError(f"{event!r} is not an event")
        signal = self._signals.get(type(event))
        if signal is None or not signal.receivers:
            return
        if self._depth >= MAX_DEPTH:
            where = f"{event_name(type(event))} was published {MAX_DEPTH} levels deep"
            raise DataflexError(f"{where}: handlers set each other off in a circle")
        with self._deeper():
            signal.send(event)

    def attempt(self, subscription: Subscription[Any], event: Event, action: Callable[[], T]) -> T | None:
        """Do what a subscription asked for while it handled an event, as if it did it itself.

        Returns:
            What `action` returned; None if it raised and the handler is detached for it.

        Raises:
            HandlerError: It raised, and the handler's error policy is "raise".
        """
        try:
            return action()
        except Exception as error:
            self._failed(subscription, event, error)
            return None

    def has_subscribers(self, event_type: type[Event]) -> bool:
        """True if publishing such an event would reach anybody."""
        signal = self._signals.get(event_type)
        return signal is not None and bool(signal.receivers)

    def fields(self, event_type: type[Event]) -> frozenset[str]:
        """All batch fields that handlers will read from the batch of such an event."""
        readers = (sub for sub in self._subscriptions if event_type in batches_of(sub.reads_at))
        wanted = frozenset[str]().union(*(sub.fields for sub in readers))
        if event_type in (GroupsFinished, RolloutDone):
            # Who listens to later events too may want what is not there yet.
            wanted = frozenset(name for name in wanted if moment(name) == "rollout_done")
        return wanted

    def describe(self) -> list[tuple[str, str]]:
        """`(event, handler)` of every subscription in attachment order."""
        return [(event_name(sub.event_type), sub.name) for sub in self._subscriptions]

    def close(self) -> None:
        """Detach everything."""
        for subscription in list(self._subscriptions):
            subscription.close()

    def _close(self, subscription: Subscription[Any]) -> None:
        if subscription in self._subscriptions:
            del self._subscriptions[subscription]
            self._signals[subscription.event_type].disconnect(cast("Callable[..., Any]", subscription))

    def _free_name(self, name: str, owner: Attachment | None) -> str:
        """Proposals are kept by handler name: two handlers with one name would overwrite each other's."""
        taken = {sub.name for sub in self._subscriptions if owner is None or sub.owner is not owner}
        count, candidate = 1, name
        while candidate in taken:
            count += 1
            candidate = f"{name}_{count}"
        return candidate

    def _failed(self, subscription: Subscription[Any], event: Event, error: Exception) -> None:
        where = f"handler {subscription.name!r} failed at {event_name(type(event))}, {event.step}"
        if subscription.on_error == "raise":
            raise HandlerError(f"{where}: {type(error).__name__}: {error}") from error
        logger.error("%s; it is detached and the run goes on without it", where, exc_info=error)
        self.errors[subscription.name] += 1
        whole = subscription.owner.subscriptions if subscription.owner else [subscription]
        for part in whole:
            part.failed = True
            event.discard(part.name)
            part.close()

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


def _check_on_error(on_error: str) -> None:
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error is {' or '.join(map(repr, get_args(OnError)))}, not {on_error!r}")
