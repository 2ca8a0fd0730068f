"""Streams of rows against the same with lists, one row after the other."""

import io
import time
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.permutation import mixed, permuted
from dataflex_events.pools import DomainTable, Pools


def table_of(sizes):
    """Domains of the given sizes whose rows lie mixed in the dataset, next to some that are never drawn."""
    codes = np.repeat(np.arange(-1, len(sizes)), [3, *sizes])
    np.random.default_rng(0).shuffle(codes)
    return DomainTable.from_codes(codes, [f"d{number}" for number in range(len(sizes))])


def rows_of(table, domain):
    return [row for row, code in enumerate(table.codes.tolist()) if code == domain]


class SlowPool:
    """One domain. The order of its passes is what fresh pools give, if each call takes exactly one pass."""

    def __init__(self, table, domain, seed, shuffle):
        self.fresh, self.domain, self.size = Pools(table, seed, shuffle), domain, len(rows_of(table, domain))
        self.left = self.next_pass()

    def next_pass(self):
        return self.fresh.take([self.domain] * self.size).tolist()

    def take(self, count):
        if count <= len(self.left):
            taken, self.left = self.left[:count], self.left[count:]
            return taken
        taken, had = list(self.left), set(self.left)
        while count - len(taken) > self.size:
            taken += self.next_pass()
        order = self.next_pass()
        now = sorted(order, key=lambda row: row in had)[: count - len(taken)]
        read = max(map(order.index, now)) + 1
        self.left = [row for row in order[:read] if row not in now] + order[read:]
        return taken + now


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)
SEEDS = st.integers(-(2**70), 2**70)


@st.composite
def takes(draw, sizes=SIZES):
    """Sizes of domains, and the domains that a few calls take from."""
    counts = draw(sizes)
    call = st.lists(st.integers(0, len(counts) - 1), max_size=25)
    return counts, draw(st.lists(call, max_size=8))


def by_domain(domains, rows):
    found = {}
    for domain, row in zip(domains, rows.tolist(), strict=True):
        found.setdefault(domain, []).append(row)
    return found


@given(plan=takes(), seed=SEEDS, shuffle=st.booleans())
def test_row_for_row_as_with_lists(plan, seed, shuffle):
    sizes, calls = plan
    table = table_of(sizes)
    pools = Pools(table, seed, shuffle)
    slow = [SlowPool(table, domain, seed, shuffle) for domain in range(len(sizes))]
    for domains in calls:
        got = pools.take(domains)
        assert got.dtype == np.int64
        assert by_domain(domains, got) == {domain: slow[domain].take(domains.count(domain)) for domain in set(domains)}


@given(plan=takes(), seed=SEEDS, shuffle=st.booleans())
def test_every_pass_has_every_row_once_and_no_call_has_one_twice_without_need(plan, seed, shuffle):
    sizes, calls = plan
    table = table_of(sizes)
    pools, streams = Pools(table, seed, shuffle), {domain: [] for domain in range(len(sizes))}
    for domains in calls:
        for domain, rows in by_domain(domains, pools.take(domains)).items():
            often = Counter({row: 0 for row in rows_of(table, domain)})
            often.update(rows)
            assert max(often.values()) - min(often.values()) <= 1
            assert len(often) == sizes[domain]
            streams[domain] += rows
    for domain, stream in streams.items():
        for start in range(0, len(stream), sizes[domain]):
            one_pass = stream[start : start + sizes[domain]]
            assert len(set(one_pass)) == len(one_pass)


@given(plan=takes(), seed=SEEDS, shuffle=st.booleans(), data=st.data())
def test_going_on_from_a_saved_state(plan, seed, shuffle, data):
    sizes, calls = plan
    table = table_of(sizes)
    stop = data.draw(st.integers(0, len(calls)))
    pools = Pools(table, seed, shuffle)
    for domains in calls[:stop]:
        pools.take(domains)
    file = io.BytesIO()
    torch.save(pools.state_dict(), file)
    state = pools.state_dict()
    expected = [pools.take(domains).tolist() for domains in calls[stop:]]
    other = Pools(table, 12345)
    other.take([0, 0, 0])
    for saved in (state, torch.load(io.BytesIO(file.getvalue()))):
        other.load_state_dict(saved)
        assert [other.take(domains).tolist() for domains in calls[stop:]] == expected


def test_what_is_done_to_a_state_does_not_reach_the_pools():
    pools, same = Pools(table_of([5, 2]), 0), Pools(table_of([5, 2]), 0)
    calls = [[0] * 4, [0] * 4, [1, 0]] * 3
    for domains in calls:
        state = pools.state_dict()
        pools.load_state_dict(state)
        for value in state.values():
            if isinstance(value, torch.Tensor):
                value.fill_(1)
        assert pools.take(domains).tolist() == same.take(domains).tolist()


def test_without_shuffling_rows_come_in_the_order_of_the_dataset():
    table = DomainTable.from_codes([0, 1, 0, -1, 1, 0], ["a", "b"])
    pools = Pools(table, 0, shuffle=False)
    assert pools.take([0, 1, 0, 1, 1, 0, 0]).tolist() == [0, 1, 2, 4, 1, 5, 0]
    assert pools.take([0, 1]).tolist() == [2, 4]


def test_the_order_follows_from_seed_position_and_pass_for_good():
    table, seed = table_of([4, 11]), -3
    pools = Pools(table, seed)
    for number in range(3):
        for domain, size in enumerate([4, 11]):
            key = mixed(mixed(mixed(np.array([seed % 2**64], dtype=np.uint64)) + np.uint64(domain)) + np.uint64(number))
            order = permuted(np.arange(size), np.full(size, size), key.repeat(size))
            assert pools.take([domain] * size).tolist() == [rows_of(table, domain)[at] for at in order]


def test_seeds_domains_and_passes_have_orders_of_their_own():
    table = table_of([200, 200])
    orders = [
        (np.argsort(rows_of(table, domain))[np.searchsorted(rows_of(table, domain), rows)]).tolist()
        for seed in (0, 1, -1, 2**64 - 2)
        for pools in [Pools(table, seed)]
        for domain in (0, 1, 0, 1)
        for rows in [pools.take([domain] * 200)]
    ]
    assert len(set(map(tuple, orders))) == 16


def test_every_row_is_as_likely_as_any_other_to_come_first():
    table = table_of([6])
    first = Counter(int(Pools(table, seed).take([0])[0]) for seed in range(900))
    assert sorted(first) == rows_of(table, 0)
    assert all(abs(count - 150) < 50 for count in first.values())  # the standard deviation is 11


def test_no_rows():
    pools = Pools(table_of([2]), 0)
    assert pools.take([]).dtype == np.int64
    assert pools.take(np.zeros(0, dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("domain", [-1, 2])
def test_a_domain_that_does_not_exist_is_refused(domain):
    with pytest.raises(ValueError, match="from 0 to 1"):
        Pools(table_of([2, 2]), 0).take([0, domain])


def test_the_state_does_not_grow_with_the_dataset():
    sizes = []
    for rows in (1000, 100_000):
        pools = Pools(table_of([rows, 7]), 0)
        pools.take([0] * 900 + [1] * 5)
        pools.take([1] * 5)
        state = pools.state_dict()
        sizes.append(sum(value.numel() for value in state.values() if isinstance(value, torch.Tensor)))
    assert sizes[0] <= sizes[1] + 3
    assert max(sizes) <= 3 * 2 + 5


def broken(**changes):
    pools = Pools(table_of([5, 2]), 0)
    while not len(pools.state_dict()["deferred"]):
        pools.take([0] * 4)
    return {**pools.state_dict(), **changes}


def test_the_state_that_is_broken_below_is_a_state():
    Pools(table_of([5, 2]), 0).load_state_dict(broken())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seed": 1.5}, "'seed'"),
        ({"seed": None}, "'seed'"),
        ({"shuffle": 1}, "'shuffle'"),
        ({"sizes": torch.tensor([5, 3])}, "3 rows of domain 1, and this one has 2"),
        ({"sizes": torch.tensor([5])}, "'sizes' is not"),
        ({"passes": torch.tensor([0, 0, 0])}, "'passes' is not"),
        ({"passes": torch.tensor([0.0, 0.0])}, "'passes' is not"),
        ({"passes": torch.tensor([0, -1])}, "negative"),
        ({"positions": [3, 0]}, "'positions' is not"),
        ({"positions": torch.tensor([6, 0])}, "beyond"),
        ({"positions": torch.tensor([-1, 0])}, "negative"),
        ({"positions": torch.tensor([0, 0])}, "'deferred'"),
        ({"deferred": None}, "'deferred' is not"),
        ({"deferred": torch.tensor([[1]])}, "'deferred' is not"),
        ({"deferred": torch.tensor([10])}, "'deferred' are not"),
        ({"deferred": torch.tensor([-1])}, "'deferred' are not"),
        ({"deferred": torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])}, "'deferred' are not"),
    ],
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(changes, reason):
    pools, same = Pools(table_of([5, 2]), 7), Pools(table_of([5, 2]), 7)
    with pytest.raises(ValueError, match=reason):
        pools.load_state_dict(broken(**changes))
    assert pools.take([0, 1, 0]).tolist() == same.take([0, 1, 0]).tolist()


@pytest.mark.parametrize("wrong", ["twice", "never drawn", "not sorted", "of a domain that has not begun"])
def test_rows_that_cannot_be_put_off_are_refused(wrong):
    table = DomainTable.from_codes([0, 0, 0, 1, 1, 1, 2, -1], "abc")
    deferred = {"twice": [0, 0], "never drawn": [7], "not sorted": [3, 0], "of a domain that has not begun": [6]}[wrong]
    pools = Pools(table, 0)
    pools.take([0, 0, 1, 1])
    state = {**pools.state_dict(), "deferred": torch.tensor([0, 3])}
    Pools(table, 0).load_state_dict(state)
    with pytest.raises(ValueError, match="'deferred' are not"):
        pools.load_state_dict({**state, "deferred": torch.tensor(deferred)})


def test_table():
    codes = np.array([2, 0, -1, 2, 1, 0], dtype=np.int32)
    table = DomainTable.from_codes(codes, ["a", "b", "c"])
    codes[:] = 0
    assert table.names == ("a", "b", "c")
    assert len(table) == 3
    assert (table.codes.dtype, table.codes.tolist()) == (np.int16, [2, 0, -1, 2, 1, 0])
    assert (table.rows.dtype, table.rows.tolist()) == (np.int32, [1, 5, 4, 0, 3])
    assert (table.starts.dtype, table.starts.tolist()) == (np.int64, [0, 2, 3, 5])
    assert (table.sizes.dtype, table.sizes.tolist()) == (np.int64, [2, 1, 2])
    assert table.shares.tolist() == [0.4, 0.2, 0.4]


@pytest.mark.parametrize("domains", [4, 2**15, 40_000])  # an int16 does not count them all
def test_rows_are_sorted_by_domain_in_the_order_of_the_dataset(domains):
    codes = [*range(domains), *np.random.default_rng(0).integers(-1, domains, 100).tolist()]
    table = DomainTable.from_codes(codes, [str(name) for name in range(domains)])
    expected = sorted((row for row, code in enumerate(codes) if code >= 0), key=lambda row: (codes[row], row))
    assert table.rows.tolist() == expected
    assert [codes[table.rows[start]] for start in table.starts[:-1]] == list(range(domains))


@pytest.mark.parametrize(
    ("codes", "names", "reason"),
    [
        ([0, 2, 0], "abc", "no rows in 1 of 3 domains: 'b'"),
        ([], "ab", "no rows in 2 of 2 domains: 'a', 'b'"),
        ([-1, -1], "a", "no rows in 1 of 1 domains: 'a'"),
        ([-1, -1], "", "no rows in 0 of 0 domains"),
        ([0, 3], "abc", "0 to 3"),
        ([0, -2], "abc", "-2 to 0"),
        ([0.0, 1.0], "ab", "float64"),
        ([[0, 1]], "ab", r"shape \(1, 2\)"),
        ([True, False], "ab", "bool"),
    ],
)
def test_wrong_tables_are_refused(codes, names, reason):
    given_codes = np.array(codes, dtype=np.int64) if codes == [] else np.array(codes)
    with pytest.raises(ValueError, match=reason):
        DomainTable.from_codes(given_codes, list(names))


@pytest.mark.parametrize("size", [1, 3])
def test_ten_thousand_domains_are_quick_even_if_all_their_passes_end(size):
    table, took = table_of([size] * 10_000), []
    pools, domains = Pools(table, 0), np.random.default_rng(0).permutation(10_000)
    for _ in range(7):
        start = time.process_time()
        rows = pools.take(domains)
        took.append(time.process_time() - start)
        assert (table.codes[rows] == domains).all()
    assert sorted(took)[3] < 0.2
