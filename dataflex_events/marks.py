"""`@on` marks functions and methods as handlers of an event.

Whatever is wrong with a handler is found when it is marked or subscribed, not when the first event reaches it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any, Protocol, TypeVar, cast, overload

from dataflex_events.errors import FieldError, nearest
from dataflex_events.events import Event, GroupsFinished, RolloutDone, event_name
from dataflex_events.fields import ALWAYS, FIELDS, moment

E = TypeVar("E", bound=Event)
E2 = TypeVar("E2", bound=Event)
E3 = TypeVar("E3", bound=Event)
S = TypeVar("S")

_MARK = "_dataflex_on"


@overload
def on(event_type: type[E], /, *, fields: Iterable[str] = ()) -> _Mark[E]: ...
@overload
def on(event_type: type[E], second: type[E2], /, *, fields: Iterable[str] = ()) -> _Mark[E | E2]: ...
@overload
def on(
    event_type: type[E], second: type[E2], third: type[E3], /, *, fields: Iterable[str] = ()
) -> _Mark[E | E2 | E3]: ...
def on(*event_types: type[Event], fields: Iterable[str] = ()) -> _Mark[Any]:
    """Mark a function or method as handler of one or several events; `EventBus.attach` subscribes what is marked.

    Args:
        event_types: Classes of events. The handler must accept any of them.
        fields: Batch fields that the handler reads. Reading another one is an error.
    """
    if not event_types:
        raise TypeError("on() needs the class of the event that the function handles")
    marks: list[tuple[type[Event], frozenset[str]]] = []
    for event_type in event_types:
        check_event_type(event_type)
        marks.append((event_type, check_fields(fields, event_type)))

    def mark(fn: Any) -> Any:
        setattr(fn, _MARK, [*getattr(fn, _MARK, ()), *marks])
        return fn

    return cast("_Mark[Any]", mark)


class _Mark(Protocol[E]):
    """What `on` returns: accepts a function or a method whose event argument has the right type."""

    @overload
    def __call__(self, fn: Callable[[E], None]) -> Callable[[E], None]: ...
    @overload
    def __call__(self, fn: Callable[[S, E], None]) -> Callable[[S, E], None]: ...


Marks = list[tuple[type[Event], frozenset[str]]]


def marked(handler: object) -> Iterator[tuple[Callable[..., None], Marks]]:
    """All marked functions of an object or module in the order of their definition, base classes first.

    Raises:
        TypeError: A marked method is overridden by one that is not marked; it would be lost in silence.
    """
    if (own := _marks(handler)) is not None:
        yield cast("Callable[..., None]", handler), own
        return
    # dir() would sort by name and so decide the delivery order by spelling.
    scopes = [handler] if isinstance(handler, ModuleType) else list(reversed(type(handler).__mro__))
    found: list[object] = []
    for name in dict.fromkeys(name for scope in scopes for name in vars(scope)):
        member = inspect.getattr_static(handler, name)
        marks = _marks(member)
        if marks is None:
            if callable(member) and any(_marks(vars(scope).get(name)) is not None for scope in scopes):
                raise TypeError(f"{name_of(member)} overrides a handler and is not marked with @on itself")
        elif not any(member is other for other in found):  # one function may have two names
            found.append(member)
            yield getattr(handler, name), marks


def _marks(member: object) -> Marks | None:
    # `@on` above `@classmethod` marks the classmethod object, below it the function inside.
    own: Marks | None = getattr(member, _MARK, None)
    return own if own is not None else getattr(getattr(member, "__func__", None), _MARK, None)


def name_of(fn: object) -> str:
    """What a function is called in messages, if nobody gave it a name."""
    fn = _without_partials(fn)
    return str(getattr(fn, "__qualname__", type(fn).__qualname__))


def check_event_type(event_type: object) -> None:
    """Raise a `TypeError` for anything but the class of an event that can be published."""
    if event_type is Event:
        raise TypeError("Event is the base of all events and never published itself; name the events that you want")
    if not (isinstance(event_type, type) and issubclass(event_type, Event)):
        known = [cls.__name__ for cls in Event.__subclasses__()]
        given = event_type.__name__ if isinstance(event_type, type) else str(event_type)
        raise TypeError(f"{event_type!r} is not an event class{nearest(given, known)}")


def check_callable(fn: object) -> None:
    """Raise a `TypeError` for what cannot be called with an event, or would not run when it is."""
    if not callable(fn):
        raise TypeError(f"{fn!r} is not callable")
    target = _without_partials(fn)
    for call in (target, getattr(type(target), "__call__", None)):  # noqa: B004 - the method itself is wanted
        if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
            raise TypeError(f"handler {name_of(fn)!r} is asynchronous; a training step cannot wait for it")
        if inspect.isgeneratorfunction(call):
            raise TypeError(f"handler {name_of(fn)!r} is a generator; calling it would run nothing")
    try:
        inspect.signature(fn).bind(object())
    except ValueError:
        pass  # some built-in functions have no signature
    except TypeError as error:
        raise TypeError(f"handler {name_of(fn)!r} must take exactly one argument, the event") from error


def check_fields(fields: Iterable[str], event_type: type[Event]) -> frozenset[str]:
    """The declared fields as a set.

    Raises:
        FieldError: No run has such a field, or not yet at this event.
    """
    declared = frozenset([fields] if isinstance(fields, str) else fields)
    for name in sorted(declared):
        if name in ALWAYS:
            raise FieldError(f"{name!r} is an attribute of every batch (`batch.{name}`); it needs no declaration")
        exists_at = moment(name)
        if exists_at is None:
            raise FieldError(f"no run has a batch field {name!r}{nearest(name, FIELDS)}")
        if event_type in (GroupsFinished, RolloutDone) and exists_at != "rollout_done":
            message = f"the batch of {event_name(event_type)} has no {name!r} yet; it is there at {exists_at}"
            raise FieldError(message)
    return declared


def _without_partials(fn: object) -> object:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn
