"""A learner that gets better at what it practises, to see what mixers make of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dataflex_events import Batch, DomainStats, Mixer, Scorer
from dataflex_events.testing import make_batch


@dataclass(frozen=True)
class Skill:
    """The pass rate in a domain: `end - (end - start) * exp(-rollouts / needed)` after so many rollouts of it."""

    start: float
    end: float
    needed: float = math.inf

    def after(self, rollouts: int) -> float:
        return self.end - (self.end - self.start) * math.exp(-rollouts / self.needed)


MASTERED, IMPOSSIBLE = Skill(1.0, 1.0), Skill(0.0, 0.0)


class Learner:
    """Answers prompts of domains. A reward is 1 with the probability that is its pass rate, else 0.

    Attributes:
        names: Names of the domains.
        spent: Rollouts so far, by domain.
    """

    def __init__(self, skills: Mapping[str, Skill], seed: int) -> None:
        self.names = tuple(skills)
        self.spent = dict.fromkeys(skills, 0)
        self._skills = dict(skills)
        self._chance = torch.Generator().manual_seed(seed)

    @property
    def pass_rates(self) -> dict[str, float]:
        return {name: skill.after(self.spent[name]) for name, skill in self._skills.items()}

    def answer(self, domains: Sequence[str], rollouts: int) -> Batch:
        """Generate `rollouts` for a prompt of each of the given domains, and learn from all of them afterwards."""
        rates = self.pass_rates
        draws = torch.rand(len(domains), rollouts, generator=self._chance)
        rewards = [(draw < rates[name]).float().tolist() for name, draw in zip(domains, draws, strict=True)]
        for name in domains:
            self.spent[name] += rollouts
        return make_batch(rewards, domains=domains)

    def draw(self, proportions: Tensor, prompts: int) -> list[str]:
        """Domains of the next prompts, each by chance."""
        drawn = torch.multinomial(proportions, prompts, replacement=True, generator=self._chance)
        return [self.names[code] for code in drawn.tolist()]


def train(
    mixer: Mixer, scorer: Scorer, learner: Learner, *, steps: int, prompts: int = 32, rollouts: int = 8
) -> dict[str, list[float]]:
    """Train step by step on what the mixer asks for.

    Returns:
        Of each domain its share in each step.
    """
    mixer.begin(learner.names)
    stats = DomainStats(learner.names, steps=mixer.keeps_steps, rollouts=mixer.keeps_rollouts)
    shares: list[list[float]] = []
    for step in range(1, steps + 1):
        proportions = mixer.mix(stats)
        shares.append(proportions.tolist())
        batch = learner.answer(learner.draw(proportions, prompts), rollouts)
        code = torch.tensor([learner.names.index(name) for name in batch.domains])
        stats.add(code[batch["domain"]], scorer.score(batch), batch.uid)
        stats.commit(step, proportions)
        mixer.update(stats)
    return dict(zip(learner.names, map(list, zip(*shares, strict=True)), strict=True))
