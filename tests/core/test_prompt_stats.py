"""What is known about the prompts, against an account in dicts and lists."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from promptaccount import Group, PromptAccount, add, commit, histories, kind, shuffled

from dataflex_events import DomainTable, PromptStats

ROWS = 5
DECAYS = st.sampled_from([1.0, 0.5, 0.3, 0.0])
KNOWN = ("visits", "rollouts", "successes", "latest", "streak", "alpha", "beta")


def bits(stats):
    """Everything that it says and saves, to the last bit."""
    said = stats.look(np.arange(len(stats)))
    return [getattr(said, name).tobytes() for name in KNOWN], {
        name: value.numpy().tobytes() for name, value in stats.state_dict().items() if name != "size"
    }


def same(stats, account):
    said = stats.look(np.arange(ROWS))
    rows = [account.of(row) for row in range(ROWS)]
    assert said.visits.tolist() == [len(known.groups) for known in rows]
    assert said.rollouts.tolist() == [sum(group.rollouts for group in known.groups) for known in rows]
    assert said.successes.tolist() == [sum(group.successes for group in known.groups) for known in rows]
    assert said.latest.tolist() == pytest.approx([known.latest for known in rows], rel=1e-6, nan_ok=True)
    assert said.streak.tolist() == [known.streak for known in rows]
    assert said.alpha.tolist() == pytest.approx([float(known.alpha) for known in rows], rel=1e-6)
    assert said.beta.tolist() == pytest.approx([float(known.beta) for known in rows], rel=1e-6)


@given(history=histories(ROWS), decay=DECAYS)
def test_against_dicts(history, decay):
    stats, account = PromptStats(ROWS, decay=decay), PromptAccount(decay)
    same(stats, account)
    for step in history:
        found = commit(stats, step)
        account.commit(step)
        same(stats, account)
        given = [group for group, _ in account.step]
        assert len(found) == len(given)
        assert found.rows.tolist() == [group.row for group in given]
        assert found.rollouts.tolist() == [group.rollouts for group in given]
        assert found.successes.tolist() == [group.successes for group in given]
        assert found.kind.tolist() == [kind(group) for group in given]
        assert found.known.tolist() == [before for _, before in account.step]
        rollouts = sum(group.rollouts for group in given)
        rate = sum(group.successes for group in given) / rollouts if given else float("nan")
        assert found.pass_rate == pytest.approx(rate, nan_ok=True)


# catalogue 4.4: of three visits, which had equal outcomes; how many of the latest did
@pytest.mark.parametrize(("equal", "streak"), [([0, 1, 1], 2), ([1, 1, 0], 0), ([1] * 8, 8), ([1] * 200, 127)])
@pytest.mark.parametrize(("solved", "sign"), [(4, 1), (0, -1)])
def test_streaks(equal, streak, solved, sign):
    stats = PromptStats(1)
    for flag in equal:
        commit(stats, [Group(0, 4, solved if flag else 2, bool(flag))])
    assert stats.look([0]).streak.tolist() == [sign * streak]


def test_a_streak_of_the_other_kind_begins_anew():
    stats, streaks = PromptStats(1), []
    for solved in (4, 4, 4, 0, 0, 4):
        commit(stats, [Group(0, 4, solved, True)])
        streaks.append(stats.look([0]).streak.item())
    assert streaks == [1, 2, 3, -1, -2, 1]


def test_one_rollout_says_nothing_about_differences():
    stats = PromptStats(1)
    commit(stats, [Group(0, 4, 4, True)])
    found = commit(stats, [Group(0, 1, 0, True)])
    known = stats.look([0])
    assert found.kind.tolist() == [0]
    assert (known.streak.tolist(), known.visits.tolist(), known.latest.tolist()) == ([1], [2], [0.0])


def test_groups_that_differ_above_the_threshold_are_no_streak():
    stats = PromptStats(1)
    commit(stats, [Group(0, 4, 4, True)])
    commit(stats, [Group(0, 4, 4, False)])
    assert stats.look([0]).streak.tolist() == [0]


# catalogue 4.5: decay .5, n 8: (1, 1) with 2 of 8 is (3, 7), then with 4 of 8 (6, 8)
def test_the_posterior_with_a_decay():
    stats, found = PromptStats(1, decay=0.5), []
    for successes in (2, 4):
        commit(stats, [Group(0, 8, successes, False)])
        known = stats.look([0])
        found.append((known.alpha.item(), known.beta.item()))
    assert found == [(3.0, 7.0), (6.0, 8.0)]


def test_the_posterior_without_a_decay_counts_everything():
    stats = PromptStats(1)
    for successes in (2, 4):
        commit(stats, [Group(0, 8, successes, False)])
    known = stats.look([0])
    assert (known.alpha.item(), known.beta.item()) == (1 + 6, 1 + 10)


def test_several_groups_of_a_row_in_one_step_count_one_after_the_other():
    stats = PromptStats(2, decay=0.5)
    # In the order of (row, rollouts, successes): 0 of 8, then 4 of 8. Evidence won: .5 * 0 + 4; lost: .5 * 8 + 4.
    found = commit(stats, [Group(1, 8, 4, False), Group(1, 8, 0, True)])
    known = stats.look([1])
    assert (known.alpha.item(), known.beta.item()) == (5.0, 9.0)
    assert (known.visits.item(), known.latest.item(), known.streak.item()) == (2, 0.5, 0)
    assert found.known.tolist() == [False, False]
    assert commit(stats, [Group(1, 8, 0, True)]).known.tolist() == [True]


@given(history=histories(ROWS), decay=DECAYS, seed=st.integers(0, 99), pieces=st.integers(1, 4))
def test_who_finishes_first_leaves_no_trace(history, decay, seed, pieces):
    at_once, piecemeal = PromptStats(ROWS, decay=decay), PromptStats(ROWS, decay=decay)
    for step in history:
        one = commit(at_once, step)
        mixed = shuffled(step, seed)
        for piece in range(pieces):
            add(piecemeal, mixed[piece::pieces])
        other = piecemeal.commit()
        assert bits(piecemeal) == bits(at_once)
        for name in ("rows", "rollouts", "successes", "kind", "known"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist()


@given(history=histories(ROWS), decay=DECAYS)
def test_nothing_takes_effect_before_the_step_ends(history, decay):
    stats, same_stats = PromptStats(ROWS, decay=decay), PromptStats(ROWS, decay=decay)
    for step in history:
        before = bits(stats)
        add(stats, step)
        assert bits(stats) == before
        stats.load_state_dict(stats.state_dict())  # a run that starts again generates the step again
        assert bits(stats) == before
        commit(stats, step)
        commit(same_stats, step)
    assert bits(stats) == bits(same_stats)


@given(history=histories(ROWS), decay=DECAYS, data=st.data())
def test_going_on_from_a_state(history, decay, data):
    stop = data.draw(st.integers(0, len(history)))
    whole, first, second = (PromptStats(ROWS, decay=decay) for _ in range(3))
    commit(second, [Group(2, 4, 4, True)])  # is forgotten
    for step in history:
        commit(whole, step)
    for step in history[:stop]:
        commit(first, step)
    state = first.state_dict()
    saved = copy.deepcopy(state)
    second.load_state_dict(state)
    for step in history[stop:]:
        commit(second, step)
    assert bits(second) == bits(whole)
    # Neither the one that was saved nor the one that went on shares memory with the state.
    commit(first, [Group(row, 2, 2, True) for row in range(ROWS)])
    assert state.keys() == saved.keys()
    assert all(torch.equal(state[name], saved[name]) for name in saved.keys() - {"size"})


def test_rows_that_do_not_exist_are_an_error():
    stats = PromptStats(3)
    add(stats, [Group(3, 2, 1, False)])
    with pytest.raises(IndexError):
        stats.commit()


STATE = {"visits": [1, 2], "rollouts": [4, 8], "successes": [4, 0], "streak": [1, -2]}


def state(**changes):
    made = {"size": 6, "rows": torch.tensor([1, 4]), "latest": torch.tensor([1.0, 0.0])}
    made |= {name: torch.tensor(values) for name, values in STATE.items()}
    made["streak"] = made["streak"].to(torch.int8)
    return {name: value for name, value in {**made, **changes}.items() if value is not None}


def test_a_state_by_hand():
    stats = PromptStats(6)
    stats.load_state_dict(state())
    known = stats.look([1, 4, 5])
    assert known.visits.tolist() == [1, 2, 0]
    assert known.streak.tolist() == [1, -2, 0]
    assert known.latest.tolist() == pytest.approx([1.0, 0.0, float("nan")], nan_ok=True)
    assert known.alpha.tolist() == [5, 1, 1]
    assert known.beta.tolist() == [1, 9, 1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"size": 5}, "it is about 5 rows, and the data has 6"),
        ({"size": None}, "it is about None rows"),
        ({"rows": torch.tensor([1, 6])}, "'rows' are not rows of the data in ascending order"),
        ({"rows": torch.tensor([-1, 4])}, "'rows' are not rows of the data in ascending order"),
        ({"rows": torch.tensor([4, 1])}, "'rows' are not rows of the data in ascending order"),
        ({"rows": torch.tensor([1, 1])}, "'rows' are not rows of the data in ascending order"),
        ({"rows": torch.tensor([1.0, 4.0])}, "'rows' is not"),
        ({"rows": None}, "'rows' is not"),
        ({"visits": torch.tensor([1])}, "'visits' is not"),
        ({"visits": torch.tensor([1, 0])}, "without visits"),
        ({"successes": torch.tensor([5, 0])}, "more successes than rollouts"),
        ({"successes": torch.tensor([-1, 0])}, "more successes than rollouts"),
        ({"latest": torch.tensor([1, 0])}, "'latest' is not"),
        ({"streak": torch.tensor([1, -2])}, "'streak' is not"),
        ({"streak": None}, "'streak' is not"),
    ],
)
def test_a_state_of_something_else_is_refused_and_changes_nothing(changes, reason):
    stats = PromptStats(6)
    commit(stats, [Group(2, 4, 1, False)])
    before = bits(stats)
    with pytest.raises(ValueError, match=reason):
        stats.load_state_dict(state(**changes))
    assert bits(stats) == before


def test_evidence_that_fades_must_be_there():
    with pytest.raises(ValueError, match="'won' is not"):
        PromptStats(6, decay=0.5).load_state_dict(state())


@pytest.mark.parametrize("decay", [-0.1, 1.5, float("nan")])
def test_wrong_decays_are_refused(decay):
    with pytest.raises(ValueError, match="is not in"):
        PromptStats(3, decay=decay)


def saved_bytes(stats):
    tensors = [value for value in stats.state_dict().values() if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_what_is_saved_follows_the_rows_that_were_generated():
    sizes = []
    for rows, visited in ((10_000, 7), (1_000_000, 7), (1_000_000, 70)):
        stats = PromptStats(rows, decay=0.5)
        assert saved_bytes(stats) == 0
        for _ in range(3):  # coming again makes it no larger
            commit(stats, [Group(3 * row, 4, 2, False) for row in range(visited)])
        sizes.append(saved_bytes(stats))
    assert sizes[0] == sizes[1] > 0
    assert sizes[2] == 10 * sizes[1]


def arrays_of(table):
    return table.codes.nbytes + table.rows.nbytes + table.starts.nbytes


@pytest.mark.parametrize(("decay", "most"), [(1.0, 17), (0.5, 25)])
def test_bytes_of_a_row(decay, most):
    stats = PromptStats(1_000_000, decay=decay)
    # What it says of itself, and what it holds.
    held = vars(stats)["_arrays"].values()
    assert stats.nbytes == sum(array.nbytes for array in held) == most * 1_000_000
    table = DomainTable.from_codes(np.arange(1_000_000) % 100, [str(name) for name in range(100)])
    assert (stats.nbytes + arrays_of(table)) / 1_000_000 <= 32


def test_a_hundred_million_rows():
    stats = PromptStats(100_000_000, decay=0.5)
    assert len(stats) == 100_000_000
    assert stats.nbytes <= 25 * 100_000_000
    commit(stats, [Group(99_999_999, 8, 2, False)])
    known = stats.look([0, 99_999_999])
    assert known.visits.tolist() == [0, 1]
    assert (known.alpha[1], known.beta[1]) == (3, 7)
    del stats
