"""Bases of the gates. Derive a dataclass; its fields are its YAML parameters."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dataflex_events.components import Handler, check_signature
from dataflex_events.errors import HandlerOutputError
from dataflex_events.pools import DomainTable, RowSource
from dataflex_events.prompt_stats import PromptHistory, StepGroups


class Gate(Handler):
    """Decides which prompts of a domain are generated, from what is known about them.

    Candidates come up in the order of the domain's pool, or of `source`, and the gate prefers some of them. One that
    came up and was not drawn has had its turn: it comes up again in the next pass over the domain. Apart from that a
    share of the prompts is drawn whatever is known about them (`explore_share`), each row of the domain in turn, so
    that every prompt gets another chance within a bounded time.

    Attributes:
        needs_groups: It compares the rollouts of one prompt. Refused in a run that has no such groups.
    """

    needs_groups: ClassVar[bool] = True

    @property
    def looks(self) -> int:
        """How many candidates come up for each prompt that is drawn; more where the gate skips too many."""
        return 1

    @property
    def forgets(self) -> float:
        """What of the evidence for a prompt's success rate is left when it is generated again, in [0, 1]."""
        return 1.0

    @property
    def explore_share(self) -> float:
        """Share of prompts, in [0, 1], that are drawn whatever is known about them."""
        return 0.01

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of columns of the dataset with numbers, which `begin` gets; none by default."""
        return ()

    @property
    def source(self) -> RowSource | None:
        """Where candidates come from, after `begin`; None: from the shuffled pools of the domains."""
        return None

    def begin(self, table: DomainTable, columns: Mapping[str, NDArray[np.float64]]) -> None:
        """Learn the data, once, before anything else. Override it to prepare state.

        Args:
            table: The rows of each domain.
            columns: `(R,)` values of each of the `columns`.
        """

    def update(self, groups: StepGroups) -> None:
        """Learn from a step that has ended. By default nothing: what is known about each prompt is kept anyway."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_signature(cls, "prefer", "prompts, rng")

    @abstractmethod
    def prefer(self, prompts: PromptHistory, rng: np.random.Generator) -> NDArray[np.float64]:
        """How much it prefers each candidate. The highest of a domain are drawn; of equal ones the first that came up.

        Args:
            prompts: The C candidates, in the order in which they came up.
            rng: For random numbers, if it needs any: the same in a run that is repeated or resumed.

        Returns:
            `(C,)`, higher is preferred. NaN skips a candidate: it is drawn only if there is nothing else.
        """


class ChanceGate(Gate):
    """A gate that draws each candidate with a chance of its own."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        check_signature(cls, "chance", "prompts")

    def prefer(self, prompts: PromptHistory, rng: np.random.Generator) -> NDArray[np.float64]:
        chance = np.asarray(self.chance(prompts))
        if chance.shape != (len(prompts),):
            raise HandlerOutputError(f"chances have the shape {chance.shape}, expected ({len(prompts)},)")
        return np.where(rng.random(len(prompts)) < chance, 0.0, np.nan)

    @abstractmethod
    def chance(self, prompts: PromptHistory) -> NDArray[np.float64]:
        """The chance of each candidate to be drawn, `(C,)` in [0, 1]."""
