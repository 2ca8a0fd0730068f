"""Bases of the components that a policy is made of. Derive a dataclass; its fields are its YAML parameters."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.context import Baseline as Baseline
from dataflex_events.context import Normalize as Normalize
from dataflex_events.context import Scope as Scope
from dataflex_events.context import SelectorScope as SelectorScope
from dataflex_events.errors import FieldError
from dataflex_events.events import Event
from dataflex_events.marks import check_fields
from dataflex_events.parameters import check_parameters, parameters
from dataflex_events.stats import DomainStats


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
        check_signature(cls, "score", "batch")

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
        check_signature(cls, "weigh", "scores, batch")

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
        check_signature(cls, "select", "scores, batch")

    @abstractmethod
    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        """Choose rows or tokens.

        Args:
            scores: `(N,)` or `(T,)` float32, NaN where there is no score.
            batch: The batch that was scored.

        Returns:
            `(N,)` or `(T,)` bool, true for what to keep. False where there is no score.
        """


class Mixer(Handler):
    """Decides from which domains prompts are drawn.

    Attributes:
        default_scorer: The scorer whose scores it reads, if the policy names none.
        keeps_steps: Of how many steps the mean scores of each domain are kept for it.
        keeps_rollouts: Of how many rollouts the scores of each domain are kept for it.
    """

    default_scorer: ClassVar[str] = "reward"

    @property
    def keeps_steps(self) -> int:
        """1: nothing but the latest step."""
        return 1

    @property
    def keeps_rollouts(self) -> int:
        """1: nothing but the latest rollout."""
        return 1

    def begin(self, names: Sequence[str]) -> None:
        """Learn the domains, once, before anything else. Override it to prepare state and to check parameters.

        Args:
            names: Names of the D domains, in the order of all that is `(D,)`.

        Raises:
            ValueError: The parameters do not fit these domains.
        """

    def update(self, stats: DomainStats) -> None:
        """Learn from a step that has ended; `stats.latest` and `stats.proportions` are its own. By default nothing."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_signature(cls, "mix", "stats")

    @abstractmethod
    def mix(self, stats: DomainStats) -> Tensor:
        """Proportions for the next draw.

        Args:
            stats: What is known about the domains.

        Returns:
            `(D,)`, finite, >= 0, not all 0. They are divided by their sum.
        """


class Observer(Handler):
    """Watches: its methods are marked with `@on`. It logs, records or checks, and never proposes anything."""


def check_signature(component: type, method: str, arguments: str) -> None:
    """Refuse a method that cannot be called as it will be, when its class is made and not in the middle of a run."""
    try:
        inspect.signature(getattr(component, method)).bind(None, *arguments.split(", "))
    except TypeError as error:
        raise TypeError(f"{component.__name__}.{method} must take the arguments ({arguments})") from error
