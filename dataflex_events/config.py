"""The `dataflex:` block: what it may say, and everything that is wrong with one, at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from dataflex_events.bus import OnError
from dataflex_events.context import Baseline, Normalize
from dataflex_events.errors import ConfigIssue, nearest

Mechanism = Literal["select", "reweight"]
HowToApply = Literal["drop", "weight", "mask"]

ROOT = "dataflex"
# Mechanisms that have a name and are not there yet.
LATER = ("mix", "gate")
_NOTHING = "asks for nothing: give it a policy (`mechanism`, `scorer`, `actuator`), a list of `policies`, or `handlers`"

# pydantic speaks Python, the reader has written YAML.
_YAML_TERMS = {
    "dict_type": "should be a mapping",
    "invalid_key": "keys should be text",
    "list_type": "should be a list",
    "model_type": "should be a mapping",
    "string_type": "should be text",
}

M = TypeVar("M", bound=BaseModel)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ComponentConfig(_Strict):
    """A component by name (or import string `module:Class`) and its parameters."""

    name: str
    params: dict[str, Any] = {}


class PolicyConfig(_Strict):
    """One scorer and one actuator.

    Attributes:
        mechanism: "select" or "reweight".
        scorer: What is measured.
        actuator: What is done about it.
        name: Names the policy in logs; by default the actuator's name.
        apply: How a selection is applied. "drop" takes the rows out of the batch before any compute, "weight" gives
            them weight 0 in the policy loss, "mask" takes them out of all losses. By default "drop" where the score is
            known early enough, else "weight".
        normalize: How weights, or what a selection with `apply: weight` leaves, are normalised; by default as the
            actuator does.
        advantages: Over which rows of a group its baseline is computed: those that are kept ("subset") or all
            ("full"). By default as the selector does, or as it comes: over what is left with `apply: drop`, else all.
        warmup_step: Steps at the beginning of the run that the policy leaves alone.
        update_step: From then on it acts in one step of so many.
        shadow: Compute and log what the policy would do, apply nothing.
        refill: Replace groups that are dropped by fresh ones.
    """

    mechanism: Mechanism
    scorer: ComponentConfig
    actuator: ComponentConfig
    name: str | None = None
    apply: HowToApply | None = None
    normalize: Normalize | None = None
    advantages: Baseline | None = None
    warmup_step: Annotated[int, Field(ge=0)] = 0
    update_step: Annotated[int, Field(ge=1)] = 1
    shadow: bool = False
    refill: bool | dict[str, Any] = False


# `shadow` at the top of a block is that of the whole run.
_SHORT_FORM = tuple(key for key in PolicyConfig.model_fields if key != "shadow")


class HandlerConfig(_Strict):
    """A user's own handler: an import string `module:attribute`; a class is made with `params`."""

    path: str
    params: dict[str, Any] = {}


class Settings(_Strict):
    """A whole block.

    Attributes:
        policies: What decides, as a list or by name. May be empty if there are handlers.
        handlers: What else is attached.
        shadow: Compute and log what all policies and handlers would do, apply nothing.
        tensorboard: Parameters of the TensorBoard observer, or null.
        on_error: What happens when a handler raises.
        verify_every: Steps between two far-end verifications; 0 verifies only the first.
    """

    policies: list[PolicyConfig] = []
    handlers: list[HandlerConfig] = []
    shadow: bool = False
    tensorboard: dict[str, Any] | None = None
    on_error: OnError = "raise"
    verify_every: Annotated[int, Field(ge=0)] = 50


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
    short = {key: values.pop(key) for key in _SHORT_FORM if key in values}
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
    issues += _later(policies, paths)
    settings = Settings()
    try:
        settings = Settings.model_validate(_without_later(values))
    except pydantic.ValidationError as error:
        issues += [_issue(details, paths, "policies" in (block or {})) for details in error.errors()]
    if not (issues or settings.policies or settings.handlers):
        issues.append(ConfigIssue(ROOT, _NOTHING))
    handlers = {at: readable(HandlerConfig, item) for at, item in _items(values, "handlers")}
    tensorboard = values.get("tensorboard")
    return Parsed(
        settings=settings,
        policies={
            at: readable(PolicyConfig, item) or item
            for at, item in policies.items()
            if item.get("mechanism") not in LATER
        },
        handlers={at: config for at, config in handlers.items() if config is not None},
        tensorboard=tensorboard if isinstance(tensorboard, dict) else None,
        issues=tuple(issues),
        paths=paths,
        short=bool(short),
    )


def _named(name: Any, item: Any) -> Any:
    return {**item, "name": item.get("name") or str(name)} if isinstance(item, Mapping) else item


def _later(policies: Mapping[int, Mapping[str, Any]], paths: Mapping[int, str]) -> list[ConfigIssue]:
    """Policies of mechanisms that are not there yet, and of a mechanism of which a run has one at most."""
    issues = []
    seen: dict[str, str] = {}
    for at, item in policies.items():
        mechanism = item.get("mechanism")
        if mechanism not in LATER:
            continue
        if mechanism in seen:
            message = f"a second {mechanism!r}: a run has one at most, and {seen[mechanism]} is one"
        else:
            message = f"{mechanism!r} is not available in this version (available: select, reweight)"
        seen.setdefault(mechanism, paths[at])
        issues.append(ConfigIssue(f"{paths[at]}.mechanism", message))
    return issues


def _without_later(values: Mapping[str, Any]) -> dict[str, Any]:
    """The block with a blank in place of each policy of a mechanism that is not there yet."""
    blank = {"mechanism": "select", "scorer": {"name": ""}, "actuator": {"name": ""}}
    if not _is_list(values.get("policies")):
        return dict(values)
    listed = [item for _, item in _items(values, "policies")]
    policies = [blank if isinstance(item, Mapping) and item.get("mechanism") in LATER else item for item in listed]
    return {**values, "policies": policies}


def readable(model: type[M], item: Any) -> M | None:
    """The item if it can be read on its own, so that mistakes further inside it are found in the same go."""
    try:
        return model.model_validate(item)
    except pydantic.ValidationError:
        return None


def parameter_issues(error: pydantic.ValidationError, path: str, known: Iterable[str]) -> list[ConfigIssue]:
    """Say what is wrong with a component's parameters."""
    known = list(known)
    return [ConfigIssue(_join(path, details["loc"]), _say(details, known)) for details in error.errors()]


def _issue(details: Any, paths: Mapping[int, str], long: bool) -> ConfigIssue:
    location = list(details["loc"])
    known = _known_keys(location) + (list(_SHORT_FORM) if len(location) == 1 and not long else [])
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
    message = str(_YAML_TERMS.get(kind, details["msg"])).removeprefix("Input ")
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
    return list(model.model_fields)


def _items(values: Mapping[str, Any], key: str) -> list[tuple[int, Any]]:
    items = values.get(key)
    return list(enumerate(items)) if items is not None and _is_list(items) else []


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _join(path: str, location: Iterable[Any]) -> str:
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path
