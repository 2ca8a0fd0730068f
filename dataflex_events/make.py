"""Makes the components and handlers that a block names, or lists what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any

import pydantic

from dataflex_events import registry
from dataflex_events.bus import EventBus
from dataflex_events.components import Handler
from dataflex_events.config import ROOT, ComponentConfig, HandlerConfig
from dataflex_events.config_messages import parameter_issues
from dataflex_events.errors import ConfigIssue, DataflexError
from dataflex_events.parameters import check_parameters, parameters
from dataflex_events.parsing import Parsed


def find_entry(kinds: Sequence[str], name: str, path: str, issues: list[ConfigIssue]) -> registry.Entry | None:
    """The registered component of one of `kinds`, or what is wrong with the name, added to `issues`."""
    errors: list[str] = []
    for kind in kinds:
        try:
            return registry.find(kind, name)
        except DataflexError as error:
            errors.append(str(error))
    issues.append(ConfigIssue(path, "; ".join(dict.fromkeys(errors))))
    return None


def make_component(
    kind: str, config: ComponentConfig, path: str, issues: list[ConfigIssue], **shared: Any
) -> Handler | None:
    """Make a component, or add what is wrong with it to `issues`.

    `shared` are parameters that its policy may set instead of the component itself; None if it does not.
    """
    entry = find_entry([kind], config.name, f"{path}.name", issues)
    if entry is None:
        return None
    params = {**entry.preset, **config.params}
    for key, value in shared.items():
        if value is None or key not in parameters(entry.component):
            continue
        if params.setdefault(key, value) != value:
            message = f"is {params[key]!r}, but {value!r} in the policy; say it once"
            issues.append(ConfigIssue(f"{path}.params.{key}", message))
            return None
    return make_handler(entry.component, params, f"{path}.params", issues)


def make_handler(
    component: type[Handler], values: Mapping[str, Any], path: str, issues: list[ConfigIssue]
) -> Handler | None:
    """Make a component with these parameters, or add what is wrong with them to `issues`."""
    if values and not is_dataclass(component):
        issues.append(ConfigIssue(path, f"{component.__name__} is not a dataclass, so it has no parameters"))
        return None
    try:
        # Before it is made: the constructor would name one unknown or missing parameter, this names all.
        check_parameters(component, values)
        return component(**values)
    except pydantic.ValidationError as error:
        issues += parameter_issues(error, path, parameters(component))
    except Exception as error:  # a check of its own, or an abstract class
        issues.append(ConfigIssue(path, reason(error)))
    return None


def make_observers(parsed: Parsed, issues: list[ConfigIssue]) -> list[tuple[str | None, object]]:
    """Make the handlers that are no part of a policy, each with its name if it has one."""
    made: list[tuple[str | None, object]] = []
    for position, config in parsed.handlers.items():
        handler = _user_handler(config, f"{ROOT}.handlers[{position}]", issues)
        if handler is not None:
            made.append((None, handler))
    if parsed.tensorboard is not None:
        path = f"{ROOT}.tensorboard"
        entry = find_entry(["observer"], "tensorboard", path, issues)
        observer = None if entry is None else make_handler(entry.component, parsed.tensorboard, path, issues)
        if observer is not None:
            made.append(("tensorboard", observer))
    return made


def _user_handler(config: HandlerConfig, path: str, issues: list[ConfigIssue]) -> object | None:
    try:
        target = registry.import_object(config.path)
        handler: object = target
        if isinstance(target, type) and issubclass(target, Handler):
            handler = make_handler(target, config.params, f"{path}.params", issues)
        elif isinstance(target, type):
            handler = target(**config.params)
        elif config.params:
            issues.append(ConfigIssue(f"{path}.params", f"{config.path!r} is not a class and takes no parameters"))
        if handler is not None:
            EventBus().attach(handler)  # finds out now whether it marks anything
    except Exception as error:
        issues.append(ConfigIssue(path, reason(error)))
        return None
    return handler


def reason(error: Exception) -> str:
    """What to say about an exception of a component."""
    # Messages of other kinds, a KeyError's for example, say nothing without the kind.
    plain = isinstance(error, DataflexError | TypeError | ValueError)
    return str(error) if plain else f"{type(error).__name__}: {error}"
