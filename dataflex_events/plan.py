"""From a `dataflex:` block to handlers on a bus."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflex_events.bill import Bill
from dataflex_events.bus import EventBus
from dataflex_events.checkpoint import Part, Stateful
from dataflex_events.components import Handler
from dataflex_events.config import Settings
from dataflex_events.context import Baseline
from dataflex_events.errors import ConfigError, ConfigIssue
from dataflex_events.events import AdvantageComputed, RolloutDone
from dataflex_events.gating import GatePolicy
from dataflex_events.make import make_observers
from dataflex_events.marks import marked, name_of
from dataflex_events.mixing import MixPolicy
from dataflex_events.parameters import parameters
from dataflex_events.parsing import parse
from dataflex_events.policies import make_policies
from dataflex_events.policy import Policy, subscribe_policies
from dataflex_events.refill import Refill

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a run attaches to its bus.

    Attributes:
        settings: The block.
        policies: Scorers and actuators.
        observers: `(name, handler)` of everything else.
        mix: The policy that decides by which proportions the domains are drawn.
        gate: The policy that decides which prompts of each domain are drawn.
    """

    settings: Settings
    policies: tuple[Policy, ...]
    observers: tuple[tuple[str | None, object], ...]
    mix: MixPolicy | None = None
    gate: GatePolicy | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all policies."""
        return tuple(policy.name for policy in (*self.policies, self.mix, self.gate) if policy is not None)

    @property
    def draws(self) -> bool:
        """True if a policy decides what is drawn."""
        return any(policy is not None and not policy.shadow for policy in (self.mix, self.gate))

    @property
    def refill(self) -> Refill | None:
        """How groups that a policy drops are replaced; None: they are not."""
        return next((policy.refill for policy in self.applied if policy.refills), None)

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

    def parts(self) -> dict[str, Part]:
        """Everything that may have a state, by a name that is the same in a restarted run."""
        parts = {f"policy {policy.name!r}": _part(policy.actuator) for policy in self.policies}
        scored = [policy for policy in (*self.policies, self.mix) if policy is not None]
        parts |= {f"scorer {policy.key}": _part(policy.scorer) for policy in scored}
        if self.mix is not None:
            mix = self.mix
            where = f" in {_domains(mix.stats.names)}"
            windows = f", of {mix.mixer.keeps_steps} steps and {mix.mixer.keeps_rollouts} rollouts"
            # A run has one mix policy at most, whatever its name is.
            parts["mix"] = Part(f"scores of {mix.key}{where}{windows}", mix)
            parts["mixer"] = _part(mix.mixer, f" on scores of {mix.key}{where}")
        if self.gate is not None:
            gate = self.gate
            counted = f"outcomes by {gate.reads} above {gate.success_threshold}"
            parts["prompts"] = Part(f"{counted}, of which {gate.gate.forgets} is kept", gate)
            parts["gate"] = _part(gate.gate, f" on {counted}")
        for _, observer in self.observers:
            if isinstance(observer, Stateful):
                name, number = f"handler {type(observer).__qualname__}", 1
                while name in parts:
                    number += 1
                    name = f"handler {type(observer).__qualname__} {number}"
                parts[name] = _part(observer)
        return parts

    def bus(self) -> EventBus:
        """A bus with everything attached: policies first, in their order, then handlers."""
        bus = EventBus(on_error=self.settings.on_error)
        subscribe_policies(bus, self.policies, self.mix, self.gate)
        if self.mix is not None or self.gate is not None or self.refill is not None:
            Bill(shadow=self.settings.shadow).subscribe(bus)
        for name, observer in self.observers:
            bus.attach(observer, name=name)
        return bus


def _part(owner: Stateful, where: str = "") -> Part:
    kind = f"{type(owner).__module__}:{type(owner).__qualname__}"
    if not isinstance(owner, Handler):
        return Part(kind, owner)
    values = ", ".join(f"{key}={getattr(owner, key)!r}" for key in parameters(type(owner)))
    return Part(f"{kind}({values}){where}", owner)


def _domains(names: Sequence[str]) -> str:
    """Domains in words, different for different ones, also where there are too many to name."""
    shown = ", ".join(map(repr, names[:_SHOWN])) + ", ..." * (len(names) > _SHOWN)
    digest = hashlib.sha256(repr(list(names)).encode()).hexdigest()[:8]
    return f"{len(names)} domains ({shown}; {digest})"


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
    policies, mix, gate = make_policies(parsed, issues)
    observers = make_observers(parsed, issues)
    return Plan(parsed.settings, tuple(policies), tuple(observers), mix, gate), issues
