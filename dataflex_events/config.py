"""The `dataflex:` block: what it may say, and everything that is wrong with one, at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from dataflex_events.bus import OnError
from dataflex_events.context import Normalize
from dataflex_events.errors import ConfigIssue, nearest

Mechanism = Literal["select", "reweight"]
Apply = Literal["drop", "weight"]

ROOT = "dataflex"
_SHORT_FORM = ("mechanism", "scorer", "actuator", "name", "apply", "normalize")
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
            them weight 0. By default "drop" where the score is known early enough.
        normalize: How weights are normalised; by default as the reweighter does.
    """

    mechanism: Mechanism
    scorer: ComponentConfig
    actuator: ComponentConfig
    name: str | None = None
    apply: Apply | None = None
    normalize: Normalize | None = None


class HandlerConfig(_Strict):
    """A user's own handler: an import string `module:attribute`; a class is made with `params`."""

    path: str
    params: dict[str, Any] = {}


class Settings(_Strict):
    """A whole block.

    Attributes:
        policies: What decides. May be empty if there are handlers.
        handlers: What else is attached.
        tensorboard: Parameters of the TensorBoard observer, or null.
        on_error: What happens when a handler raises.
        verify_every: Steps between two far-end verifications; 0 verifies only the first.
    """

    policies: list[PolicyConfig] = []
    handlers: list[HandlerConfig] = []
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
        short: True for the short form.
    """

    settings: Settings
    policies: Mapping[int, PolicyConfig | Mapping[str, Any]]
    handlers: Mapping[int, HandlerConfig]
    tensorboard: dict[str, Any] | None
    issues: tuple[ConfigIssue, ...]
    short: bool

    def policy_path(self, position: int) -> str:
        """Where a policy stands in the configuration."""
        return ROOT if self.short else f"{ROOT}.policies[{position}]"


def parse(block: Mapping[str, Any] | None) -> Parsed:
    """Read a block, in the short form (one policy at the top) or with `policies:`."""
    issues: list[ConfigIssue] = []
    if block is not None and not isinstance(block, Mapping):
        issues.append(ConfigIssue(ROOT, f"should be a mapping, not {block!r}"))
        block = None
    values = dict(block or {})
    short = {key: values.pop(key) for key in _SHORT_FORM if key in values}
    if short and "policies" in values:
        listed = ", ".join(short)
        message = f"give either `policies` or the short form ({listed}), not both"
        issues.append(ConfigIssue(f"{ROOT}.policies", message))
        short = {}
    elif short:
        values["policies"] = [short]
    if _is_list(values.get("handlers")):
        values["handlers"] = [{"path": item} if isinstance(item, str) else item for item in values["handlers"]]
    settings = Settings()
    try:
        settings = Settings.model_validate(values)
    except pydantic.ValidationError as error:
        issues += [_issue(details, bool(short), "policies" in (block or {})) for details in error.errors()]
    if not (issues or settings.policies or settings.handlers):
        issues.append(ConfigIssue(ROOT, _NOTHING))
    policies = {at: item for at, item in _items(values, "policies") if isinstance(item, Mapping)}
    handlers = {at: readable(HandlerConfig, item) for at, item in _items(values, "handlers")}
    tensorboard = values.get("tensorboard")
    return Parsed(
        settings=settings,
        policies={at: readable(PolicyConfig, item) or item for at, item in policies.items()},
        handlers={at: config for at, config in handlers.items() if config is not None},
        tensorboard=tensorboard if isinstance(tensorboard, dict) else None,
        issues=tuple(issues),
        short=bool(short),
    )


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


def _issue(details: Any, short: bool, long: bool) -> ConfigIssue:
    location = list(details["loc"])
    known = _known_keys(location) + (list(_SHORT_FORM) if len(location) == 1 and not long else [])
    if short and location[:2] == ["policies", 0]:
        location = location[2:]
    return ConfigIssue(_join(ROOT, location), _say(details, known))


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
