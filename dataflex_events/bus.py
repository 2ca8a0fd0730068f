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
from types import ModuleType
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, overload

import blinker

from dataflex_events._current import running
from dataflex_events.errors import DataflexError, FieldError, HandlerError, nearest
from dataflex_events.events import Event, event_name
from dataflex_events.fields import FIELDS

E = TypeVar("E", bound=Event)
S = TypeVar("S")
OnError = Literal["raise", "detach"]

MAX_DEPTH = 16
_MARK = "_dataflex_on"

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

    __slots__ = ("_bus", "fields", "fn", "event_type", "name", "on_error", "owner", "reads_at")

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

    def __call__(self, event: E) -> None:
        token = running.set(self.name)
        try:
            self.fn(event.only(self.fields, self.name))
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


def on(event_type: type[E], *, fields: Iterable[str] = ()) -> _Mark[E]:
    """Mark a function or method as handler of an event; `EventBus.attach` subscribes what is marked.

    Args:
        event_type: The event's class.
        fields: Batch fields that the handler reads. Reading another one is an error.
    """
    _check_event_type(event_type)
    declared = _check_fields(fields)

    def mark(fn: Any) -> Any:
        setattr(fn, _MARK, [*getattr(fn, _MARK, ()), (event_type, declared)])
        return fn

    return cast("_Mark[E]", mark)


class _Mark(Protocol[E]):
    """What `on` returns: accepts a function or a method whose event argument has the right type."""

    @overload
    def __call__(self, fn: Callable[[E], None]) -> Callable[[E], None]: ...
    @overload
    def __call__(self, fn: Callable[[S, E], None]) -> Callable[[S, E], None]: ...


class EventBus:
    """Publish events to the handlers that subscribed to their class, in the order in which they were attached.

    Args:
        on_error: What happens when a handler raises: stop with a `HandlerError` ("raise"), or log the traceback, drop
            what the handler contributed to the event, detach it and go on ("detach").
    """

    def __init__(self, on_error: OnError = "raise") -> None:
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
            name: Name in messages and of the handler's proposals; by default the function's qualified name.
            fields: Batch fields that `fn` reads.
            reads_at: The event at which the fields are fetched, for a `ScoreReady` handler; by default `event_type`.
            on_error: Overrides the bus's own.
            owner: The attachment that it belongs to: a handler is detached as a whole.

        Raises:
            TypeError: Not an event class, or `fn` is asynchronous or cannot take one argument.
            FieldError: A field that no run has.
        """
        _check_event_type(event_type)
        _check_callable(fn)
        subscription = Subscription(
            self,
            event_type,
            fn,
            name or _name_of(fn),
            _check_fields(fields),
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
        for fn, marks in _marked(handler):
            for event_type, fields in marks:
                label = name or _name_of(fn)
                self.subscribe(event_type, fn, name=label, fields=fields, on_error=on_error, owner=attachment)
        if not attachment.subscriptions:
            raise TypeError(f"{handler!r} has nothing to attach: mark its functions with @on(Event)")
        return attachment

    def publish(self, event: Event) -> None:
        """Deliver an event. Handlers may publish in turn; their events are delivered before this call returns.

        Raises:
            HandlerError: A handler raised, and its error policy is "raise".
            DataflexError: Handlers set each other off without end.
        """
        signal = self._signals.get(type(event))
        if signal is None or not signal.receivers:
            return
        if self._depth >= MAX_DEPTH:
            raise DataflexError(
                f"{event_name(type(event))} was published {MAX_DEPTH} levels deep: handlers set each other off in a circle"
            )
        with self._deeper():
            signal.send(event)

    def has_subscribers(self, event_type: type[Event]) -> bool:
        """True if publishing such an event would reach anybody."""
        signal = self._signals.get(event_type)
        return signal is not None and bool(signal.receivers)

    def fields(self, event_type: type[Event]) -> frozenset[str]:
        """All batch fields that handlers will read from the batch of such an event."""
        wanted = (sub.fields for sub in self._subscriptions if sub.reads_at is event_type)
        return frozenset[str]().union(*wanted)

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

    def _failed(self, subscription: Subscription[Any], event: Event, error: Exception) -> None:
        where = f"handler {subscription.name!r} failed at {event_name(type(event))}, {event.step}"
        if subscription.on_error == "raise":
            raise HandlerError(f"{where}: {type(error).__name__}: {error}") from error
        logger.error("%s; it is detached and the run goes on without it", where, exc_info=error)
        self.errors[subscription.name] += 1
        event.discard(subscription.name)
        (subscription.owner or subscription).close()

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1


def _marked(handler: object) -> Iterator[tuple[Callable[..., None], list[tuple[type[Event], frozenset[str]]]]]:
    if hasattr(handler, _MARK):
        yield cast("Callable[..., None]", handler), getattr(handler, _MARK)
        return
    # Definition order, base classes first: dir() would sort by name and so decide the delivery order by spelling.
    scopes = [handler] if isinstance(handler, ModuleType) else reversed(type(handler).__mro__)
    names = dict.fromkeys(name for scope in scopes for name in vars(scope))
    for name in names:
        member = inspect.getattr_static(handler, name)
        marks = getattr(getattr(member, "__func__", member), _MARK, None)
        if marks is not None:
            yield getattr(handler, name), marks


def _name_of(fn: object) -> str:
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))


def _check_event_type(event_type: object) -> None:
    if not (isinstance(event_type, type) and issubclass(event_type, Event)):
        known = [cls.__name__ for cls in Event.__subclasses__()]
        raise TypeError(f"{event_type!r} is not an event class{nearest(str(event_type), known)}")


def _check_callable(fn: object) -> None:
    if not callable(fn):
        raise TypeError(f"{fn!r} is not callable")
    target = inspect.unwrap(fn)
    call = getattr(type(fn), "__call__", None)  # noqa: B004 - the method itself is wanted
    if inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(call):
        raise TypeError(f"handler {_name_of(fn)!r} is asynchronous; a training step cannot wait for it")
    try:
        inspect.signature(fn).bind(object())
    except TypeError as error:
        raise TypeError(f"handler {_name_of(fn)!r} must take exactly one argument, the event") from error


def _check_fields(fields: Iterable[str]) -> frozenset[str]:
    declared = frozenset([fields] if isinstance(fields, str) else fields)
    for name in sorted(declared - FIELDS.keys()):
        raise FieldError(f"no run has a batch field {name!r}{nearest(name, FIELDS)}")
    return declared
