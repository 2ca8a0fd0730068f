"""The plan of the next prompts: what is promised about shares, passes, restarts, size and speed."""

import math
import time
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.pools import DomainTable
from dataflex_events.prompts import PromptDraw


def table_of(sizes, names=None):
    codes = np.repeat(np.arange(len(sizes)), sizes)
    np.random.default_rng(0).shuffle(codes)
    return DomainTable.from_codes(codes, names or [f"d{number}" for number in range(len(sizes))])


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@st.composite
def plans(draw):
    """Sizes of domains, and `(n, shares)` of a few plans."""
    sizes = draw(SIZES)
    weights = st.lists(st.floats(0, 1), min_size=len(sizes), max_size=len(sizes)).filter(any)
    return sizes, draw(st.lists(st.tuples(st.integers(0, 20), st.none() | weights), max_size=8))


def normalised(shares, sizes):
    shares = np.array(sizes if shares is None else shares, dtype=np.float64)
    return shares / shares.sum()


def drawn(draw, calls):
    return [(planned.rows.tolist(), planned.domains.tolist()) for planned in (draw.plan(*call) for call in calls)]


@given(plan=plans(), seed=st.integers(), shuffle=st.booleans())
def test_rows_are_of_their_domains_and_counted(plan, seed, shuffle):
    sizes, calls = plan
    table = table_of(sizes)
    draw, counts, target = PromptDraw(table, seed, shuffle), np.zeros(len(sizes), np.int64), np.zeros(len(sizes))
    for n, shares in calls:
        planned = draw.plan(n, shares)
        assert planned.rows.dtype == planned.domains.dtype == np.int64
        assert len(planned.rows) == n
        assert table.codes[planned.rows].tolist() == planned.domains.tolist()
        np.add.at(counts, planned.domains, 1)
        target += n * normalised(shares, sizes)
        assert draw.drawn.tolist() == counts.tolist()
        assert draw.owed == pytest.approx(target - counts, abs=1e-9)


@pytest.mark.parametrize("sizes", [[3, 4], [1, 50, 200], [5] * 20, [1, 2, 4, 8, 16, 32]])
def test_shares_of_the_dataset_are_exact_after_every_row(sizes):
    draw, shares = PromptDraw(table_of(sizes), 0), normalised(None, sizes)
    domains = np.concatenate([draw.plan(n).domains for n in (1, 7, 100, 0, 400)])
    counts = np.cumsum(domains[:, None] == np.arange(len(sizes)), axis=0)
    error = counts - np.arange(1, 509)[:, None] * shares
    assert np.abs(error).max() <= 1 - 1 / (2 * len(sizes) - 2) + 1e-9


def test_in_the_shares_of_the_dataset_an_epoch_has_every_row_once():
    sizes = [3, 40, 17]
    draw = PromptDraw(table_of(sizes), 0)
    for _ in range(3):
        rows = np.concatenate([draw.plan(n).rows for n in (25, 25, 10)])
        assert sorted(rows.tolist()) == list(range(60))


@given(plan=plans(), seed=st.integers())
def test_no_row_comes_twice_within_a_pass_or_without_need_within_a_plan(plan, seed):
    sizes, calls = plan
    table = table_of(sizes)
    draw, seen = PromptDraw(table, seed), np.zeros(sum(sizes), dtype=np.int64)
    for n, shares in calls:
        planned = draw.plan(n, shares)
        here = np.bincount(planned.rows, minlength=len(seen))
        seen += here
        for domain in range(len(sizes)):
            mine = table.codes == domain
            assert np.ptp(here[mine]) <= 1
            assert np.ptp(seen[mine]) <= 1  # the pass before has ended


@pytest.mark.parametrize("domains", [2, 10, 300])
def test_no_domain_starves(domains):
    shares = np.random.default_rng(1).pareto(1.0, domains) + 0.01
    shares /= shares.sum()
    draw = PromptDraw(table_of([2] * domains), 0)
    at_all = np.concatenate([draw.plan(500, shares).domains for _ in range(20)])
    for domain in range(domains):
        places = np.flatnonzero(at_all == domain) + 1
        assert not (places[:1] > math.ceil(1 / shares[domain])).any()
        assert not (np.diff(places) > 2 / shares[domain] + 1).any()
        assert len(places) >= math.floor(10_000 * shares[domain])


@given(plan=plans(), data=st.data())
def test_no_domain_starves_after_any_other_shares(plan, data):
    sizes, calls = plan
    draw = PromptDraw(table_of(sizes), 0)
    drawn(draw, calls)
    shares = normalised(data.draw(st.lists(st.integers(1, 9), min_size=len(sizes), max_size=len(sizes))), sizes)
    # it is more than -1 owed, and never owed more than this
    most = sum(1 / at for at in range(1, len(sizes) // 2 + 1))
    domains = draw.plan(math.ceil((most + 1) / shares.min()), shares).domains.tolist()
    for domain, share in enumerate(shares):
        assert domains.index(domain) <= (most + 1) / share


@given(plan=plans(), seed=st.integers(), shuffle=st.booleans())
def test_renaming_domains_changes_nothing(plan, seed, shuffle):
    sizes, calls = plan
    renamed = table_of(sizes, names=[f"z{len(sizes) - number}" for number in range(len(sizes))])
    one, other = PromptDraw(table_of(sizes), seed, shuffle), PromptDraw(renamed, seed, shuffle)
    assert drawn(one, calls) == drawn(other, calls)
    other.load_state_dict(one.state_dict())
    assert drawn(one, calls) == drawn(other, calls)


def test_seeds_make_a_difference_and_shuffling_does():
    table = table_of([50, 50])
    rows = [
        PromptDraw(table, seed, shuffle).plan(60).rows.tolist() for seed, shuffle in ((0, True), (1, True), (1, False))
    ]
    assert len(set(map(tuple, rows))) == 3
    assert rows[2][::2] == [row for row, code in enumerate(table.codes) if code == 0][:30]


@given(plan=plans(), seed=st.integers(), shuffle=st.booleans(), data=st.data())
def test_going_on_from_a_saved_state(plan, seed, shuffle, data):
    sizes, calls = plan
    stop = data.draw(st.integers(0, len(calls)))
    draw = PromptDraw(table_of(sizes), seed, shuffle)
    drawn(draw, calls[:stop])
    state = draw.state_dict()
    counts = draw.drawn.tolist()
    expected = drawn(draw, calls[stop:])
    other = PromptDraw(table_of(sizes), 99)
    other.plan(4)
    for _ in range(2):  # going on leaves the saved state alone
        other.load_state_dict(state)
        assert other.drawn.tolist() == counts
        assert drawn(other, calls[stop:]) == expected
    assert other.owed.tolist() == draw.owed.tolist()


def test_what_is_done_to_a_state_does_not_reach_the_draw():
    draw, same = PromptDraw(table_of([3, 4]), 0), PromptDraw(table_of([3, 4]), 0)
    for n in (2, 3, 6):
        state = draw.state_dict()
        draw.load_state_dict(state)
        for change in (state, draw.state_dict()):
            for name in ("owed", "drawn"):
                change[name] += 1
        assert drawn(draw, [(n, None)]) == drawn(same, [(n, None)])
        assert draw.drawn.tolist() == same.drawn.tolist()


@given(sizes=SIZES, shares=st.lists(st.floats(0.01, 1), min_size=5, max_size=5), n=st.integers(0, 30))
def test_shares_stay_exact_across_plans_of_any_length(sizes, shares, n):
    whole, split = PromptDraw(table_of(sizes), 0), PromptDraw(table_of(sizes), 0)
    together = [domain for _ in range(n) for domain in split.plan(1, shares[: len(sizes)]).domains]
    assert whole.plan(n, shares[: len(sizes)]).domains.tolist() == together


@pytest.mark.parametrize(
    ("n", "shares", "reason"),
    [
        (3, [1.0], "shape"),
        (3, [1.0, -1.0], "share 1 is -1.0"),
        (3, [math.nan, 1.0], "share 0 is nan"),
        (3, [math.inf, 1.0], "share 0 is inf"),
        (3, [0.0, 0.0], "all shares are 0"),
        (-1, None, "-1 places"),
    ],
)
def test_wrong_plans_are_refused_and_change_nothing(n, shares, reason):
    draw, same = PromptDraw(table_of([3, 4]), 0), PromptDraw(table_of([3, 4]), 0)
    with pytest.raises(ValueError, match=reason):
        draw.plan(n, shares)
    assert drawn(draw, [(5, None)]) == drawn(same, [(5, None)])
    assert draw.drawn.tolist() == same.drawn.tolist()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pools": None}, "'pools'"),
        ({"pools": {}}, "'seed'"),
        ({"drawn": torch.tensor([1])}, "'drawn' is not"),
        ({"drawn": torch.tensor([1.0, 2.0])}, "'drawn' is not"),
        ({"drawn": torch.tensor([1, -2])}, "'drawn', 'gated' or 'asked' are no counts"),
        ({"gated": None}, "'gated' is not"),
        ({"gated": torch.tensor([-1, 2])}, "'drawn', 'gated' or 'asked' are no counts"),
        ({"asked": None}, "'drawn', 'gated' or 'asked' are no counts"),
        ({"asked": True}, "'drawn', 'gated' or 'asked' are no counts"),
        ({"asked": -1}, "'drawn', 'gated' or 'asked' are no counts"),
        ({"explore": None}, "'explore'"),
        ({"owed": None}, "'owed' is not"),
        ({"owed": torch.tensor([0.0, 0.0])}, "'owed' is not a torch.float64"),
        ({"owed": torch.tensor([0.5, 0.0], dtype=torch.float64)}, "does not sum to 0"),
    ],
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(changes, reason):
    draw, same, third = (PromptDraw(table_of([3, 4]), 0) for _ in range(3))
    third.plan(4)
    with pytest.raises(ValueError, match=reason):
        draw.load_state_dict({**third.state_dict(), **changes})
    assert drawn(draw, [(5, None)]) == drawn(same, [(5, None)])
    assert draw.drawn.tolist() == same.drawn.tolist()


def test_a_state_of_a_dataset_of_another_size_is_refused():
    with pytest.raises(ValueError, match="4 rows of domain 1, and this one has 5"):
        PromptDraw(table_of([3, 5]), 0).load_state_dict(PromptDraw(table_of([3, 4]), 0).state_dict())


@pytest.mark.parametrize("domains", [1, 10_000])
def test_ten_million_rows(domains):
    rng = np.random.default_rng(0)
    codes = rng.integers(-1, domains, 10_000_000, dtype=np.int32)
    codes[:domains] = np.arange(domains)
    names = [str(name) for name in range(domains)]
    tracemalloc.start()
    start = time.process_time()
    table = DomainTable.from_codes(codes, names)
    built = time.process_time() - start
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert built < 30
    assert 40e6 < peak < 1e9  # less than the row numbers alone: it does not see what numpy allocates
    draw, took = PromptDraw(table, 0), []
    for _ in range(3):
        start = time.process_time()
        planned = draw.plan(10_000, rng.random(domains))
        took.append(time.process_time() - start)
        assert (codes[planned.rows] == planned.domains).all()
        assert len(np.unique(planned.rows)) == 10_000
    assert min(took) < 0.2


def test_ten_thousand_domains_of_one_row():
    draw, took = PromptDraw(table_of([1] * 10_000), 0), []
    for _ in range(3):
        start = time.process_time()
        planned = draw.plan(10_000)
        took.append(time.process_time() - start)
        assert sorted(planned.rows.tolist()) == list(range(10_000))
    assert min(took) < 0.3
