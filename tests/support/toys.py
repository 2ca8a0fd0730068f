"""Small components and handlers for tests. A configuration names them by import string, such as `toys:RowNumber`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from dataflex_events import (
    AdvantageComputed,
    Batch,
    BufferSample,
    DomainStats,
    Mixer,
    Observer,
    Reweighter,
    RolloutDone,
    RunStart,
    Scorer,
    Selector,
    StepEnd,
    on,
)


@dataclass
class RowNumber(Scorer):
    """Scores rows 1, 2, 3... plus `start`, and remembers the size of every batch that it scored."""

    calls: ClassVar[list[int]] = []

    start: float = 0.0

    def score(self, batch: Batch) -> Tensor:
        self.calls.append(len(batch))
        return torch.arange(1.0, len(batch) + 1) + self.start


@dataclass
class TokenNumber(Scorer):
    per = "token"
    fields = ("response_mask",)

    def score(self, batch: Batch) -> Tensor:
        return torch.arange(1.0, batch.tokens + 1)


@dataclass
class OddScorer(Scorer):
    """Returns whatever a test puts into `value`."""

    value: ClassVar[Any] = None

    def score(self, batch: Batch) -> Tensor:
        return self.value


@dataclass
class AsWeights(Reweighter):
    """Scores are the weights."""

    normalize = "none"

    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        return scores


@dataclass
class OddReweighter(Reweighter):
    """Returns whatever a test puts into `value`."""

    value: ClassVar[Any] = None

    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        return self.value


@dataclass
class Picky(Reweighter):
    """Checks a parameter on its own."""

    share: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share > 1:
            raise ValueError(f"share {self.share} is more than all")

    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        return scores


class NoDataclass(Reweighter):
    """Its author forgot `@dataclass`."""

    share: float = 0.5

    def weigh(self, scores: Tensor, batch: Batch) -> Tensor:
        return scores


@dataclass
class KeepFrom(Selector):
    low: float = 0.0

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        return scores >= self.low


@dataclass
class LateScore(Scorer):
    fields = ("old_log_probs",)

    def score(self, batch: Batch) -> Tensor:
        return torch.zeros(len(batch))


@dataclass
class LateSelector(Selector):
    """Reads a field that does not exist before advantages are computed."""

    fields = ("old_log_probs",)

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        return scores > 0


@dataclass
class Called(Mixer):
    """Notes each call, and counts up."""

    raises: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.updates: list[int] = []
        self.decisions = 0

    def update(self, stats: DomainStats) -> None:
        self.updates.append(int(stats.count.sum()))

    def mix(self, stats: DomainStats) -> Tensor:
        self.decisions += 1
        if self.raises:
            raise RuntimeError("no idea")
        return torch.tensor([1.0, float(self.decisions)])


@dataclass
class Best(Selector):
    """Keeps the rows with the highest score of the batch."""

    scope = "batch"

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        return scores == scores.max()


@dataclass
class Tokens(Selector):
    """Keeps tokens whose score is above 1."""

    scope = "token"
    normalize = "none"

    def select(self, scores: Tensor, batch: Batch) -> Tensor:
        return scores > 1


@dataclass
class Started(Scorer):
    """Scores every row with the number of rollouts for a prompt, which it learns at the start of the run."""

    fields = ("reward",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rollouts = 0

    @on(RunStart)
    def learn(self, event: RunStart) -> None:
        self._rollouts = event.run.rollouts_per_prompt

    def score(self, batch: Batch) -> Tensor:
        return torch.full((len(batch),), float(self._rollouts))


@on(StepEnd)
def watch(event: StepEnd) -> None:
    event.metrics["watched"] = 1.0


@on(BufferSample)
def watch_draws(event: BufferSample) -> None:
    pass


@on(RolloutDone, fields=["row_id"])
def reads_rows(event: RolloutDone) -> None:
    pass


@on(AdvantageComputed, fields=["values"])
def reads_values(event: AdvantageComputed) -> None:
    pass


class Watcher:
    def __init__(self, label: str = "none") -> None:
        if label == "lost":
            raise KeyError(label)
        self.label = label

    @on(StepEnd)
    def watch(self, event: StepEnd) -> None:
        event.metrics[f"watched/{self.label}"] = 1.0


@dataclass
class CheckedWatcher(Observer):
    every: Annotated[int, Field(gt=0)] = 1

    @on(StepEnd)
    def watch(self, event: StepEnd) -> None:
        pass


class NothingMarked:
    pass
