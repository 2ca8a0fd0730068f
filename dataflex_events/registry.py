"""Components by kind and name. Built-in ones and those of other packages register in the same way."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, TypeVar

from dataflex_events.components import Handler, Mixer, Observer, Reweighter, Scorer, Selector
from dataflex_events.errors import DataflexError, nearest
from dataflex_events.gate import Gate

ENTRY_POINTS = "dataflex_events.handlers"

KINDS: dict[str, type[Handler]] = {
    "scorer": Scorer,
    "reweighter": Reweighter,
    "selector": Selector,
    "mixer": Mixer,
    "gate": Gate,
    "observer": Observer,
}

H = TypeVar("H", bound=type[Handler])


@dataclass(frozen=True, slots=True)
class Entry:
    """A registered name.

    Attributes:
        component: The class behind it.
        name: The component's own name; differs from the registered one for an alias.
        preset: Parameters that an alias sets, where the user does not.
    """

    component: type[Handler]
    name: str
    preset: Mapping[str, Any] = field(default_factory=dict)


_entries: dict[str, dict[str, Entry]] = {kind: {} for kind in KINDS}
_loaded = False


def register(name: str, *, aliases: Iterable[str] | Mapping[str, Mapping[str, Any]] = ()) -> Callable[[H], H]:
    """Make a component available to configuration under a name. Its kind is its base class.

    Args:
        name: Its name.
        aliases: Other names, or a mapping from other names to the parameters that they preset.

    Raises:
        DataflexError: The name is taken by another component, or the class is of no kind.
    """

    def add(component: H) -> H:
        kind = kind_of(component)
        presets = aliases if isinstance(aliases, Mapping) else {alias: {} for alias in aliases}
        added = {label: Entry(component, name, preset) for label, preset in {name: {}, **presets}.items()}
        for label in added:
            taken = _entries[kind].get(label)
            if taken is not None and _origin(taken.component) != _origin(component):
                raise DataflexError(f"the {kind} name {label!r} is taken by {':'.join(_origin(taken.component))}")
        _entries[kind].update(added)
        return component

    return add


def kind_of(component: type) -> str:
    """The kind of a component class.

    Raises:
        DataflexError: It derives from none of the component bases.
    """
    for kind, base in KINDS.items():
        if isinstance(component, type) and issubclass(component, base):
            return kind
    bases = ", ".join(base.__name__ for base in KINDS.values())
    raise DataflexError(f"{component!r} is not a component: derive it from one of {bases}")


def find(kind: str, name: str) -> Entry:
    """Look a component up by registered name or by import string `module:Class`.

    Raises:
        DataflexError: There is none; the message names the nearest known one.
    """
    if ":" in name:
        component = import_object(name)
        if not (isinstance(component, type) and issubclass(component, KINDS[kind])):
            raise DataflexError(f"{name!r} is not a {KINDS[kind].__name__} class")
        return Entry(component, name)
    known = names(kind)
    if name not in known:
        others = [f"a {other}" for other in KINDS if name in names(other)]
        hint = f" (it is {' and '.join(others)})" if others else nearest(name, known)
        raise DataflexError(f"unknown {kind} {name!r}{hint}")
    return known[name]


def names(kind: str) -> Mapping[str, Entry]:
    """All registered names of a kind, aliases included."""
    load()
    return _entries[kind]


def load() -> None:
    """Import everything that packages have registered in the entry-point group `dataflex_events.handlers`.

    Raises:
        DataflexError: One of them cannot be imported.
    """
    global _loaded
    if _loaded:
        return
    for entry_point in entry_points(group=ENTRY_POINTS):
        try:
            entry_point.load()
        except Exception as error:
            raise DataflexError(
                f"the dataflex components {entry_point.name!r} ({entry_point.value}) cannot be imported: "
                f"{type(error).__name__}: {error}"
            ) from error
    _loaded = True


def import_object(path: str) -> Any:
    """Import `module:attribute`.

    Raises:
        DataflexError: Not of that form, no such module, or no such attribute.
    """
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise DataflexError(f"{path!r} is not an import string of the form 'module:attribute'")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise DataflexError(f"cannot import {module_name!r}: {type(error).__name__}: {error}") from error
    target: Any = module
    for part in attribute.split("."):
        if not hasattr(target, part):
            public = [name for name in dir(target) if not name.startswith("_")]
            raise DataflexError(f"module {module_name!r} has no {attribute!r}{nearest(part, public, listing=False)}")
        target = getattr(target, part)
    return target


def _origin(component: type) -> tuple[str, str]:
    return component.__module__, component.__qualname__
