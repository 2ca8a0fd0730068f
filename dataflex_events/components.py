"""Bases of the components that a policy is made of. Derive a dataclass; its fields are its YAML parameters."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_type_hints

import pydantic
from pydantic.fields import FieldInfo
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.context import Normalize

Scope = Literal["group", "row", "token"]


class Handler(ABC):
    """Base of all components. Subclasses are dataclasses; their parameters are checked when one is made.

    Attributes:
        fields: Batch fields that the component reads.
    """

    fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Check the parameters.

        Raises:
            pydantic.ValidationError: A parameter has the wrong type or is out of range.
        """
        check_parameters(type(self), {name: getattr(self, name) for name in parameters(type(self))})


class Scorer(Handler):
    """Gives every row or token a score. What a score means is up to the actuator that reads it.

    Attributes:
        per: "group" if all rows of a group share one score, else "row" or "token".
    """

    per: ClassVar[Scope] = "row"

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
    """Turns scores into the choice which rows to train on."""

    @abstractmethod
    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        """Choose rows.

        Args:
            scores: `(N,)` float32, NaN where there is no score.
            batch: The batch that was scored.

        Returns:
            `(N,)` bool, true for rows to keep. False where there is no score.
        """


class Observer(Handler):
    """Watches: its methods are marked with `@on`. It logs, records or checks, and never proposes anything."""


@lru_cache(maxsize=None)
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


def check_parameters(component: type[Handler], values: Mapping[str, Any]) -> None:
    """Check parameter values without making the component.

    Raises:
        pydantic.ValidationError: One entry for every unknown, missing, mistyped or out-of-range parameter.
    """
    _parameter_model(component).model_validate(dict(values))


@lru_cache(maxsize=None)
def _parameter_model(component: type[Handler]) -> type[pydantic.BaseModel]:
    declared = dataclasses.fields(component) if dataclasses.is_dataclass(component) else ()
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
        described[spec.name] = (hints[spec.name], default)
    config = pydantic.ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, protected_namespaces=())
    return pydantic.create_model(component.__name__, __config__=config, **described)


def _hints(component: type, names: set[str]) -> dict[str, Any]:
    """Types of the named fields only: other annotations may name what is imported for type checkers alone."""
    hints: dict[str, Any] = {}
    for cls in reversed(component.__mro__):
        own = {name: hint for name, hint in vars(cls).get("__annotations__", {}).items() if name in names}
        bare = type(cls.__name__, (), {"__annotations__": own, "__module__": cls.__module__})
        hints |= get_type_hints(bare, include_extras=True)
    return hints
