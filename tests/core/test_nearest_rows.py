"""Rows in the order of how close they are to a target, against lists and loops."""

import copy
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events import DomainTable
from dataflex_events.nearest_rows import NearestRows

FEW = st.integers(0, 6).map(float)  # many are equal
ANY = FEW | st.floats(-100, 100, width=32)


def table_of(codes):
    return DomainTable.from_codes(np.array(codes), [f"d{number}" for number in range(max(codes) + 1)])


class Slow:
    """One domain: who comes next, by sorting all of its rows again and again."""

    def __init__(self, values):
        self.values, self.used = values, set()

    def take(self, target, count):
        rows, size = sorted(self.values), len(self.values)
        taken = []
        while count > size:
            taken += [row for row in sorted(rows, key=lambda row: (self.values[row], row))]
            count -= size
        if len(self.used) + count > max((size + 1) // 2, count):
            self.used = set()
        free = sorted((abs(self.values[row] - target), row) for row in rows if row not in self.used)
        self.used |= {row for _, row in free[:count]}
        return taken + [row for _, row in free[:count]]


@st.composite
def situations(draw):
    """Domains of rows (-1: none), a value for each, and targets with domains to take from."""
    domains = draw(st.integers(1, 3))
    codes = draw(st.permutations([*range(domains), *draw(st.lists(st.integers(-1, domains - 1), max_size=20))]))
    values = draw(st.lists(draw(st.sampled_from([FEW, ANY])), min_size=len(codes), max_size=len(codes)))
    between = st.tuples(st.sampled_from(values), st.sampled_from(values)).map(lambda pair: (pair[0] + pair[1]) / 2)
    target = between | st.floats(-120, 120)  # halfway between two values these are equally close
    some = st.lists(st.integers(0, domains - 1), max_size=12)
    return codes, values, draw(st.lists(st.tuples(target, some), max_size=8))


def play(rows, some):
    found = []
    for target, domains in some:
        rows.target = target
        found.append(rows.take(domains).tolist())
    return found


@given(situation=situations())
def test_against_lists(situation):
    codes, values, some = situation
    slow = [Slow({row: values[row] for row, code in enumerate(codes) if code == at}) for at in range(max(codes) + 1)]
    found = play(NearestRows(table_of(codes), np.array(values)), some)
    for rows, (target, domains) in zip(found, some, strict=True):
        for at, one in enumerate(slow):
            if at in domains:
                mine = [row for row, code in zip(rows, domains, strict=True) if code == at]
                assert mine == one.take(target, domains.count(at))


@given(situation=situations(), data=st.data())
def test_going_on_from_a_state(situation, data):
    codes, values, some = situation
    stop = data.draw(st.integers(0, len(some)))
    first, second = (NearestRows(table_of(codes), np.array(values)) for _ in range(2))
    play(first, some[:stop])
    play(second, some[::-1])
    state = first.state_dict()
    saved = copy.deepcopy(state)
    second.load_state_dict(state)
    assert second.target == first.target
    assert play(second, some[stop:]) == play(first, some[stop:])
    assert state["target"] == saved["target"]
    assert torch.equal(state["used"], saved["used"])


def test_bounds_and_nothing_to_take():
    rows = NearestRows(table_of([0, 0, -1]), np.array([2.0, -1.0, 99.0]))
    assert (rows.lowest, rows.highest) == (-1.0, 2.0)
    assert rows.take([]).tolist() == []
    assert rows.state_dict()["used"].tolist() == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": float("nan")}, "'target' is nan"),
        ({"target": 1}, "'target' is 1,"),
        ({"target": None}, "'target' is None"),
        ({"used": None}, "'used' is not"),
        ({"used": torch.tensor([0.0])}, "'used' is not"),
    ],
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(changes, reason):
    rows = NearestRows(table_of([0, 0, -1, 0]), np.array([2.0, -1.0, 99.0, 3.0]))
    rows.target = 2.0
    assert rows.take([0]).tolist() == [0]
    with pytest.raises(ValueError, match=reason):
        rows.load_state_dict({**rows.state_dict(), **changes})
    assert rows.target == 2.0
    assert rows.take([0]).tolist() == [3]


def test_of_many_rows_only_those_around_the_target_are_looked_at():
    size = 1_000_000
    values = np.random.default_rng(0).permutation(size).astype(np.float64)
    rows = NearestRows(table_of([0] * size), values)
    for target in (500_000.0, 0.0, 999_999.5):
        rows.load_state_dict({"target": target, "used": torch.zeros(0, dtype=torch.int64)})
        expected = np.lexsort((np.arange(size), np.abs(values - target)))[:6]
        assert [*rows.take([0] * 3), *rows.take([0] * 3)] == expected.tolist()
        assert rows.state_dict()["used"].tolist() == sorted(expected.tolist())


def test_rows_that_are_not_in_the_table_are_left_out_of_a_state():
    rows = NearestRows(table_of([0, 0, -1, 0]), np.array([2.0, -1.0, 99.0, 3.0]))
    rows.load_state_dict({"target": 2.0, "used": torch.tensor([0, 2])})
    assert rows.state_dict()["used"].tolist() == [0]


def test_what_is_to_be_avoided_comes_last():
    rows = NearestRows(table_of([0] * 10), np.arange(10.0))
    assert rows.take([0] * 3, [0, 2]).tolist() == [1, 3, 4]
    assert rows.take([0] * 4, range(8)).tolist() == [8, 9, 0, 1], "of a new cycle, as half of the rows are 5"


def test_few_values_are_no_hindrance():
    """Levels from 1 to 5, as difficulties often are."""
    levels = np.random.default_rng(0).integers(1, 6, 300_000).astype(float)
    rows = NearestRows(table_of([0] * len(levels)), levels)
    rows.target = 3.0
    expected = np.flatnonzero(levels == 3)[:600].tolist()
    before = time.process_time()
    got = [*rows.take([0] * 590).tolist(), *(rows.take([0]).item() for _ in range(10))]
    assert got == expected
    assert time.process_time() - before < 1
