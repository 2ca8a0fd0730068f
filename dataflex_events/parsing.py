"""Reads a `dataflex:` block, and finds everything that is wrong with its form at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pydantic
from pydantic import BaseModel

from dataflex_events.config import ROOT, SHORT_FORM, HandlerConfig, PolicyConfig, Settings
from dataflex_events.config_messages import block_issue
from dataflex_events.errors import ConfigIssue

# Mechanisms of which a run has one policy at most. They need no scorer from the user.
SINGLE = ("mix", "gate")
_NOTHING = "asks for nothing: give it a policy (`mechanism`, `scorer`, `actuator`), a list of `policies`, or `handlers`"

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Parsed:
    """A block as far as it could be read, and every structural mistake in it.

    Attributes:
        settings: The whole block, or the defaults if it has structural mistakes.
        policies: The policies by position: read, or as they stand there if they have structural mistakes.
        handlers: The readable handlers by position.
        tensorboard: Parameters of the TensorBoard observer, if they are readable.
        issues: The mistakes.
        paths: Where each policy stands in the configuration.
        short: True for the short form.
    """

    settings: Settings
    policies: Mapping[int, PolicyConfig | Mapping[str, Any]]
    handlers: Mapping[int, HandlerConfig]
    tensorboard: dict[str, Any] | None
    issues: tuple[ConfigIssue, ...]
    paths: Mapping[int, str]
    short: bool

    def policy_path(self, position: int) -> str:
        """Where a policy stands in the configuration."""
        return self.paths[position]


def parse(block: Mapping[str, Any] | None) -> Parsed:
    """Read a block, in the short form (one policy at the top) or with `policies:` (a list, or a mapping by name)."""
    issues: list[ConfigIssue] = []
    if block is not None and not isinstance(block, Mapping):
        issues.append(ConfigIssue(ROOT, f"should be a mapping, not {block!r}"))
        block = None
    values = dict(block or {})
    named = values.get("policies")
    short = {key: values.pop(key) for key in SHORT_FORM if key in values}
    if short and "policies" in values:
        listed = ", ".join(short)
        message = f"give either `policies` or the short form ({listed}), not both"
        issues.append(ConfigIssue(f"{ROOT}.policies", message))
        short = {}
    elif short:
        values["policies"] = [short]
    paths = {0: ROOT} if short else {at: f"{ROOT}.policies[{at}]" for at, _ in _items(values, "policies")}
    if isinstance(named, Mapping):
        paths = {at: f"{ROOT}.policies.{name}" for at, name in enumerate(named)}
        values["policies"] = [_named(name, item) for name, item in named.items()]
    if _is_list(values.get("handlers")):
        values["handlers"] = [{"path": item} if isinstance(item, str) else item for item in values["handlers"]]
    policies = {at: item for at, item in _items(values, "policies") if isinstance(item, Mapping)}
    issues += _one_of_a_kind(policies, paths)
    settings = Settings()
    try:
        settings = Settings.model_validate(values)
    except pydantic.ValidationError as error:
        issues += [block_issue(details, paths, "policies" in (block or {})) for details in error.errors()]
    issues += _without_scorer(policies, paths)
    if not (issues or settings.policies or settings.handlers):
        issues.append(ConfigIssue(ROOT, _NOTHING))
    handlers = {at: readable(HandlerConfig, item) for at, item in _items(values, "handlers")}
    tensorboard = values.get("tensorboard")
    return Parsed(
        settings=settings,
        policies={at: readable(PolicyConfig, item) or item for at, item in policies.items()},
        handlers={at: config for at, config in handlers.items() if config is not None},
        tensorboard=tensorboard if isinstance(tensorboard, dict) else None,
        issues=tuple(issues),
        paths=paths,
        short=bool(short),
    )


def _named(name: Any, item: Any) -> Any:
    return {**item, "name": item.get("name") or str(name)} if isinstance(item, Mapping) else item


def _one_of_a_kind(policies: Mapping[int, Mapping[str, Any]], paths: Mapping[int, str]) -> list[ConfigIssue]:
    """Policies of a mechanism of which a run has one at most."""
    issues = []
    seen: dict[str, str] = {}
    for at, item in policies.items():
        mechanism = item.get("mechanism")
        if mechanism not in SINGLE:
            continue
        if mechanism in seen:
            message = f"a second {mechanism!r}: a run has one at most, and {seen[mechanism]} is one"
            issues.append(ConfigIssue(f"{paths[at]}.mechanism", message))
        seen.setdefault(mechanism, paths[at])
    return issues


def _without_scorer(policies: Mapping[int, Mapping[str, Any]], paths: Mapping[int, str]) -> list[ConfigIssue]:
    """Policies that lack a scorer; a mixer has one of its own, a gate needs none."""
    return [
        ConfigIssue(f"{paths[at]}.scorer", "is missing")
        for at, item in policies.items()
        if item.get("scorer") is None and item.get("mechanism") not in SINGLE
    ]


def readable(model: type[M], item: Any) -> M | None:
    """The item if it can be read on its own, so that mistakes further inside it are found in the same go."""
    try:
        return model.model_validate(item)
    except pydantic.ValidationError:
        return None


def _items(values: Mapping[str, Any], key: str) -> list[tuple[int, Any]]:
    items = values.get(key)
    return list(enumerate(items)) if items is not None and _is_list(items) else []


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
