"""From a `dataflex:` block to handlers on a bus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pydantic

from dataflex_events import registry
from dataflex_events.bus import EventBus
from dataflex_events.components import Handler, Reweighter, Scorer, Selector, check_parameters, parameters
from dataflex_events.config import ROOT, ComponentConfig, HandlerConfig, Parsed, PolicyConfig, Settings
from dataflex_events.config import parameter_issues, parse
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


def make_plan(block: Mapping[str, Any]) -> Plan:
    """Make everything that a block names.

    Raises:
        ConfigError: Lists every mistake.
    """
    plan, issues = examine(block)
    if issues:
        raise ConfigError(issues)
    return plan


def examine(block: Mapping[str, Any]) -> tuple[Plan, list[ConfigIssue]]:
    """Make what a block names as far as it can be made, and list every mistake in it."""
    parsed = parse(block)
    issues = list(parsed.issues)
    policies = _policies(parsed, issues)
    observers = _observers(parsed, issues)
    return Plan(parsed.settings or Settings(), tuple(policies), tuple(observers)), issues


def _policies(parsed: Parsed, issues: list[ConfigIssue]) -> list[Policy]:
    made: list[Policy] = []
    scorers: dict[Any, Scorer] = {}
    for position, config in parsed.policies.items():
        path = parsed.policy_path(position)
        kind = "selector" if config.mechanism == "select" else "reweighter"
        scorer = _component("scorer", config.scorer, f"{path}.scorer", issues)
        actuator = _component(kind, config.actuator, f"{path}.actuator", issues)
        _check_apply(config, scorer, path, issues)
        if not isinstance(scorer, Scorer) or not isinstance(actuator, Reweighter | Selector):
            continue
        name = registry.find("scorer", config.scorer.name).name
        key = scorer_key(name, {label: getattr(scorer, label) for label in parameters(type(scorer))})
        made.append(
            Policy(
                name=_unique(config.name or config.actuator.name, made),
                key=key,
                scorer=scorers.setdefault(key, scorer),
                actuator=actuator,
                acts_at=RolloutDone if _drops(config, scorer) else AdvantageComputed,
                normalize=config.normalize or getattr(actuator, "normalize", "none"),
            )
        )
    return made


def _drops(config: PolicyConfig, scorer: Scorer) -> bool:
    early = first_moment(scorer.fields) == "rollout_done"
    return config.mechanism == "select" and (config.apply or ("drop" if early else "weight")) == "drop"


def _check_apply(config: PolicyConfig, scorer: object, path: str, issues: list[ConfigIssue]) -> None:
    if config.mechanism == "reweight" and config.apply is not None:
        issues.append(ConfigIssue(f"{path}.apply", "is for `mechanism: select`; a reweighter always gives weights"))
    if config.mechanism == "select" and config.normalize is not None:
        issues.append(ConfigIssue(f"{path}.normalize", "is for `mechanism: reweight`; a selector gives no weights"))
    if config.mechanism == "select" and isinstance(scorer, Scorer):
        if config.apply == "drop" and first_moment(scorer.fields) != "rollout_done":
            late = f"the scorer {config.scorer.name!r} is ready only after advantages are computed"
            issues.append(ConfigIssue(f"{path}.apply", f"{late}, too late to drop rows; use `apply: weight`"))
        if scorer.per == "token":
            issues.append(ConfigIssue(f"{path}.scorer.name", "scores tokens; a selector of rows needs a score per row"))


def _component(kind: str, config: ComponentConfig, path: str, issues: list[ConfigIssue]) -> Handler | None:
    """Make a component, or add what is wrong with it to `issues`."""
    try:
        entry = registry.find(kind, config.name)
    except DataflexError as error:
        issues.append(ConfigIssue(f"{path}.name", str(error)))
        return None
    try:
        return entry.component(**{**entry.preset, **config.params})
    except pydantic.ValidationError as error:
        issues += parameter_issues(error, f"{path}.params", parameters(entry.component))
    except TypeError:
        # Unknown or missing parameters: the constructor names one, the parameter model names all.
        issues += _all_parameter_issues(entry.component, {**entry.preset, **config.params}, f"{path}.params")
    return None


def _all_parameter_issues(component: type[Handler], values: Mapping[str, Any], path: str) -> list[ConfigIssue]:
    try:
        check_parameters(component, values)
    except pydantic.ValidationError as error:
        return parameter_issues(error, path, parameters(component))
    return [ConfigIssue(path, f"{component.__name__} cannot be made from {dict(values)!r}")]


def _observers(parsed: Parsed, issues: list[ConfigIssue]) -> list[tuple[str | None, object]]:
    made: list[tuple[str | None, object]] = []
    for position, config in parsed.handlers.items():
        handler = _user_handler(config, f"{ROOT}.handlers[{position}]", issues)
        if handler is not None:
            made.append((None, handler))
    tensorboard = parsed.settings.tensorboard if parsed.settings else None
    if tensorboard is not None:
        config_ = ComponentConfig(name="tensorboard", params=tensorboard)
        found: list[ConfigIssue] = []
        observer = _component("observer", config_, f"{ROOT}.tensorboard", found)
        issues += [ConfigIssue(issue.path.replace(".params", "", 1), issue.message) for issue in found]
        if observer is not None:
            made.append(("tensorboard", observer))
    return made


def _user_handler(config: HandlerConfig, path: str, issues: list[ConfigIssue]) -> object | None:
    try:
        handler = registry.import_object(config.path)
        if isinstance(handler, type):
            handler = handler(**config.params)
        elif config.params:
            issues.append(ConfigIssue(f"{path}.params", f"{config.path!r} is not a class and takes no parameters"))
        EventBus().attach(handler)  # finds out now whether it marks anything
    except Exception as error:
        issues.append(ConfigIssue(path, str(error)))
        return None
    return cast("object", handler)


def _unique(name: str, made: Iterable[Policy]) -> str:
    taken = {policy.name for policy in made}
    count, candidate = 1, name
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
