"""States of the parts of a run: who gets which, who starts fresh."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dataflex_events.checkpoint import Part, collect, distribute
from dataflex_events.state import StateError


class Counter:
    """Counts up. Without a count there is no state."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count} if self.count else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "count" not in state:
            raise ValueError("it has no count")
        self.count = state["count"]


def test_each_part_gets_its_own_state():
    saved = collect({"a": Part("x", Counter(3)), "b": Part("x", Counter(5)), "empty": Part("x", Counter())})
    assert saved == {"a": {"kind": "x", "state": {"count": 3}}, "b": {"kind": "x", "state": {"count": 5}}}
    again = {"b": Part("x", Counter()), "a": Part("x", Counter()), "empty": Part("x", Counter())}
    assert distribute(again, saved) == []
    assert [part.owner.count for part in again.values()] == [5, 3, 0]  # type: ignore[attr-defined]


def test_a_part_of_another_kind_starts_fresh_and_is_told_of():
    part = Part("y", Counter())
    assert distribute({"a": part}, collect({"a": Part("x", Counter(3))})) == [
        "a: starts fresh, because the checkpoint has the state of x, not of y"
    ]
    assert part.owner.state_dict() == {}


def test_what_is_missing_or_left_over_is_told_of():
    told = distribute({"new": Part("x", Counter(1))}, collect({"old": Part("x", Counter(3))}))
    assert told == [
        "new: the checkpoint has no state of it, so it starts fresh",
        "old: its state in the checkpoint is not used, because this run has no such part",
    ]


def test_a_new_part_without_a_state_is_not_worth_a_word():
    assert distribute({"new": Part("x", Counter())}, {}) == []


def test_a_part_that_cannot_read_its_own_state():
    with pytest.raises(StateError, match="a cannot go on from its state in the checkpoint: it has no count"):
        distribute({"a": Part("x", Counter())}, {"a": {"kind": "x", "state": {"cuont": 3}}})
