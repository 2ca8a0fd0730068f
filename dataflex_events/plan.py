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
)
from dataflex_events.context import Baseline
from dataflex_events.errors import ConfigError, ConfigIssue, DataflexError
from dataflex_events.events import AdvantageComputed, RolloutDone
from dataflex_events.marks import marked, name_of
from dataflex_events.policy import Policy, scorer_key, subscribe_policies
from dataflex_events.selection import NOT_NORMALIZED, baseline_issues, drops, selection_issues


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
    def applied(self) -> tuple[Policy, ...]:
        """The policies that do more than show what they would do."""
        return tuple(policy for policy in self.policies if not (policy.shadow or self.settings.shadow))

    @property
    def may_apply(self) -> bool:
        """True if a policy, or a handler that listens where it could propose something, may change what is trained."""
        listens = any(
            event is AdvantageComputed or event is RolloutDone
            for _, observer in self.observers
            for _, marks in marked(observer)
            for event, _ in marks
        )
        return bool(self.applied) or (listens and not self.settings.shadow)

    @property
    def drops(self) -> bool:
        """True if a policy takes rows out of the batch."""
        return any(policy.acts_at is RolloutDone for policy in self.applied)

    @property
    def weighs(self) -> bool:
        """True if a policy changes weights."""
        return any(policy.acts_at is AdvantageComputed and policy.apply == "weight" for policy in self.applied)

    @property
    def masks(self) -> bool:
        """True if a policy changes the response mask."""
        return any(policy.acts_at is AdvantageComputed and policy.apply == "mask" for policy in self.applied)

    @property
    def baseline(self) -> Baseline | None:
        """Over which rows of a group its baseline is computed; None for "as it comes"."""
        return next((policy.baseline for policy in self.applied if policy.baseline is not None), None)

    def handler_fields(self) -> list[tuple[str, frozenset[str]]]:
        """Batch fields that each marked function of the handlers reads, by its name."""
        return [
            (name_of(fn), frozenset[str]().union(*(fields for _, fields in marks)))
            for _, observer in self.observers
            for fn, marks in marked(observer)
        ]

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
        _check_keys(config if isinstance(config, Mapping) else config.model_dump(exclude_defaults=True), path, issues)
        if not isinstance(config, PolicyConfig):
            _examine_parts(config, path, issues)
            continue
        kind = "selector" if config.mechanism == "select" else "reweighter"
        scorer = _component("scorer", config.scorer, f"{path}.scorer", issues)
        actuator = _component(kind, config.actuator, f"{path}.actuator", issues, advantages=config.advantages)
        if not isinstance(scorer, Scorer) or not isinstance(actuator, Reweighter | Selector):
            continue
        early, baseline = False, config.advantages
        if isinstance(actuator, Selector):
            issues += selection_issues(config, scorer, actuator, path)
            early, baseline = drops(config, scorer, actuator), baseline or actuator.baseline()
        key = scorer_key(registry.find("scorer", config.scorer.name).name, scorer)
        made.append(
            Policy(
                name=_unique(config.name or config.actuator.name, made),
                key=key,
                scorer=scorers.setdefault(key, scorer),
                actuator=actuator,
                acts_at=RolloutDone if early else AdvantageComputed,
                normalize=config.normalize or actuator.normalize,
                apply="mask" if config.apply == "mask" else "weight",
                baseline=baseline,
                warmup_step=config.warmup_step,
                update_step=config.update_step,
                shadow=config.shadow,
                path=path,
            )
        )
    issues += baseline_issues(made)
    return made


def _check_keys(policy: Mapping[str, Any], path: str, issues: list[ConfigIssue]) -> None:
    """Keys that a policy of its mechanism cannot use."""
    mechanism, apply = policy.get("mechanism"), policy.get("apply")
    if mechanism == "select" and policy.get("normalize") is not None and apply in ("drop", "mask"):
        issues.append(ConfigIssue(f"{path}.normalize", NOT_NORMALIZED))
    if mechanism != "reweight":
        return
    if apply is not None:
        issues.append(ConfigIssue(f"{path}.apply", "is for `mechanism: select`; a reweighter always gives weights"))
    for key in ("advantages", "refill"):
        if policy.get(key):
            issues.append(ConfigIssue(f"{path}.{key}", "is for `mechanism: select`; a reweighter keeps all rows"))


def _examine_parts(item: Mapping[str, Any], path: str, issues: list[ConfigIssue]) -> None:
    """Look into a policy that cannot be made, so that the mistakes in its parts are found in the same go."""
    kinds = {"select": ("selector",), "reweight": ("reweighter",)}
    actuators = kinds.get(str(item.get("mechanism")), ("selector", "reweighter"))
    for part, candidates in (("scorer", ("scorer",)), ("actuator", actuators)):
        value = item.get(part)
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            continue
        entry = _entry(candidates, value["name"], f"{path}.{part}.name", issues)
        params = value.get("params", {})
        if entry is not None and isinstance(params, Mapping):
            named = {key: item for key, item in params.items() if isinstance(key, str)}
            _make(entry.component, {**entry.preset, **named}, f"{path}.{part}.params", issues)


def _entry(kinds: Sequence[str], name: str, path: str, issues: list[ConfigIssue]) -> registry.Entry | None:
    errors: list[str] = []
    for kind in kinds:
        try:
            return registry.find(kind, name)
        except DataflexError as error:
            errors.append(str(error))
    issues.append(ConfigIssue(path, "; ".join(dict.fromkeys(errors))))
    return None


def _component(
    kind: str, config: ComponentConfig, path: str, issues: list[ConfigIssue], advantages: Baseline | None = None
) -> Handler | None:
    """Make a component, or add what is wrong with it to `issues`. `advantages` is what its policy says."""
    entry = _entry([kind], config.name, f"{path}.name", issues)
    if entry is None:
        return None
    params = {**entry.preset, **config.params}
    if advantages is not None and "advantages" in parameters(entry.component):
        params.setdefault("advantages", advantages)
        if params["advantages"] != advantages:
            message = f"is {params['advantages']!r}, but {advantages!r} in the policy; say it once"
            issues.append(ConfigIssue(f"{path}.params.advantages", message))
            return None
    return _make(entry.component, params, f"{path}.params", issues)


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
