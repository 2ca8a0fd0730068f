from __future__ import annotations

import random

import pytest

from dataflex_events.adapters.verl.cpu.lab import RESPONSE_LENGTH
from dataflex_events.adapters.verl.cpu.reward import compute_score
from dataflex_events.adapters.verl.cpu.tasks import DOMAINS, Question, make_questions, wrong_answer


def right_answer(text: str) -> str:
    """The answer by an independent reading of the question."""
    task, operand = text.split(" ")
    match task:
        case "reverse":
            return "".join(reversed(operand))
        case "range":
            return str(max(map(int, operand)) - min(map(int, operand)))
        case "sort":
            return "".join(str(digit) for digit in sorted(map(int, operand)))
        case "add":
            return str(sum(map(int, operand.split("+"))))
    raise AssertionError(text)


@pytest.mark.parametrize("domain", DOMAINS)
def test_answers_are_right_and_short_enough(domain: str) -> None:
    for question in make_questions(domain, 200, random.Random(1)):
        assert question.domain == domain
        assert question.answer == right_answer(question.text)
        assert len(question.answer) + 1 < RESPONSE_LENGTH, "one token a character, an end token, and one to spare"


@pytest.mark.parametrize("domain", DOMAINS)
def test_questions_are_different_and_none_is_excluded(domain: str) -> None:
    held_out = {q.text for q in make_questions(domain, 50, random.Random(1))}
    train = [q.text for q in make_questions(domain, 200, random.Random(1), exclude=held_out)]
    assert len(held_out) == 50
    assert len(set(train)) == 200
    assert not held_out & set(train)


def test_a_domain_that_is_exhausted_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DOMAINS, "sort", lambda rng: (f"sort {rng.randint(0, 4)}", "x"))
    with pytest.raises(ValueError, match="'sort' does not have 6 more"):
        make_questions("sort", 6, random.Random(0))


@pytest.mark.parametrize("domain", DOMAINS)
def test_wrong_answers_are_wrong_and_of_the_same_kind(domain: str) -> None:
    rng = random.Random(2)
    for question in make_questions(domain, 200, rng):
        wrong = wrong_answer(question, rng)
        assert wrong != question.answer
        assert len(wrong) == len(question.answer)
        assert wrong.isdigit() == question.answer.isdigit()


@pytest.mark.parametrize(
    ("response", "score"),
    [("12", 1.0), (" 12\n", 1.0), ("12.", 0.0), ("012", 0.0), ("1", 0.0), ("", 0.0), ("12 12", 0.0)],
)
def test_only_exactly_the_right_answer_earns_the_reward(response: str, score: float) -> None:
    question = Question("sort", "sort 21", "12")
    result = compute_score("lab/sort", response, question.answer, extra_info={"index": 0}, more="columns")
    assert result == {"score": score, "acc": score}
