"""Draws with a gate: what is promised about domains, repetitions, exploration and restarts, whatever the gate does."""

import math
import time
from itertools import chain

import numpy as np
import pytest
from gatekit import NAN, SIZES, Call, Fixed, Moody, Odd, SlowChoice, calls, held, play, table_of, wishes
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events import DomainTable, HandlerOutputError, PromptStats
from dataflex_events.choosing import MOST_ROUNDS
from dataflex_events.handlers.gates.mopps import Mopps
from dataflex_events.prompts import _EXPLORE, PromptDraw

SHARES = st.sampled_from([0.0, 0.25, 0.5, 1.0, 0.1, 0.01])


@st.composite
def situations(draw):
    """Sizes of domains, a gate, a few plans and a seed."""
    sizes = draw(SIZES)
    gate = Fixed(draw(wishes(sum(sizes))), draw(st.integers(1, 3)), draw(SHARES))
    return table_of(sizes), gate, draw(calls(sizes)), draw(st.integers())


@given(situation=situations())
def test_a_gate_chooses_within_the_domains_that_are_drawn_anyway(situation):
    table, gate, some, seed = situation
    without = play(PromptDraw(table, seed), some, None)
    gated = play(PromptDraw(table, seed), some, held(gate, table))
    for (rows, domains, skipped, _), (_, expected, _, _), call in zip(gated, without, some, strict=True):
        assert domains == expected
        assert len(rows) == call.n
        assert table.codes[rows].tolist() == domains
        assert not set(rows) & set(skipped)
        assert len(set(skipped)) == len(skipped)
        assert not set(call.drawn) & set(skipped)


@given(situation=situations())
def test_no_row_comes_twice_without_need_nor_one_of_a_moment_ago(situation):
    table, gate, some, seed = situation
    for (rows, domains, _, _), call in zip(play(PromptDraw(table, seed), some, held(gate, table)), some, strict=True):
        for domain, size in enumerate(table.sizes.tolist()):
            mine = [row for row, owner in zip(rows, domains, strict=True) if owner == domain]
            count = np.bincount(mine, minlength=len(table.codes))[table.codes == domain]
            assert np.ptp(count) <= 1
            assert len(mine) > size or count.max() <= 1
            recent = {row for row in call.drawn if table.codes[row] == domain}
            if len(mine) < size:
                assert len(recent & set(mine)) == max(0, len(mine) - (size - len(recent)))


@given(situation=situations())
def test_against_lists(situation):
    table, gate, some, seed = situation
    slow = [SlowChoice(table, domain, gate, seed, seed + _EXPLORE) for domain in range(len(table))]
    for (rows, domains, skipped, explored), call in zip(
        play(PromptDraw(table, seed), some, held(gate, table)), some, strict=True
    ):
        expected = [one.plan(domains.count(domain), call.drawn) for domain, one in enumerate(slow)]
        for domain, (chosen, _, _) in enumerate(expected):
            assert [row for row, owner in zip(rows, domains, strict=True) if owner == domain] == chosen
        assert set(skipped) == set().union(*(vain for _, vain, _ in expected))
        assert explored == sum(count for _, _, count in expected)


@given(situation=situations())
def test_a_gate_without_a_wish_changes_nothing(situation):
    table, _, some, seed = situation
    some = [Call(call.n, call.shares, []) for call in some]
    gate = Fixed([3.0] * len(table.codes))
    assert play(PromptDraw(table, seed), some, held(gate, table)) == play(PromptDraw(table, seed), some, None)


def test_the_highest_are_drawn_and_of_equal_ones_the_first_that_came_up():
    table = table_of([12])
    order = PromptDraw(table, 5).plan(12).rows.tolist()  # in which candidates come up
    wish = dict.fromkeys(order[:8], 0.0) | {order[2]: 1.0, order[7]: 2.0, order[1]: NAN} | dict.fromkeys(order[8:], 9.0)
    gated = held(Fixed([wish[row] for row in range(12)], candidates=2), table)
    planned = PromptDraw(table, 5).plan(4, None, gated)
    # Eight come up for four; the ones with 9 do not. Two are liked best, then the first two of those with 0.
    assert planned.rows.tolist() == [order[at] for at in (0, 2, 3, 7)]
    assert planned.skipped.tolist() == [order[at] for at in (1, 4, 5, 6)]
    assert gated.gate.asked == [order[:8]]
    assert planned.explored == 0


def test_what_is_skipped_makes_room_for_further_candidates():
    table = table_of([12])
    order = PromptDraw(table, 5).plan(12).rows.tolist()
    gated = held(Fixed([NAN if row in order[:3] + order[5:6] else 0.0 for row in range(12)]), table)
    planned = PromptDraw(table, 5).plan(4, None, gated)
    assert gated.gate.asked == [order[:4], order[4:7], order[7:8]]
    assert planned.rows.tolist() == [order[at] for at in (3, 4, 6, 7)]
    assert planned.skipped.tolist() == [order[at] for at in (0, 1, 2, 5)]


def test_who_came_up_in_vain_waits_for_the_next_pass():
    table = table_of([10])
    order = PromptDraw(table, 5).plan(10).rows.tolist()
    draw, gated = PromptDraw(table, 5), held(Fixed([0.0] * 10, candidates=2), table)
    drawn = [draw.plan(1, None, gated).rows.item() for _ in range(5)]
    assert drawn == order[::2]
    assert [*chain(*gated.gate.asked)] == order


@pytest.mark.parametrize("sizes", [[1], [1, 1, 1], [1, 30], [7, 8, 9]])
@pytest.mark.parametrize("wish", [NAN, -math.inf, 0.0])
@pytest.mark.parametrize("n", [1, 6, 24, 200])
def test_nothing_starves_and_nothing_loops(sizes, wish, n):
    table = table_of(sizes)
    gated, draw = held(Fixed([wish] * sum(sizes)), table), PromptDraw(table, 0)
    recent = []
    for number in range(1, 5):
        planned = draw.plan(n, None, gated, recent)
        recent += planned.rows.tolist()  # soon these are all
        assert len(planned.rows) == n
        assert len(gated.gate.asked) <= number * MOST_ROUNDS
    assert draw.drawn.sum() == 4 * n


def test_a_gate_that_skips_nearly_everything_is_asked_a_bounded_number_of_times():
    table = table_of([100_000])
    gated, draw = held(Fixed([NAN] * 100_000), table), PromptDraw(table, 0)
    planned = draw.plan(10, None, gated)
    # Each time twice as many come up, 10, 20, 40, ..., so that all have come up after 14 times: 10 * (2^14 - 1) > 10^5.
    assert [len(asked) for asked in gated.gate.asked] == [10 * 2**n for n in range(13)] + [100_000 - 10 * (2**13 - 1)]
    # Those that came up first fill the draw; all others had their turn.
    came = [*chain(*gated.gate.asked)]
    assert len(came) == len(set(came)) == 100_000
    assert planned.rows.tolist() == came[:10]
    assert planned.skipped.tolist() == came[10:]


def test_few_good_prompts_are_found():
    """One in a hundred is good. Draws of eight, and single ones, consist of them."""
    table = table_of([20_000])
    good = [0.0 if row % 100 == 7 else NAN for row in range(20_000)]
    for n in (8, 1):
        draw, gated = PromptDraw(table, 1), held(Fixed(good), table)
        rows = [row for _ in range(40 // n) for row in draw.plan(n, None, gated).rows.tolist()]
        assert all(row % 100 == 7 for row in rows)


def test_a_plan_that_fails_changes_nothing():
    table = table_of([30, 10])
    draw, gated = PromptDraw(table, 1), held(Fixed([0.0] * 40, explore=0.5), table)
    draw.plan(7, [0.3, 0.7], gated)
    before = draw.state_dict()
    broken = held(Fixed([]), table)  # knows no row
    with pytest.raises(IndexError):
        draw.plan(5, [0.3, 0.7], broken)
    again = PromptDraw(table, 1)
    again.load_state_dict(before)
    assert play(draw, [Call(6, None, [])] * 3, gated) == play(again, [Call(6, None, [])] * 3, gated)


def test_a_domain_that_is_nearly_exhausted():
    table = table_of([50])
    for wish in (NAN, 0.0):
        draw, gated = PromptDraw(table, 3), held(Fixed([wish] * 50), table)
        recent = draw.plan(47, None, gated).rows.tolist()
        planned = draw.plan(5, None, gated, recent).rows.tolist()
        assert set(range(50)) - set(recent) < set(planned)
        assert len(set(planned)) == 5


@pytest.mark.parametrize("share", [0.0, 0.5, 0.25, 1.0, 0.125])
@given(lengths=st.lists(st.integers(0, 40), max_size=12))
def test_the_explored_share_is_exact_over_all_plans(share, lengths):
    table = table_of([500])
    draw, gated, explored = PromptDraw(table, 1), held(Fixed([0.0] * 500, explore=share), table), 0
    for at, n in enumerate(lengths):
        explored += draw.plan(n, None, gated).explored
        assert explored == math.floor(share * sum(lengths[: at + 1]))


def test_the_explored_share_is_that_of_every_domain():
    table = table_of([500, 500, 500])
    draw, gated = PromptDraw(table, 1), held(Fixed([0.0] * 1500, explore=0.1), table)
    explored = sum(draw.plan(7, [0.6, 0.3, 0.1], gated).explored for _ in range(100))
    assert abs(explored - 0.1 * 700) <= 3  # less than one prompt in each domain


@given(
    sizes=st.lists(st.integers(2, 12), min_size=1, max_size=3),
    share=st.sampled_from([0.5, 0.3, 1.0]),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    seed=st.integers(),
)
def test_every_row_comes_again_within_a_bound(sizes, share, lengths, seed):
    table = table_of(sizes)
    wish = [float(row % 3) for row in range(sum(sizes))]  # two of three have no chance but to be explored
    draw, gated = PromptDraw(table, seed), held(Fixed(wish, candidates=3, explore=share), table)
    plans = []
    while (draw.drawn < 5 * np.ceil(table.sizes / share)).any():
        planned = draw.plan(lengths[len(plans) % len(lengths)], None, gated)
        plans.append(planned.rows)
    for row, domain in enumerate(table.codes.tolist()):
        bound, since = 2 * math.ceil(sizes[domain] / share), 0
        for rows in plans:
            since = 0 if row in rows else since + int((table.codes[rows] == domain).sum())
            assert since < bound


def test_a_gate_that_raves_about_few_does_not_keep_the_others_out_forever():
    table, wish = table_of([40]), [1.0] * 4 + [0.0] * 36
    draw, gated = PromptDraw(table, 0), held(Fixed(wish, candidates=20, explore=0.1), table)
    rows = np.concatenate([draw.plan(2, None, gated).rows for _ in range(400)])  # 80 to explore are two passes
    assert set(rows.tolist()) == set(range(40))


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (None, "None"),
        ([0.0], r"\[0.0\]"),
        (np.zeros(3), r"float64 of shape \(3,\)"),
        (lambda size: np.zeros((size, 1)), r"float64 of shape \(4, 1\)"),
        (lambda size: np.zeros(size, dtype=np.int64), r"int64 of shape \(4,\)"),
        (lambda size: np.zeros(size, dtype=bool), r"bool of shape \(4,\)"),
    ],
)
def test_preferences_that_are_none_are_an_error(value, given):
    table = table_of([9])
    with pytest.raises(HandlerOutputError, match=f"^gate Odd preferred {given}, expected floats of shape \\(4,\\)$"):
        PromptDraw(table, 0).plan(4, None, held(Odd(value), table))


def test_floats_of_other_sizes_are_preferences():
    table = table_of([9])
    for dtype in (np.float16, np.float32):
        gate = Odd(lambda size, dtype=dtype: np.arange(size, dtype=dtype))
        assert len(PromptDraw(table, 0).plan(4, None, held(gate, table)).rows) == 4


@given(sizes=SIZES, seed=st.integers(), data=st.data(), candidates=st.integers(1, 3))
def test_going_on_from_a_saved_state(sizes, seed, data, candidates):
    table, some = table_of(sizes), data.draw(calls(sizes))
    stop, gated = data.draw(st.integers(0, len(some))), held(Moody(candidates), table)
    draw, other = PromptDraw(table, seed), PromptDraw(table, 99)
    play(draw, some[:stop], gated)
    play(other, [Call(3, None, [])], gated)
    state = draw.state_dict()
    expected = play(draw, some[stop:], gated)
    for _ in range(2):  # going on leaves the saved state alone
        other.load_state_dict(state)
        assert play(other, some[stop:], gated) == expected


def test_one_by_one_it_makes_no_difference_how_the_run_is_cut():
    table = table_of([6, 12])
    straight, restarted, gated = PromptDraw(table, 0), PromptDraw(table, 0), held(Moody(), table)
    recent: list[int] = []
    for _ in range(30):
        expected = straight.plan(1, [1.0, 3.0], gated, recent[-5:])
        again = PromptDraw(table, 0)
        again.load_state_dict(restarted.state_dict())
        restarted = again
        assert restarted.plan(1, [1.0, 3.0], gated, recent[-5:]).rows.tolist() == expected.rows.tolist()
        recent += expected.rows.tolist()


def test_seeds_and_earlier_draws_make_a_difference_to_a_gate_that_goes_by_chance():
    table = table_of([200])
    seeds = (0, 1, -1, 2**63 + 1, 2**63 + 2, 2**64 - 1, -(2**70) + 5)
    # Not shuffled: what differs is the gate's own chance.
    found = {tuple(PromptDraw(table, seed, False).plan(20, None, held(Moody(4, 0.0), table)).rows) for seed in seeds}
    assert len(found) == len(seeds) - 1  # -1 and 2**64 - 1 are the same
    draw = PromptDraw(table_of([40]), 0, False)
    passes = [tuple(draw.plan(10, None, held(Moody(4, 0.0), draw.table)).rows) for _ in range(5)]
    assert len(set(passes)) == 5  # the same candidates each time


def test_ten_million_rows():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 100, 10_000_000, dtype=np.int32)
    table = DomainTable.from_codes(codes, [str(name) for name in range(100)])
    gated = held(Mopps(), table)
    assert isinstance(gated.stats, PromptStats)
    known = rng.integers(0, 10_000_000, 1_000_000)
    gated.stats.add(known, np.full(len(known), 8), rng.integers(0, 9, len(known)), np.zeros(len(known)))
    gated.stats.commit()
    draw, took = PromptDraw(table, 0), []
    for _ in range(3):
        start = time.process_time()
        planned = draw.plan(10_000, rng.random(100), gated)
        took.append(time.process_time() - start)
        assert len(np.unique(planned.rows)) == 10_000
        assert len(planned.skipped) > 60_000  # eight came up for each
    assert min(took) < 1
