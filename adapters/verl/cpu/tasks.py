"""The lab's verifiable tasks: short questions with one right answer, in domains of different difficulty."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

LETTERS = "abcdefgh"
"""Few letters, and none that could spell a role name of the chat template."""


@dataclass(frozen=True)
class Question:
    """One question and its only right answer."""

    domain: str
    text: str
    answer: str


def _reverse(rng: random.Random) -> tuple[str, str]:
    letters = "".join(rng.choices(LETTERS, k=rng.randint(3, 4)))
    return f"reverse {letters}", letters[::-1]


def _range(rng: random.Random) -> tuple[str, str]:
    digits = "".join(rng.sample("0123456789", k=rng.randint(4, 6)))
    return f"range {digits}", str(int(max(digits)) - int(min(digits)))


def _sort(rng: random.Random) -> tuple[str, str]:
    digits = "".join(rng.choices("0123456789", k=rng.randint(4, 6)))
    return f"sort {digits}", "".join(sorted(digits))


def _add(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(10, 99), rng.randint(10, 99)
    return f"add {a}+{b}", str(a + b)


DOMAINS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "reverse": _reverse,
    "range": _range,
    "sort": _sort,
    "add": _add,
}
"""Domain name -> generator of (question, answer), from the easiest for the lab's model to the hardest."""

SETTLED = frozenset({"reverse"})
"""Domains that the warm-up leaves mastered: it shows no wrong answers there."""


def wrong_answer(question: Question, rng: random.Random) -> str:
    """A wrong answer of the right kind and length: one character is replaced by another of its alphabet."""
    alphabet = LETTERS if question.answer[0] in LETTERS else "0123456789"
    place = rng.randrange(len(question.answer))
    other = rng.choice([c for c in alphabet if c != question.answer[place]])
    return question.answer[:place] + other + question.answer[place + 1 :]


def make_questions(domain: str, count: int, rng: random.Random, exclude: set[str] | None = None) -> list[Question]:
    """Draw `count` different questions of a domain.

    Args:
        domain: Key of `DOMAINS`.
        count: Number of questions.
        rng: Source of randomness.
        exclude: Question texts that must not appear, for instance those held out.
    """
    taken = set(exclude or ())
    questions: list[Question] = []
    misses = 0
    while len(questions) < count:
        text, answer = DOMAINS[domain](rng)
        if text in taken:
            misses += 1
            if misses > 1000 + 100 * count:
                raise ValueError(f"Domain {domain!r} does not have {count} more different questions")
            continue
        taken.add(text)
        questions.append(Question(domain, text, answer))
    return questions
