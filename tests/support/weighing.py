"""Handlers for end-to-end tests of weights, in the trainer's process. Tests compute the same numbers by hand."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dataflex_events import AdvantageComputed, Observer, on


@on(AdvantageComputed, fields=["old_log_probs"])
def by_token(event: AdvantageComputed) -> None:
    """Weights that differ from token to token and from row to row, so that no mix-up goes unseen."""
    batch = event.batch
    position = torch.arange(batch.tokens) - batch.offsets[:-1].repeat_interleave(batch.length)
    event.context.weigh(0.25 + batch["old_log_probs"].exp() + 0.125 * position)


@on(AdvantageComputed)
def all_one(event: AdvantageComputed) -> None:
    """Weight 1 for every row."""
    event.context.weigh(torch.ones(len(event.batch)))


@dataclass
class Raises(Observer):
    """Proposes weights, logs a metric, and then raises.

    Attributes:
        at: The step in which it does so.
    """

    at: int

    @on(AdvantageComputed)
    def break_down(self, event: AdvantageComputed) -> None:
        if event.step.global_step == self.at:
            weights = torch.ones(len(event.batch))
            weights[0] = 5.0
            event.context.weigh(weights)
            event.context.metric("weighing/half_done", 1.0)
            raise RuntimeError("out of luck")
