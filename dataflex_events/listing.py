"""Show the components that a configuration can name, or all about one of them.

`dataflex-events list` shows every registered component: its parameters with their defaults, its other names and what it
does. `dataflex-events list NAME` shows the page of one: formula, source, parameters, and how a configuration names it.
NAME may also be the import string `module:Class` of a component of your own.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from dataflex_events.errors import DataflexError, nearest

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from dataflex_events.components import Handler
    from dataflex_events.registry import Entry

HELP = "Show the components that a configuration can name, or all about one of them"

MAX_WIDTH = 100

_BOUNDS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))

_YAML = {
    "scorer": "scorer: {call}",
    "reweighter": "mechanism: reweight\nactuator: {call}",
    "selector": "mechanism: select\nactuator: {call}",
    "mixer": "mechanism: mix\nactuator: {call}",
    "gate": "mechanism: gate\nactuator: {call}",
}


def configure(parser: ArgumentParser) -> None:
    """Add the arguments of `dataflex-events list`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a component's name, alias or import string")


def run(args: Namespace) -> int:
    """Print the list or one component's page."""
    print(page(args.name) if args.name else overview())
    return 0


def overview() -> str:
    """All components, by kind."""
    from dataflex_events import registry

    blocks: list[str] = []
    for kind in registry.KINDS:
        entries = registry.names(kind)
        own = [label for label, entry in entries.items() if label == entry.name]
        if own:
            blocks.append("\n".join([f"{kind}s", *(_summary(label, entries) for label in sorted(own))]))
    hints = (
        "`dataflex-events list NAME` says more about one of them.\n`dataflex-events presets` shows ready-made blocks."
    )
    return "\n\n".join([*blocks, hints])


def page(name: str) -> str:
    """Everything about the component of that name; of each, if several kinds have one.

    Raises:
        DataflexError: There is none.
    """
    from dataflex_events import registry

    if ":" in name:
        if os.getcwd() not in sys.path:  # as `python -m` has it, which is how verl is run
            sys.path.insert(0, os.getcwd())
        component = registry.import_object(name)
        kind = registry.kind_of(component)
        return _page(kind, registry.Entry(component, name), {})
    known = {kind: registry.names(kind) for kind in registry.KINDS}
    found = [_page(kind, entries[name], entries) for kind, entries in known.items() if name in entries]
    if not found:
        everything = [label for entries in known.values() for label in entries]
        raise DataflexError(f"unknown component {name!r}{nearest(name, everything)}")
    return "\n\n\n".join(found)


def _summary(name: str, entries: Mapping[str, Entry]) -> str:
    component = entries[name].component
    shown = [f"{key}={value!r}" if value is not ... else key for key, value in parameters_of(component).items()]
    also = ", ".join(_aliases(name, entries))
    head = f"{name}({', '.join(shown)})" + (f"  also: {also}" if also else "")
    first = re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(_paragraphs(component)[0].split()))[0]
    return f"{_fill(head, 2, hanging=4)}\n{_fill(first, 6)}"


def _page(kind: str, entry: Entry, entries: Mapping[str, Entry]) -> str:
    component = entry.component
    blocks = [f"{entry.name} ({kind})\n{component.__module__}:{component.__qualname__}"]
    aliases = _aliases(entry.name, entries)
    if aliases:
        blocks.append("Other names: " + ", ".join(aliases))
    blocks += (paragraph if _laid_out(paragraph) else _fill(paragraph, 0) for paragraph in _paragraphs(component))
    parameters = list(_parameters(component))
    if parameters:
        blocks.append("Parameters:\n" + "\n".join(parameters))
    reads = _reads(component)
    if reads:
        blocks.append(f"Reads the batch fields: {reads}")
    if kind in _YAML:
        params = {key: f"<{key}>" if value is ... else value for key, value in parameters_of(component).items()}
        call = _flow({"name": entry.name, "params": params} if params else {"name": entry.name})
        blocks.append("In a configuration:\n" + textwrap.indent(_YAML[kind].format(call=call), "  "))
    return "\n\n".join(blocks)


def _reads(component: type[Handler]) -> str:
    """The batch fields of a component, as text; empty if it reads none."""
    fields: object = component.fields
    if not isinstance(fields, property):
        return ", ".join(component.fields)
    needed = [name for name, default in parameters_of(component).items() if default is ...]
    if needed:
        return f"as its parameters say ({', '.join(needed)})"
    return ", ".join(component().fields) + " (with other parameters others)"


def _aliases(name: str, entries: Mapping[str, Entry]) -> list[str]:
    found: list[str] = []
    for label, entry in sorted(entries.items()):
        if entry.name == name and label != name:
            preset = ", ".join(f"{key}={value!r}" for key, value in entry.preset.items())
            found.append(f"{label} ({preset})" if preset else label)
    return found


def _paragraphs(component: type[Handler]) -> list[str]:
    """The docstring up to its `Attributes` section."""
    doc = inspect.cleandoc(component.__doc__ or "")
    if not doc or doc.startswith(f"{component.__name__}("):  # what dataclass writes where there is no docstring
        return ["(not documented)"]
    return re.split(r"\n\s*\n", re.split(r"^Attributes:$", doc, flags=re.MULTILINE)[0].strip())


def _parameters(component: type[Handler]) -> Iterator[str]:
    from dataflex_events.parameters import parameter_fields

    described, defaults = _described(component), parameters_of(component)
    for name, info in parameter_fields(component).items():
        bounds = [
            f"{sign} {getattr(item, key)}" for item in info.metadata for key, sign in _BOUNDS if hasattr(item, key)
        ]
        default = "required" if defaults[name] is ... else f"default {defaults[name]!r}"
        yield f"  {name} ({', '.join([_type(info.annotation), *bounds])}), {default}"
        if name in described:
            yield _fill(described[name], 6)


def _type(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return " | ".join(map(repr, get_args(annotation)))
    return inspect.formatannotation(_bare(annotation)).replace("typing.", "")


def _bare(annotation: Any) -> Any:
    """The type without what pydantic reads in `Annotated`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _bare(arguments[0])
    if origin in (list, dict, tuple):
        generic: Any = origin
        return generic[tuple(map(_bare, arguments))]
    return reduce(or_, map(_bare, arguments)) if origin in (Union, UnionType) else annotation


def _described(component: type[Handler]) -> dict[str, str]:
    """What the `Attributes` sections of the class and its bases say."""
    found: dict[str, str] = {}
    for cls in reversed(component.__mro__):
        _, _, section = inspect.cleandoc(cls.__doc__ or "").partition("\nAttributes:\n")
        body = textwrap.dedent(re.split(r"^\S", section, maxsplit=1, flags=re.MULTILINE)[0])
        for item in re.split(r"^(?=\w)", body, flags=re.MULTILINE):
            name, colon, text = item.partition(":")
            if colon:
                found[name.strip()] = " ".join(text.split())
    return found


def parameters_of(component: type[Handler]) -> Mapping[str, Any]:
    from dataflex_events.parameters import parameters

    return parameters(component)


def _flow(value: Mapping[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(dict(value), default_flow_style=True, sort_keys=False, width=1000)).strip()


def _laid_out(paragraph: str) -> bool:
    """True for lists, tables and code, which must keep their lines."""
    return any(re.match(r"\s|[-*>|]", line) for line in paragraph.splitlines())


def _fill(text: str, indent: int, *, hanging: int = 0) -> str:
    return textwrap.fill(
        text,
        min(MAX_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )
