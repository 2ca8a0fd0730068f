"""The parameters of a component: the fields of its dataclass, checked as they come from YAML."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pydantic
from pydantic.fields import FieldInfo


@cache
def parameters(component: type) -> Mapping[str, Any]:
    """Parameter names of a component and their defaults (`...` where there is none)."""
    described = parameter_fields(component)
    return {
        name: ... if info.is_required() else info.get_default(call_default_factory=True)
        for name, info in described.items()
    }


def parameter_fields(component: type) -> Mapping[str, FieldInfo]:
    """Parameter names of a component and what pydantic knows about each: type, bounds, default."""
    return _parameter_model(component).model_fields


def check_parameters(component: type, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check parameter values without making the component.

    Returns:
        All parameters, in their declared types.

    Raises:
        pydantic.ValidationError: One entry for every unknown, missing, mistyped or out-of-range parameter.
    """
    return dict(_parameter_model(component).model_validate(dict(values)))


@cache
def _parameter_model(component: type) -> type[pydantic.BaseModel]:
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
