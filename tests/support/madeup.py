"""Rollouts made up from a seed, and runs of our trainer on them that need neither model nor Ray."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from fakequeue import FakeQueue
from faketrainer import FakeTrainer
from omegaconf import DictConfig

SOLVED = (1.0, 0.0, 0.6, 0.1, 0.5, 0.3)  # how often rollouts of each prompt succeed


@dataclass(frozen=True)
class Rollout:
    """One trajectory, and what the policy thinks of each of its tokens.

    Attributes:
        reward: It sits on the last token.
        mask: 1 for what the policy wrote, 0 for what a tool did.
        probs: Probability of each token.
        entropy: Of the distribution that each token was drawn from.
    """

    prompt: str
    number: int
    reward: float
    mask: tuple[int, ...]
    probs: tuple[float, ...]
    entropy: tuple[float, ...]

    @property
    def key(self) -> str:
        return f"{self.prompt}_{self.number}_0"

    @property
    def length(self) -> int:
        """Tokens that count."""
        return sum(self.mask)


Step = Sequence[Rollout]


def make_step(generator: random.Random, rollouts_per_prompt: int) -> Step:
    """Rollouts of six prompts, in order. The first prompt is always solved, the second never."""

    def rollout(prompt: str, number: int, solved: float) -> Rollout:
        length = generator.randint(2, 7)
        success = generator.random() < solved
        return Rollout(
            prompt=prompt,
            number=number,
            reward=generator.choice([1.0, 0.75]) if success and solved < 1 else float(success),
            mask=(1, *(generator.choice([1, 1, 1, 0]) for _ in range(length - 1))),
            probs=tuple(generator.uniform(0.05, 1.0) for _ in range(length)),
            entropy=tuple(generator.uniform(0.0, 3.0) for _ in range(length)),
        )

    return [
        rollout(f"prompt{at}", number, solved)
        for at, solved in enumerate(SOLVED)
        for number in range(rollouts_per_prompt)
    ]


class MadeUpRun(FakeTrainer):
    """A run over made-up steps.

    Args:
        config: verl's configuration with a `dataflex:` block.
        queue: The stand-in for TransferQueue.
        steps: What is generated.
    """

    def __init__(self, config: DictConfig, queue: FakeQueue, steps: Sequence[Step]) -> None:
        super().__init__(config)
        self.connect(queue)
        self._steps = steps

    def generate(self) -> Iterator[None]:
        for step in self._steps:
            for rollout in step:
                scores = torch.zeros(len(rollout.mask))
                scores[-1] = rollout.reward
                self.queue.put(
                    rollout.key,
                    uid=rollout.prompt,
                    responses=torch.arange(len(rollout.mask)),
                    response_mask=torch.tensor(rollout.mask),
                    loss_mask=torch.tensor(rollout.mask),
                    rm_scores=scores,
                )
                self.actor_rollout_wg.computed[rollout.key] = {
                    "old_log_probs": torch.tensor([math.log(value) for value in rollout.probs]),
                    "entropy": torch.tensor(rollout.entropy),
                }
            yield
