"""From a `dataflex:` block to handlers on a bus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

import pydantic

from dataflex_events import registry
from dataflex_events.bus import EventBus
from dataflex_events.components import Handler, Reweighter, Scorer, Selector, check_parameters, parameters
from dataflex_events.config import (
    ROOT,
    ComponentConfig,
    HandlerConfig,
    Parsed,
    PolicyConfig,
    Settings,
    parameter_issues,
    parse,
    readable,
)
from dataflex_events.errors import ConfigError, ConfigIssue, DataflexError
from dataflex_events.events import AdvantageComputed, RolloutDone
from dataflex_events.fields import first_moment
from dataflex_events.policy import Policy, scorer_key, subscribe_policies


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run attaches to its bus.

    Attributes:
        settings: The block.
        policies: Scorers and actuators.
        observers: `(name, handler)` of everything else.
    """

    settings: Settings
    policies: tuple[Policy, ...]
    observers: tuple[tuple[str | None, object], ...]

    @property
    def drops(self) -> bool:
        """True if a policy takes rows out of the batch."""
        return any(policy.acts_at is RolloutDone for policy in self.policies)

    @property
    def weighs(self) -> bool:
        """True if a policy changes weights."""
        return any(policy.acts_at is AdvantageComputed for policy in self.policies)

    def bus(self) -> EventBus:
        """A bus with everything attached: policies first, in their order, then handlers."""
        bus = EventBus(on_error=self.settings.on_error)
        subscribe_policies(bus, self.policies)
        for name, observer in self.observers:
            bus.attach(observer, name=name)
        return bus


def make_plan(block: Mapping[str, Any] | None) -> Plan:
    """Make everything that a block names.

    Raises:
        ConfigError: Lists every mistake.
    """
    plan, issues = examine(block)
    if issues:
        raise ConfigError(issues)
    return plan


def examine(block: Mapping[str, Any] | None) -> tuple[Plan, list[ConfigIssue]]:
    """Make what a block names as far as it can be made, and list every mistake in it."""
    parsed = parse(block)
    issues = list(parsed.issues)
    policies = _policies(parsed, issues)
    observers = _observers(parsed, issues)
    return Plan(parsed.settings, tuple(policies), tuple(observers)), issues


def _policies(parsed: Parsed, issues: list[ConfigIssue]) -> list[Policy]:
    made: list[Policy] = []
    scorers: dict[Any, Scorer] = {}
    for position, config in parsed.policies.items():
        path = parsed.policy_path(position)
        _check_apply(config if isinstance(config, Mapping) else config.model_dump(), path, issues)
        if not isinstance(config, PolicyConfig):
            _examine_parts(config, path, issues)
            continue
        kind = "selector" if config.mechanism == "select" else "reweighter"
        scorer = _component("scorer", config.scorer, f"{path}.scorer", issues)
        actuator = _component(kind, config.actuator, f"{path}.actuator", issues)
        if not isinstance(scorer, Scorer) or not isinstance(actuator, Reweighter | Selector):
            continue
        drops = _drops(config, scorer, actuator, path, issues)
        key = scorer_key(registry.find("scorer", config.scorer.name).name, scorer)
        normalize = actuator.normalize if isinstance(actuator, Reweighter) else "none"
        made.append(
            Policy(
                name=_unique(config.name or config.actuator.name, made),
                key=key,
                scorer=scorers.setdefault(key, scorer),
                actuator=actuator,
                acts_at=RolloutDone if drops else AdvantageComputed,
                normalize=config.normalize or normalize,
            )
        )
    return made


def _check_apply(policy: Mapping[str, Any], path: str, issues: list[ConfigIssue]) -> None:
    mechanism = policy.get("mechanism")
    if mechanism == "reweight" and policy.get("apply") is not None:
        issues.append(ConfigIssue(f"{path}.apply", "is for `mechanism: select`; a reweighter always gives weights"))
    if mechanism == "select" and policy.get("normalize") is not None:
        issues.append(ConfigIssue(f"{path}.normalize", "is for `mechanism: reweight`; a selector gives no weights"))


def _drops(
    config: PolicyConfig, scorer: Scorer, actuator: Reweighter | Selector, path: str, issues: list[ConfigIssue]
) -> bool:
    """True if the policy takes rows out of the batch. Adds to `issues` if it cannot, but is asked to."""
    if isinstance(actuator, Reweighter):
        return False
    if scorer.per == "token":
        issues.append(ConfigIssue(f"{path}.scorer.name", "scores tokens; a selector of rows needs a score per row"))
    late = [part.name for part, made in ((config.scorer, scorer), (config.actuator, actuator)) if _is_late(made)]
    if config.apply == "drop" and late:
        reads = f"{' and '.join(map(repr, late))} can run only after advantages are computed"
        issues.append(ConfigIssue(f"{path}.apply", f"{reads}, too late to drop rows; use `apply: weight`"))
    return config.apply == "drop" or (config.apply is None and not late)


def _is_late(component: Handler) -> bool:
    return first_moment(component.fields) != "rollout_done"


def _examine_parts(item: Mapping[str, Any], path: str, issues: list[ConfigIssue]) -> None:
    """Look into a policy that cannot be made, so that the mistakes in its parts are found in the same go."""
    kinds = {"select": ("selector",), "reweight": ("reweighter",)}
    actuators = kinds.get(str(item.get("mechanism")), ("selector", "reweighter"))
    for part, candidates in (("scorer", ("scorer",)), ("actuator", actuators)):
        value = item.get(part)
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            continue
        entry = _entry(candidates, value["name"], f"{path}.{part}.name", issues)
        config = readable(ComponentConfig, value)
        if entry is not None and config is not None:
            _make(entry.component, {**entry.preset, **config.params}, f"{path}.{part}.params", issues)


def _entry(kinds: Sequence[str], name: str, path: str, issues: list[ConfigIssue]) -> registry.Entry | None:
    errors: list[str] = []
    for kind in kinds:
        try:
            return registry.find(kind, name)
        except DataflexError as error:
            errors.append(str(error))
    issues.append(ConfigIssue(path, "; ".join(dict.fromkeys(errors))))
    return None


def _component(kind: str, config: ComponentConfig, path: str, issues: list[ConfigIssue]) -> Handler | None:
    """Make a component, or add what is wrong with it to `issues`."""
    entry = _entry([kind], config.name, f"{path}.name", issues)
    if entry is None:
        return None
    return _make(entry.component, {**entry.preset, **config.params}, f"{path}.params", issues)


def _make(component: type[Handler], values: Mapping[str, Any], path: str, issues: list[ConfigIssue]) -> Handler | None:
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
        issues.append(ConfigIssue(path, _reason(error)))
    return None


def _observers(parsed: Parsed, issues: list[ConfigIssue]) -> list[tuple[str | None, object]]:
    made: list[tuple[str | None, object]] = []
    for position, config in parsed.handlers.items():
        handler = _user_handler(config, f"{ROOT}.handlers[{position}]", issues)
        if handler is not None:
            made.append((None, handler))
    if parsed.tensorboard is not None:
        path = f"{ROOT}.tensorboard"
        entry = _entry(["observer"], "tensorboard", path, issues)
        observer = None if entry is None else _make(entry.component, parsed.tensorboard, path, issues)
        if observer is not None:
            made.append(("tensorboard", observer))
    return made


def _user_handler(config: HandlerConfig, path: str, issues: list[ConfigIssue]) -> object | None:
    try:
        target = registry.import_object(config.path)
        handler: object = target
        if isinstance(target, type) and issubclass(target, Handler):
            handler = _make(target, config.params, f"{path}.params", issues)
        elif isinstance(target, type):
            handler = target(**config.params)
        elif config.params:
            issues.append(ConfigIssue(f"{path}.params", f"{config.path!r} is not a class and takes no parameters"))
        if handler is not None:
            EventBus().attach(handler)  # finds out now whether it marks anything
    except Exception as error:
        issues.append(ConfigIssue(path, _reason(error)))
        return None
    return handler


def _reason(error: Exception) -> str:
    # Messages of other kinds, a KeyError's for example, say nothing without the kind.
    plain = isinstance(error, DataflexError | TypeError | ValueError)
    return str(error) if plain else f"{type(error).__name__}: {error}"


def _unique(name: str, made: Iterable[Policy]) -> str:
    taken = {policy.name for policy in made}
    count, candidate = 1, name
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
