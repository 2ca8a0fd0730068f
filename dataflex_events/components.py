"""Bases of the components that a policy is made of. Derive a dataclass; its fields are its YAML parameters."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

import pydantic
from pydantic.fields import FieldInfo
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.context import Baseline as Baseline
from dataflex_events.context import Normalize as Normalize
from dataflex_events.context import Scope as Scope
from dataflex_events.context import SelectorScope as SelectorScope
from dataflex_events.errors import FieldError
from dataflex_events.events import Event
from dataflex_events.marks import check_fields


class Handler(ABC):  # noqa: B024 - an observer has no method that it must implement
    """Base of all components. Subclasses are dataclasses; their parameters are checked when one is made.

    Attributes:
        fields: Batch fields that the component reads.
    """

    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Check what the class declares.

        Raises:
            FieldError: It declares a field that no run has.
        """
        super().__init_subclass__(**kwargs)
        declared = cls.__dict__.get("fields", ())
        if isinstance(declared, property):  # they depend on a parameter
            return
        try:
            check_fields(declared, Event)
        except FieldError as error:
            raise FieldError(f"{cls.__qualname__}.fields: {error}") from None
        if isinstance(declared, str):  # ("reward") is a string, ("reward",) a tuple
            cls.fields = (declared,)

    def __post_init__(self) -> None:
        """Check the parameters and keep them in the declared types (1 becomes 1.0 where a float is meant).

        Raises:
            pydantic.ValidationError: A parameter has the wrong type or is out of range.
        """
        given = {name: getattr(self, name) for name in parameters(type(self))}
        for name, value in check_parameters(type(self), given).items():
            object.__setattr__(self, name, value)  # a component may be a frozen dataclass

    def state_dict(self) -> dict[str, Any]:
        """What must survive a restart: plain values that JSON can hold, and tensors. By default nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            ValueError: It is not a state of this component.
        """
        if state:
            raise ValueError(f"{type(self).__name__} has no state, but is given {', '.join(map(repr, state))}")


class Scorer(Handler):
    """Gives every row or token a score. What a score means is up to the actuator that reads it.

    Attributes:
        per: "group" if all rows of a group share one score, else "row" or "token".
        needs_groups: The score compares the rollouts of one prompt. Refused in a run that has no such groups.
    """

    per: ClassVar[Scope] = "row"
    needs_groups: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _check_signature(cls, "score", "batch")

    @abstractmethod
    def score(self, batch: Batch) -> Tensor:
        """Score a batch.

        Returns:
            `(N,)` or, for a token scorer, `(T,)`. NaN where there is no score; never an invented value.
        """


class Reweighter(Handler):
    """Turns scores into weights of the policy loss.

    Attributes:
        normalize: How the weights are normalised if the policy does not say (see `UpdateContext.weigh`).
    """

    normalize: ClassVar[Normalize] = "auto"

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _check_signature(cls, "weigh", "scores, batch")

    @abstractmethod
    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        """Weights for a batch.

        Args:
            scores: `(N,)` or `(T,)` float32, NaN where there is no score.
            batch: The batch that was scored.

        Returns:
            `(N,)` or `(T,)`, finite and >= 0. 1 where there is no score.
        """


class Selector(Handler):
    """Turns scores into the choice which rows, or which tokens, to train on.

    Attributes:
        scope: What it looks at to choose. "score": each score alone, so that it chooses groups, rows or tokens as the
            scorer scores these. "within_group": rows of a group by comparison with each other. "batch": rows of the
            whole batch by comparison with each other. "token": tokens, from the scores of tokens.
        normalize: With `apply: weight`, what of the chosen rows or tokens is scaled up to mean 1, if the policy does
            not say (see `UpdateContext.keep`).
    """

    scope: ClassVar[SelectorScope] = "score"
    normalize: ClassVar[Normalize] = "auto"

    def baseline(self) -> Baseline | None:
        """Over which rows of a group the selection wants the group's baseline; None if it does not care."""
        return None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _check_signature(cls, "select", "scores, batch")

    @abstractmethod
    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        """Choose rows or tokens.

        Args:
            scores: `(N,)` or `(T,)` float32, NaN where there is no score.
            batch: The batch that was scored.

        Returns:
            `(N,)` or `(T,)` bool, true for what to keep. False where there is no score.
        """


class Observer(Handler):
    """Watches: its methods are marked with `@on`. It logs, records or checks, and never proposes anything."""


def _check_signature(component: type, method: str, arguments: str) -> None:
    """Refuse a method that cannot be called as it will be, when its class is made and not in the middle of a run."""
    try:
        inspect.signature(getattr(component, method)).bind(None, *arguments.split(", "))
    except TypeError as error:
        raise TypeError(f"{component.__name__}.{method} must take the arguments ({arguments})") from error


@cache
def parameters(component: type[Handler]) -> Mapping[str, Any]:
    """Parameter names of a component and their defaults (`...` where there is none)."""
    described = parameter_fields(component)
    return {
        name: ... if info.is_required() else info.get_default(call_default_factory=True)
        for name, info in described.items()
    }


def parameter_fields(component: type[Handler]) -> Mapping[str, FieldInfo]:
    """Parameter names of a component and what pydantic knows about each: type, bounds, default."""
    return _parameter_model(component).model_fields


def check_parameters(component: type[Handler], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check parameter values without making the component.

    Returns:
        All parameters, in their declared types.

    Raises:
        pydantic.ValidationError: One entry for every unknown, missing, mistyped or out-of-range parameter.
    """
    return dict(_parameter_model(component).model_validate(dict(values)))


@cache
def _parameter_model(component: type[Handler]) -> type[pydantic.BaseModel]:
    declared: tuple[dataclasses.Field[Any], ...] = ()
    if dataclasses.is_dataclass(component):
        declared = dataclasses.fields(component)
    wanted = [spec for spec in declared if spec.init]
    hints = _hints(component, {spec.name for spec in wanted})
    described: dict[str, Any] = {}
    for spec in wanted:
        if spec.default is not dataclasses.MISSING:
            default: Any = spec.default
        elif spec.default_factory is not dataclasses.MISSING:
            default = pydantic.Field(default_factory=spec.default_factory)
        else:
            default = ...
        described[spec.name] = (_from_yaml(hints[spec.name]), default)
    config = pydantic.ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, protected_namespaces=())
    return pydantic.create_model(component.__name__, __config__=config, **described)


def _from_yaml(hint: Any) -> Any:
    """The same type, but wherever it has a tuple a list will do: YAML has no tuples."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _subscript(Annotated, (_from_yaml(arguments[0]), *arguments[1:]))
    if origin in (Union, UnionType):
        return reduce(or_, map(_from_yaml, arguments))
    if origin in (list, dict, tuple):
        hint = _subscript(origin, tuple(map(_from_yaml, arguments)))
    return _subscript(Annotated, (hint, pydantic.Strict(False))) if tuple in (hint, origin) else hint


def _subscript(generic: Any, arguments: tuple[Any, ...]) -> Any:
    return generic[arguments]


def _hints(component: type, names: set[str]) -> dict[str, Any]:
    """Types of the named fields only: other annotations may name what is imported for type checkers alone."""
    hints: dict[str, Any] = {}
    for cls in reversed(component.__mro__):
        own = {name: hint for name, hint in vars(cls).get("__annotations__", {}).items() if name in names}
        bare = type(cls.__name__, (), {"__annotations__": own, "__module__": cls.__module__})
        hints |= get_type_hints(bare, include_extras=True)
    return hints
