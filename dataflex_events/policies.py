"""Makes the policies of a block, or lists what is wrong with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import torch

from dataflex_events import registry
from dataflex_events.components import Mixer, Reweighter, Scorer, Selector
from dataflex_events.config import ComponentConfig, PolicyConfig
from dataflex_events.context import ScorerKey
from dataflex_events.errors import ConfigIssue
from dataflex_events.events import AdvantageComputed, RolloutDone
from dataflex_events.gate import Gate
from dataflex_events.gating import GatePolicy
from dataflex_events.make import find_entry, make_component, make_handler
from dataflex_events.mixing import MixPolicy, initial_proportions
from dataflex_events.parameters import parameters
from dataflex_events.parsing import SINGLE, Parsed
from dataflex_events.policy import Policy, scorer_key
from dataflex_events.refill import Refill
from dataflex_events.selection import (
    NOT_NORMALIZED,
    baseline_issues,
    drops,
    is_late,
    refill_issues,
    selection_issues,
)

_KINDS = {"select": ("selector",), "reweight": ("reweighter",), "mix": ("mixer",), "gate": ("gate",)}
_ANY = ("selector", "reweighter")
_MIX_KEYS = ("domains", "domain_key", "unlisted", "initial", "window")
_GATE_KEYS = ("signal", "success_threshold")

Made: TypeAlias = Policy | MixPolicy | GatePolicy


def make_policies(
    parsed: Parsed, issues: list[ConfigIssue]
) -> tuple[list[Policy], MixPolicy | None, GatePolicy | None]:
    """Make what can be made, and add everything that is wrong to `issues`."""
    made: list[Made] = []
    scorers: dict[ScorerKey, Scorer] = {}
    for position, config in parsed.policies.items():
        path = parsed.policy_path(position)
        _check_keys(config if isinstance(config, Mapping) else config.model_dump(exclude_defaults=True), path, issues)
        if not isinstance(config, PolicyConfig):
            _examine_parts(config, path, issues)
            continue
        make = {"mix": _mix, "gate": _gate}.get(config.mechanism, _policy)
        policy = make(config, path, issues)
        if policy is None:
            continue
        shared: dict[str, Any] = {"name": _unique(policy.name, made), "shadow": config.shadow}
        if not isinstance(policy, GatePolicy):
            shared["scorer"] = scorers.setdefault(policy.key, policy.scorer)
        if isinstance(policy, Policy):
            shared["refill"] = None if parsed.settings.shadow else policy.refill
        elif parsed.settings.shadow:
            shared["shadow"] = True
        made.append(dataclasses.replace(policy, **shared))
    policies = [policy for policy in made if isinstance(policy, Policy)]
    issues += baseline_issues(policies) + refill_issues(policies)
    mix = next((policy for policy in made if isinstance(policy, MixPolicy)), None)
    return policies, mix, next((policy for policy in made if isinstance(policy, GatePolicy)), None)


def _policy(config: PolicyConfig, path: str, issues: list[ConfigIssue]) -> Policy | None:
    kind, named = _KINDS[config.mechanism][0], config.scorer
    scorer = None if named is None else make_component("scorer", named, f"{path}.scorer", issues)
    actuator = make_component(kind, config.actuator, f"{path}.actuator", issues, advantages=config.advantages)
    if named is None or not isinstance(scorer, Scorer) or not isinstance(actuator, Reweighter | Selector):
        return None  # that there is no scorer was said before
    early, baseline = False, config.advantages
    if isinstance(actuator, Selector):
        issues += selection_issues(config, scorer, actuator, path)
        early, baseline = drops(config, scorer, actuator), baseline or actuator.baseline()
    return Policy(
        name=config.name or config.actuator.name,
        key=scorer_key(registry.find("scorer", named.name).name, scorer),
        scorer=scorer,
        actuator=actuator,
        acts_at=RolloutDone if early else AdvantageComputed,
        normalize=config.normalize or actuator.normalize,
        apply="mask" if config.apply == "mask" else "weight",
        baseline=baseline,
        warmup_step=config.warmup_step,
        update_step=config.update_step,
        refill=None if config.refill is None else Refill(**config.refill.model_dump()),
        path=path,
    )


def _gate(config: PolicyConfig, path: str, issues: list[ConfigIssue]) -> GatePolicy | None:
    gate = make_component("gate", config.actuator, f"{path}.actuator", issues)
    if not isinstance(gate, Gate):
        return None
    return GatePolicy(
        name=config.name or config.actuator.name,
        gate=gate,
        signal=config.signal,
        success_threshold=config.success_threshold,
        warmup_step=config.warmup_step,
        update_step=config.update_step,
        path=path,
    )


def _mix(config: PolicyConfig, path: str, issues: list[ConfigIssue]) -> MixPolicy | None:
    window = config.window if config.actuator.name != "static" else None  # DataFlex-RL's files give one there too
    mixer = make_component("mixer", config.actuator, f"{path}.actuator", issues, window=window)
    if not isinstance(mixer, Mixer):
        return None
    if window is not None and "window" not in parameters(type(mixer)):
        issues.append(ConfigIssue(f"{path}.window", f"the mixer {config.actuator.name!r} has no window"))
    named = config.scorer or ComponentConfig(name=mixer.default_scorer)
    scorer = make_component("scorer", named, f"{path}.scorer", issues)
    if scorer is None:
        return None
    name = registry.find("scorer", named.name).name
    if name == "advantage_magnitude":  # what is meant by it before advantages are there
        if named.params.get("agg", "mean") != "mean":
            message = "is for tokens; with a mixer 'advantage_magnitude' stands for 'group_advantage', one per rollout"
            issues.append(ConfigIssue(f"{path}.scorer.params.agg", message))
        name = "group_advantage"
        scorer = registry.find("scorer", name).component()
    assert isinstance(scorer, Scorer)
    if scorer.per == "token" or is_late(scorer):
        issues.append(ConfigIssue(f"{path}.scorer.name", _why_not(scorer)))
        return None
    issues += _without_effect(config, path)
    policy = MixPolicy(
        name=config.name or config.actuator.name,
        key=scorer_key(name, scorer),
        scorer=scorer,
        mixer=mixer,
        domains=None if config.domains is None else tuple(config.domains),
        domain_key=config.domain_key,
        unlisted=config.unlisted,
        initial=config.initial,
        warmup_step=config.warmup_step,
        update_step=config.update_step,
        path=path,
    )
    if policy.domains is not None and policy.unlisted != "keep":
        issues += domain_issues(policy, policy.domains)
    return policy


def _why_not(scorer: Scorer) -> str:
    if scorer.per == "token":
        return "scores tokens; a mixer needs a score per rollout"
    late = "can run only after advantages are computed; a mixer's scores are those of all rollouts that were generated"
    return f"{late}, also of those that are dropped before (use for example 'group_advantage')"


def _without_effect(config: PolicyConfig, path: str) -> list[ConfigIssue]:
    issues = []
    if config.initial != "data" and not config.warmup_step:
        issues.append(ConfigIssue(f"{path}.initial", "holds during the warm-up, and `warmup_step` is 0"))
    if config.unlisted == "keep" and config.domains is None:
        issues.append(ConfigIssue(f"{path}.unlisted", "is 'keep', and without `domains` all domains are kept anyway"))
    return issues


def domain_issues(policy: MixPolicy, names: Iterable[str]) -> list[ConfigIssue]:
    """Parameters of a mix policy that do not fit the domains."""
    names = tuple(names)
    issues = []
    try:
        policy.mixer.begin(names)
    except ValueError as error:
        issues.append(ConfigIssue(f"{policy.path}.actuator.params", str(error)))
    try:
        initial_proportions(policy.initial, names, torch.ones(len(names)))
    except ValueError as error:
        issues.append(ConfigIssue(f"{policy.path}.initial", str(error)))
    return issues


def _check_keys(policy: Mapping[str, Any], path: str, issues: list[ConfigIssue]) -> None:
    """Keys that a policy of its mechanism cannot use."""
    mechanism, apply = policy.get("mechanism"), policy.get("apply")
    wrong: dict[str, str] = {}
    if mechanism == "select" and policy.get("normalize") is not None and apply in ("drop", "mask"):
        wrong["normalize"] = NOT_NORMALIZED
    if mechanism == "reweight":
        wrong["apply"] = "is for `mechanism: select`; a reweighter always gives weights"
        wrong |= dict.fromkeys(("advantages", "refill"), "is for `mechanism: select`; a reweighter keeps all rows")
    if mechanism in SINGLE:
        message = f"is not for `mechanism: {mechanism}`, which decides what is drawn, not what becomes of it"
        wrong |= dict.fromkeys(("apply", "normalize", "advantages", "refill"), message)
    if mechanism == "gate":
        wrong["scorer"] = "is not for `mechanism: gate`, which goes by pass rates; say `signal` for another outcome"
    if str(mechanism) in _KINDS:
        wrong |= dict.fromkeys(_MIX_KEYS if mechanism != "mix" else (), "is for `mechanism: mix`")
        wrong |= dict.fromkeys(_GATE_KEYS if mechanism != "gate" else (), "is for `mechanism: gate`")
    # Not only what is true: `refill: true` is read as a mapping without an entry, and a threshold may be 0.
    given = {key for key, value in policy.items() if value is not None and value is not False}
    issues += [ConfigIssue(f"{path}.{key}", message) for key, message in wrong.items() if key in given]


def _examine_parts(item: Mapping[str, Any], path: str, issues: list[ConfigIssue]) -> None:
    """Look into a policy that cannot be made, so that the mistakes in its parts are found in the same go."""
    actuators = _KINDS.get(str(item.get("mechanism")), _ANY)
    for part, candidates in (("scorer", ("scorer",)), ("actuator", actuators)):
        value = item.get(part)
        if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
            continue
        entry = find_entry(candidates, value["name"], f"{path}.{part}.name", issues)
        params = value.get("params", {})
        if entry is not None and isinstance(params, Mapping):
            named = {key: item for key, item in params.items() if isinstance(key, str)}
            make_handler(entry.component, {**entry.preset, **named}, f"{path}.{part}.params", issues)


def _unique(name: str, made: Iterable[Made]) -> str:
    taken = {policy.name for policy in made}
    count, candidate = 1, name
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    return candidate
