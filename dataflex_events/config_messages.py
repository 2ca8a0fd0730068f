"""Says in a reader's words what pydantic found wrong with a block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pydantic
from pydantic import BaseModel

from dataflex_events.config import (
    ROOT,
    SHORT_FORM,
    ComponentConfig,
    HandlerConfig,
    PolicyConfig,
    RefillConfig,
    Settings,
)
from dataflex_events.errors import ConfigIssue, nearest

# pydantic speaks Python, the reader has written YAML.
_YAML_TERMS = {
    "dict_type": "should be a mapping",
    "invalid_key": "keys should be text",
    "list_type": "should be a list",
    "model_type": "should be a mapping",
    "string_type": "should be text",
    "too_short": "should not be empty",
}


def parameter_issues(error: pydantic.ValidationError, path: str, known: Iterable[str]) -> list[ConfigIssue]:
    """Say what is wrong with a component's parameters."""
    known = list(known)
    return [ConfigIssue(_join(path, details["loc"]), _say(details, known)) for details in error.errors()]


def block_issue(details: Any, paths: Mapping[int, str], long: bool) -> ConfigIssue:
    """Say what is wrong with one place of a block.

    Args:
        details: An error of pydantic's.
        paths: Where each policy stands.
        long: True if the block has `policies`.
    """
    location = list(details["loc"])
    known = _known_keys(location) + (list(SHORT_FORM) if len(location) == 1 and not long else [])
    path = ROOT
    if location[0] == "policies" and len(location) > 1 and location[1] in paths:
        path, location = paths[location[1]], location[2:]
    return ConfigIssue(_join(path, location), _say(details, list(dict.fromkeys(known))))


def _say(details: Any, known: Sequence[str]) -> str:
    kind, given = details["type"], details["input"]
    if kind == "extra_forbidden":
        return f"unknown key{nearest(str(details['loc'][-1]), known) or ' (there are none)'}"
    if kind == "missing":
        return "is missing"
    if kind == "literal_error":
        return f"should be {details['ctx']['expected']}, not {given!r}"
    message = str(_YAML_TERMS.get(kind, details["msg"])).removeprefix("Input ").removeprefix("Value error, ")
    if kind == "model_type":
        message += f" with the keys {', '.join(_known_keys([*details['loc'], '']))}"
    return f"{message[:1].lower()}{message[1:]}, not {given!r}"


def _known_keys(location: list[Any]) -> list[str]:
    """The keys that are allowed next to the one at `location`."""
    model: type[BaseModel] = Settings
    for part in location[:-1]:
        if part == "policies":
            model = PolicyConfig
        elif part == "handlers":
            model = HandlerConfig
        elif part in ("scorer", "actuator"):
            model = ComponentConfig
        elif part == "refill":
            model = RefillConfig
    return list(model.model_fields)


def _join(path: str, location: Iterable[Any]) -> str:
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path
