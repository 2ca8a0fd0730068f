"""Gate `adarft`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from dataflex_events import DomainTable, Gate, PromptHistory, RowSource, StepGroups, register
from dataflex_events.nearest_rows import NearestRows

Number = Annotated[float, Field(allow_inf_nan=False)]


@register("adarft")
@dataclass
class Adarft(Gate):
    """Draws the prompts whose given difficulty is closest to one that follows the pass rate: AdaRFT.

    After every step with pass rate R the difficulty that it looks for becomes

        T <- clip(T + step * tanh(sensitivity * (R - target)), lowest, highest)

    between the lowest and the highest difficulty of the data: harder while the model solves more than `target`, easier
    while it solves less. While half of a domain's rows are drawn, none of them comes twice; of rows at equal
    distance the lower one comes first.

    Source: arXiv 2504.05520 and its authors' code, which draws the same prompts again while T stays.

    Attributes:
        column: Column of the dataset with the difficulty of each prompt. The defaults are for a scale from 0 to 100.
        target: Pass rate that it aims at.
        step: Largest change of T in one step, in units of the difficulty.
        sensitivity: How fast it reacts to a pass rate that is off the target.
        start: T in the beginning.
    """

    needs_groups: ClassVar[bool] = False

    column: Annotated[str, Field(min_length=1)]
    target: Annotated[float, Field(ge=0, le=1)] = 0.5
    step: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 50.0
    sensitivity: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    start: Number = 0.0

    _rows: NearestRows | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    @property
    def explore_share(self) -> float:
        return 0.0

    @property
    def source(self) -> RowSource | None:
        return self._rows

    @property
    def difficulty(self) -> float:
        """T, the difficulty that it looks for."""
        return self.start if self._rows is None else self._rows.target

    def begin(self, table: DomainTable, columns: Mapping[str, NDArray[np.float64]]) -> None:
        self._rows = NearestRows(table, columns[self.column])
        self._rows.target = self._clipped(self.start)

    def update(self, groups: StepGroups) -> None:
        if self._rows is not None and len(groups):
            change = self.step * math.tanh(self.sensitivity * (groups.pass_rate - self.target))
            self._rows.target = self._clipped(self._rows.target + change)

    def prefer(self, prompts: PromptHistory, rng: np.random.Generator) -> NDArray[np.float64]:
        return np.zeros(len(prompts))  # they come up in the right order

    def _clipped(self, target: float) -> float:
        assert self._rows is not None
        return float(np.clip(target, self._rows.lowest, self._rows.highest))

    def state_dict(self) -> dict[str, Any]:
        return {} if self._rows is None else self._rows.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert self._rows is not None
        self._rows.load_state_dict(state)
