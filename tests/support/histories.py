"""Random histories of domains, and a plain-Python account of what they make known: dicts, lists and loops."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from dataflex_events import DomainStats, Mixer

# Exact in float32, and sums of them do not depend on the order of addition.
SCORES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, 2.0, -1.5])
SCORES_AND_WORSE = st.one_of(SCORES, SCORES, st.sampled_from([math.nan, math.inf, -math.inf]))


class Rollout(NamedTuple):
    domain: int
    score: float
    row: int


class Step(NamedTuple):
    """A step with its number, what it generated and by which proportions it drew."""

    number: int
    rollouts: list[Rollout]
    proportions: list[float]


@dataclass(frozen=True)
class History:
    names: tuple[str, ...]
    steps: list[Step]

    def renamed(self, order: Sequence[int]) -> History:
        """The same, where what was domain `order[i]` is domain i."""
        place = {old: new for new, old in enumerate(order)}
        return History(
            tuple(self.names[old] for old in order),
            [
                Step(
                    step.number,
                    [rollout._replace(domain=place[rollout.domain]) for rollout in step.rollouts],
                    [step.proportions[old] for old in order],
                )
                for step in self.steps
            ],
        )


@st.composite
def histories(draw: st.DrawFn, scores: st.SearchStrategy[float] = SCORES_AND_WORSE) -> History:
    """Up to 5 domains and 8 steps, numbered with gaps, of up to 8 rollouts: many leave domains out, rows come twice."""
    size = draw(st.integers(1, 5))
    names = tuple(draw(st.permutations([f"d{number}" for number in range(size)])))
    rollouts = st.builds(Rollout, st.integers(0, size - 1), scores, st.integers(0, 4))
    steps, number = [], 0
    for _ in range(draw(st.integers(0, 8))):
        number += draw(st.integers(1, 3))
        numbers = draw(st.lists(st.sampled_from([0, 1, 2, 5]), min_size=size, max_size=size))
        numbers = numbers if any(numbers) else [1] * size
        steps.append(Step(number, draw(st.lists(rollouts, max_size=8)), [value / sum(numbers) for value in numbers]))
    return History(names, steps)


def add(stats: DomainStats, rollouts: Sequence[Rollout]) -> None:
    stats.add(
        torch.tensor([rollout.domain for rollout in rollouts], dtype=torch.int64),
        torch.tensor([rollout.score for rollout in rollouts], dtype=torch.float32),
        torch.tensor([rollout.row for rollout in rollouts], dtype=torch.int64),
    )


def commit(stats: DomainStats, step: Step) -> None:
    add(stats, step.rollouts)
    stats.commit(step.number, torch.tensor(step.proportions, dtype=torch.float64))


def stats_for(mixer: Mixer, names: Sequence[str]) -> DomainStats:
    return DomainStats(names, steps=mixer.keeps_steps, rollouts=mixer.keeps_rollouts)


def shares(mixer: Mixer, stats: DomainStats) -> Tensor:
    """The mixer's proportions, which must be some."""
    found = mixer.mix(stats)
    assert found.shape == (len(stats),)
    assert found.dtype == torch.float64
    assert found.isfinite().all()
    assert (found >= 0).all()
    assert abs(float(found.sum()) - 1) < 1e-9
    return found


def play(mixer: Mixer, history: History) -> list[Tensor]:
    """The mixer's proportions before the first step and after each."""
    mixer.begin(history.names)
    stats = stats_for(mixer, history.names)
    found = [shares(mixer, stats)]
    for step in history.steps:
        commit(stats, step)
        mixer.update(stats)
        found.append(shares(mixer, stats))
    return found


class Account:
    """What is known about the domains.

    Attributes:
        steps: Of each domain those that generated it, `(number, scores)`.
        latest: Mean score of each domain in the latest step, or None.
    """

    def __init__(self, domains: int) -> None:
        self.domains = domains
        self.steps: list[list[tuple[int, list[float]]]] = [[] for _ in range(domains)]
        self.latest: list[float | None] = [None] * domains

    def commit(self, step: Step) -> None:
        self.latest = [None] * self.domains
        for domain in range(self.domains):
            found = [r for r in step.rollouts if r.domain == domain and math.isfinite(r.score)]
            scores = [r.score for r in sorted(found, key=lambda r: (r.row, r.score))]
            if scores:
                self.steps[domain].append((step.number, scores))
                self.latest[domain] = statistics.fmean(scores)

    def scores(self, domain: int) -> list[float]:
        return [score for _, scores in self.steps[domain] for score in scores]

    def mean(self, domain: int, steps: int) -> float | None:
        kept = [score for _, scores in self.steps[domain][-steps:] for score in scores]
        return statistics.fmean(kept) if kept else None

    def recent(self, domain: int, rollouts: int) -> float | None:
        kept = self.scores(domain)[-rollouts:]
        return statistics.fmean(kept) if kept else None

    def slope(self, domain: int, steps: int) -> float:
        kept = self.steps[domain][-steps:]
        if len(kept) < 2:
            return 0.0
        line = statistics.linear_regression([at for at, _ in kept], [statistics.fmean(scores) for _, scores in kept])
        return line.slope


def accounts(history: History) -> Iterable[tuple[Step | None, Account]]:
    """The account before the first step and after each; it is the same object, so look before going on."""
    account = Account(len(history.names))
    yield None, account
    for step in history.steps:
        account.commit(step)
        yield step, account


def softmax(values: Sequence[float], temperature: float) -> list[float]:
    powers = [math.exp((value - max(values)) / temperature) for value in values]
    return [power / math.fsum(powers) for power in powers]


def floored(values: Sequence[float], floor: float) -> list[float]:
    return [floor + (1 - len(values) * floor) * value for value in values]


def agrees(mixer: Mixer, history: History, slowly: Callable[[Step | None, Account], list[float]]) -> None:
    """Compare the mixer's proportions with those of a slow reference, which is called after every step."""
    expected = [slowly(step, account) for step, account in accounts(history)]
    for got, wanted in zip(play(mixer, history), expected, strict=True):
        torch.testing.assert_close(got, torch.tensor(wanted, dtype=torch.float64), rtol=1e-9, atol=1e-12)


def simple(names: Sequence[str], *steps: Sequence[Sequence[float]]) -> History:
    """A history in which each step gives the scores of each domain, none for one that it left out."""
    even = [1 / len(names)] * len(names)
    made = []
    for number, step in enumerate(steps, 1):
        rollouts = [Rollout(at, value, row) for at, values in enumerate(step) for row, value in enumerate(values)]
        made.append(Step(number, rollouts, even))
    return History(tuple(names), made)


def shuffled(items: Sequence[Rollout], seed: int) -> list[Rollout]:
    found = list(items)
    random.Random(seed).shuffle(found)
    return found
