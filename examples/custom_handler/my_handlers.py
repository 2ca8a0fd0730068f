"""Handlers of a user: a scorer that a built-in reweighter acts on, and an observer that logs metrics of its own.

Nothing is registered. The `dataflex:` block names them by import string, `my_handlers:Brevity`.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Observer, RolloutDone, Scorer, StepEnd, on


@dataclass
class Brevity(Scorer):
    """Rewards that were earned with few tokens score high: the reward over the tokens beyond `free_tokens`.

    Attributes:
        free_tokens: Tokens that cost nothing.
    """

    # What the scorer reads. `length` is always there.
    fields: ClassVar[tuple[str, ...]] = ("reward",)

    free_tokens: Annotated[int, Field(ge=0)] = 0

    def score(self, batch: Batch) -> Tensor:
        return batch["reward"] / (batch.length - self.free_tokens).clamp(min=1)


class WrongAnswers(Observer):
    """Logs how long wrong answers are, and how many steps in a row had no right answer at all."""

    def __init__(self) -> None:
        self.steps_without = 0

    @on(RolloutDone, fields=["reward"])
    def watch(self, event: RolloutDone) -> None:
        wrong = event.batch["reward"] <= 0
        self.steps_without = self.steps_without + 1 if bool(wrong.all()) else 0
        if bool(wrong.any()):
            event.context.metric("my/wrong_answer_tokens", event.batch.length[wrong].float().mean())

    @on(StepEnd)
    def report(self, event: StepEnd) -> None:
        event.metrics["my/steps_without_right_answer"] = self.steps_without
