"""What a `dataflex:` block may say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from dataflex_events.bus import OnError
from dataflex_events.context import Baseline, Normalize
from dataflex_events.mixing import Initial, Unlisted
from dataflex_events.refill import OnExhausted

Mechanism = Literal["select", "reweight", "mix", "gate"]
HowToApply = Literal["drop", "weight", "mask"]

ROOT = "dataflex"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ComponentConfig(_Strict):
    """A component by name (or import string `module:Class`) and its parameters."""

    name: str
    params: dict[str, Any] = {}


class RefillConfig(_Strict):
    """How groups that a selection drops are replaced: see `dataflex_events.refill.Refill`."""

    eager: bool = True
    max_generated_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 10.0
    on_exhausted: OnExhausted = "raise"


def _refill(value: Any) -> Any:
    """`true` stands for the defaults, `false` for nothing."""
    return ({} if value else None) if isinstance(value, bool) else value


def _initial(value: Any) -> Any:
    if value in ("data", "uniform"):
        return value
    if isinstance(value, Mapping) and all(isinstance(name, str) and _is_share(value[name]) for name in value):
        if not any(value.values()):
            raise ValueError("should give some domain more than 0")
        return {name: float(share) for name, share in value.items()}
    raise ValueError("should be 'data', 'uniform' or a mapping from domains to numbers >= 0")


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _unique(names: list[str]) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"should name each domain once; {', '.join(map(repr, twice))} is there more often")
    return names


class PolicyConfig(_Strict):
    """One scorer and one actuator.

    Attributes:
        mechanism: "select", "reweight", "mix" or "gate".
        scorer: What is measured. A mixer has one of its own, a gate needs none.
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
        refill: Replace groups that are dropped by fresh ones until the batch is full: true, or how.
        domains: The domains that a mix policy draws from; by default all that the data has.
        domain_key: The dataset column that holds the domain.
        unlisted: With `domains`, what happens to rows of others: they are domains too ("keep"), or are never drawn
            ("ignore"). By default such a row is an error.
        initial: Proportions during `warmup_step`: the shares of the data ("data"), equal ones ("uniform"), or by name.
        window: The mixer's `window`, as DataFlex-RL's files give it.
        signal: What tells a gate how a rollout went: "reward", or the name of another value that the reward function
            returns.
        success_threshold: A rollout with a signal above it succeeded.
    """

    mechanism: Mechanism
    scorer: ComponentConfig | None = None
    actuator: ComponentConfig
    name: str | None = None
    apply: HowToApply | None = None
    normalize: Normalize | None = None
    advantages: Baseline | None = None
    warmup_step: Annotated[int, Field(ge=0)] = 0
    update_step: Annotated[int, Field(ge=1)] = 1
    shadow: bool = False
    refill: Annotated[RefillConfig | None, BeforeValidator(_refill)] = None
    domains: Annotated[list[str], Field(min_length=1), AfterValidator(_unique)] | None = None
    domain_key: str = "domain"
    unlisted: Unlisted | None = None
    initial: Annotated[Initial, PlainValidator(_initial)] = "data"
    window: Annotated[int, Field(ge=1)] | None = None
    signal: Annotated[str, Field(min_length=1)] = "reward"
    success_threshold: Annotated[float, Field(allow_inf_nan=False)] = 0.5


# `shadow` at the top of a block is that of the whole run.
SHORT_FORM = tuple(key for key in PolicyConfig.model_fields if key != "shadow")


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
