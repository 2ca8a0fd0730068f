"""What is known about the domains, against an account in dicts and lists."""

import copy
import math

import pytest
import torch
from histories import SCORES_AND_WORSE, Rollout, accounts, add, commit, histories, shuffled, simple
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events import DomainStats

NAN = math.nan
WINDOWS = st.tuples(st.integers(1, 4), st.integers(1, 6))
# Any float32: the order in which these are added decides the last bits of their sum, and which of two zeros comes last.
ANY = st.one_of(st.floats(width=32), st.sampled_from([0.1, 0.2, 0.3, 1e30, -0.0, 0.0]))


def made(history, windows):
    return DomainStats(history.names, steps=windows[0], rollouts=windows[1])


def known(stats):
    return {
        name: getattr(stats, name).tolist() for name in ("count", "mean", "recent", "slope", "latest", "proportions")
    }


def bits(stats):
    """Everything that it holds and says, to the last bit."""
    held = stats.state_dict()
    names = held.pop("names")
    said = [stats.count, stats.mean, stats.recent, stats.slope, stats.latest, stats.proportions]
    return [names, *(tensor.numpy().tobytes() for tensor in [*held.values(), *said])]


def plain(values):
    return [NAN if value is None else value for value in values]


def same(got, expected):
    assert got == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True)


@given(history=histories(), windows=WINDOWS)
def test_against_lists(history, windows):
    stats, domains = made(history, windows), range(len(history.names))
    assert len(stats) == len(history.names)
    for step, account in accounts(history):
        if step is not None:
            commit(stats, step)
        same(stats.mean.tolist(), plain(account.mean(domain, windows[0]) for domain in domains))
        same(stats.recent.tolist(), plain(account.recent(domain, windows[1]) for domain in domains))
        same(stats.slope.tolist(), [account.slope(domain, windows[0]) for domain in domains])
        same(stats.latest.tolist(), plain(account.latest))
        same(stats.proportions.tolist(), [NAN] * len(stats) if step is None else step.proportions)
        assert stats.count.tolist() == [len(account.scores(domain)) for domain in domains]


def test_an_example():
    # Two steps are kept, and three rollouts: those of the rows 5 (twice) and 7, in the order of rows and scores.
    stats = DomainStats(["math", "code"], steps=2, rollouts=3)
    for number, rollouts in {
        1: [Rollout(0, 8.0, 1)],
        3: [Rollout(0, 1.0, 4), Rollout(1, 0.5, 0)],
        4: [Rollout(0, 0.25, 7), Rollout(0, 1.0, 5), Rollout(0, 0.5, 5), Rollout(0, NAN, 9)],
    }.items():
        add(stats, rollouts)
        stats.commit(number, torch.tensor([0.75, 0.25]))
    assert stats.count.tolist() == [5, 1]
    assert stats.mean.tolist() == [2.75 / 4, 0.5]
    assert stats.recent.tolist() == [1.75 / 3, 0.5]
    assert stats.slope.tolist() == [pytest.approx(1.75 / 3 - 1), 0.0]
    same(stats.latest.tolist(), [1.75 / 3, NAN])
    add(stats, [Rollout(0, 4.0, 3), Rollout(0, 2.0, 8)])
    stats.commit(5, torch.tensor([0.75, 0.25]))
    assert stats.recent.tolist() == [(0.25 + 4 + 2) / 3, 0.5]  # 0.25 has row 7, and row 5 is forgotten


def test_the_slope_is_per_step_also_where_steps_are_missing():
    # 0.1, 0.2, 0.4 at the steps 1, 2, 4; slopes by hand: covariance / variance.
    stats = DomainStats(["a", "b"], steps=10)
    for number, score in ((1, 0.1), (2, 0.2), (4, 0.4)):
        add(stats, [Rollout(0, score, 0)])
        stats.commit(number, torch.ones(2) / 2)
    assert stats.slope.tolist() == pytest.approx([0.1, 0.0])
    add(stats, [Rollout(1, 1.0, 0)])
    stats.commit(5, torch.ones(2) / 2)
    assert stats.slope.tolist() == pytest.approx([0.1, 0.0])


def test_of_more_rollouts_than_are_kept_those_of_the_last_rows_are():
    size = 100_000
    stats = DomainStats(["a", "b"], rollouts=300)
    row = torch.randperm(size, generator=torch.Generator().manual_seed(0))
    stats.add(row % 2, row.to(torch.float32), row)
    stats.commit(1, torch.ones(2) / 2)
    # Even rows are of a and odd ones of b; the last 300 of each are 600 rows.
    assert stats.recent.tolist() == [size - 301.0, size - 300.0]
    assert stats.mean.tolist() == [size / 2 - 1, size / 2]


def test_a_step_that_is_committed_twice_has_no_slope():
    stats = DomainStats(["a"], steps=3)
    for score in (0.0, 1.0):
        add(stats, [Rollout(0, score, 0)])
        stats.commit(7, torch.ones(1))
    assert stats.slope.tolist() == [0.0]


@given(history=histories(ANY), windows=WINDOWS, seed=st.integers(0, 99), pieces=st.integers(1, 4))
def test_who_finishes_first_leaves_no_trace(history, windows, seed, pieces):
    at_once, piecemeal = made(history, windows), made(history, windows)
    for step in history.steps:
        commit(at_once, step)
        mixed = shuffled(step.rollouts, seed)
        for piece in range(pieces):
            add(piecemeal, mixed[piece::pieces])
        piecemeal.commit(step.number, torch.tensor(step.proportions, dtype=torch.float64))
        assert bits(piecemeal) == bits(at_once)


@given(history=histories(), windows=WINDOWS, worse=st.lists(st.sampled_from([NAN, math.inf, -math.inf]), max_size=3))
def test_rollouts_without_a_score_leave_no_trace(history, windows, worse):
    without, among = made(history, windows), made(history, windows)
    for step in history.steps:
        commit(without, step._replace(rollouts=[r for r in step.rollouts if math.isfinite(r.score)]))
        add(among, [Rollout(at % len(among), value, at) for at, value in enumerate(worse)])
        commit(among, step)
        assert bits(among) == bits(without)


def test_a_score_that_float32_cannot_hold_is_infinite():
    stats = DomainStats(["a"])
    stats.add(torch.tensor([0, 0]), torch.tensor([1e300, 0.5], dtype=torch.float64), torch.tensor([0, 1]))
    stats.commit(1, torch.ones(1))
    assert stats.mean.tolist() == [0.5]
    assert stats.count.tolist() == [1]


@given(scores=st.lists(SCORES_AND_WORSE, min_size=1, max_size=5))
def test_nothing_takes_effect_before_the_step_ends(scores):
    stats, untouched = DomainStats(["a"], steps=2, rollouts=2), DomainStats(["a"], steps=2, rollouts=2)
    add(stats, [Rollout(0, value, 0) for value in scores])
    assert bits(stats) == bits(untouched)
    # A run that starts again generates the step again.
    stats.load_state_dict(stats.state_dict())
    stats.commit(1, torch.ones(1))
    untouched.commit(1, torch.ones(1))
    assert bits(stats) == bits(untouched)


@given(history=histories(), windows=WINDOWS, data=st.data())
def test_going_on_from_a_state(history, windows, data):
    stop = data.draw(st.integers(0, len(history.steps)))
    whole, first, second = (made(history, windows) for _ in range(3))
    for step in history.steps:
        commit(whole, step)
    for step in history.steps[:stop]:
        commit(first, step)
    state = first.state_dict()
    saved = copy.deepcopy(state)
    second.load_state_dict(state)
    for step in history.steps[stop:]:
        commit(second, step)
    assert bits(second) == bits(whole)
    # Neither the one that was saved nor the one that went on shares memory with the state.
    for step in history.steps:
        commit(first, step)
    assert state["names"] == saved["names"]
    for name in saved.keys() - {"names"}:
        torch.testing.assert_close(state[name], saved[name], rtol=0, atol=0, equal_nan=True)


def test_the_state_of_other_domains_or_windows_is_refused():
    stats = DomainStats(["math", "code"], steps=2, rollouts=3)
    commit(stats, simple(["math", "code"], [[1.0], [0.5]]).steps[0])
    before = bits(stats)
    state = stats.state_dict()
    wrong = {
        "domains": [
            DomainStats(["code", "math"], steps=2, rollouts=3).state_dict(),
            DomainStats(["math"], steps=2, rollouts=3).state_dict(),
            {name: value for name, value in state.items() if name != "names"},
            {},
        ],
        "shape": [
            DomainStats(["math", "code"], steps=1, rollouts=3).state_dict(),
            DomainStats(["math", "code"], steps=2, rollouts=4).state_dict(),
            {name: value for name, value in state.items() if name != "count"},
            state | {"count": [1, 1]},
            state | {"latest": state["latest"].to(torch.float32)},
            state | {"values": state["values"][:1]},
        ],
    }
    for reason, states in wrong.items():
        for other in states:
            with pytest.raises(ValueError, match=reason):
                stats.load_state_dict(other)
            assert bits(stats) == before
