"""Which groups stay when they are finished, what is told about the others, and who may say so."""

import math

import pytest
import torch
from gatebus import GateRun, band_block, gate_block

from dataflex_events import (
    EventBus,
    GroupContext,
    Groups,
    GroupsFinished,
    HandlerOutputError,
    RunFacts,
    StepDriver,
    StepId,
)
from dataflex_events.refill import Account, resolve_groups
from dataflex_events.testing import make_batch

NAN = math.nan
# catalogue 2.5: five rollouts, of which 0 to 5 succeed: pass rates 0, .2, .4, .6, .8, 1
REWARDS = [[1.0] * solved + [0.0] * (5 - solved) for solved in range(6)]


def groups(count):
    return Groups(torch.arange(count), ("finished",) * count)


def context(rewards):
    return GroupContext(make_batch(rewards), refills=True)


@pytest.mark.parametrize(("low", "high", "kept"), [(0.2, 0.8, [2, 3]), (0.0, 1.0, [1, 2, 3, 4])])
def test_the_worked_example_of_the_band(low, high, kept):
    run = GateRun(band_block(low, high, refill=True))
    batch = make_batch(REWARDS)
    assert run.driver.group_fields == {"reward"}
    assert run.finish(batch).nonzero().flatten().tolist() == kept
    # What stays is dropped no more, and goes into the batch.
    left = batch.take(torch.isin(batch.uid, torch.tensor(kept)).nonzero().flatten())
    assert run.end(left)["dataflex/kept_frac"] == 1.0


# catalogue 2.5: batches of 4 groups with the pass rates [0, .5, 1, 1] and [.25, 0, .75, .5], 2 groups are wanted
def test_the_worked_example_of_a_refill():
    run = GateRun(band_block(refill=True))
    names, kept = [], []
    for letters, solved in (("abcd", [0, 2, 4, 4]), ("efgh", [1, 0, 3, 2])):
        batch = make_batch([[1.0] * some + [0.0] * (4 - some) for some in solved])
        names += [letter for letter, stays in zip(letters, run.finish(batch).tolist(), strict=True) if stays]
        kept.append(run.driver.account.kept)
    assert names == ["b", "e", "g", "h"]
    assert names[:2] == ["b", "e"]
    assert kept == [1, 4]  # two more than are wanted
    assert run.driver.account.looked == 8


def test_in_the_warm_up_all_stay():
    run = GateRun(band_block(refill=True, warmup_step=1, update_step=2))
    found = []
    for _ in range(4):
        kept = run.finish(make_batch([[1, 1], [1, 0]]))
        found.append(kept if kept is None else kept.tolist())
        run.end(make_batch([[1, 0]]))
    assert found == [None, [False, True], None, [False, True]]


def test_without_a_refill_nobody_decides():
    assert GateRun({"policies": [gate_block(), band_block()]}).finish(make_batch(REWARDS)) is None


def test_several_policies_must_all_keep_a_group():
    run = GateRun({"policies": [band_block(0.3, 1.0, refill=True), band_block(0.0, 0.7, refill=True), band_block()]})
    assert run.finish(make_batch(REWARDS)).nonzero().flatten().tolist() == [2, 3]


def test_groups_without_rollouts_do_not_stay():
    run = GateRun(band_block(refill=True))
    assert run.finish(make_batch([[1, 0], [1, 1]]), [0, 1, 2, 3]).tolist() == [True, False, False, False]
    assert str(run.driver.account) == (
        "4 groups were looked at and 1 kept; 'threshold_band' dropped 1 (1 with the score 1); "
        "2 had no rollout, because all of theirs failed"
    )


@pytest.mark.parametrize("block", [band_block(refill=True, shadow=True), {"policies": [band_block(refill=True)]}])
def test_in_shadow_nothing_is_dropped(block):
    run = GateRun({**block, "shadow": True})
    batch = make_batch([[1, 0], [1, 1]])
    run.driver.groups_finished(StepId(1), batch, groups(2))
    assert run.finish(batch) is None
    metrics = run.end(batch)
    assert metrics["dataflex/policy/threshold_band/kept_frac"] == 0.5
    assert metrics["dataflex/shadow"] == 1


def test_a_driver_in_shadow_lets_all_stay_whoever_proposes():
    bus = EventBus()
    bus.subscribe(GroupsFinished, lambda event: event.context.keep(torch.zeros(2, dtype=torch.bool)), name="somebody")
    found = [
        StepDriver(bus, RunFacts(), shadow=shadow, refills=True).groups_finished(
            StepId(1), make_batch([[1, 0]]), groups(1)
        )
        for shadow in (False, True)
    ]
    assert found[0].tolist() == [False]
    assert found[1] is None


def test_the_account_ends_with_the_step():
    run = GateRun(band_block(refill=True))
    run.finish(make_batch(REWARDS))
    assert run.driver.account.looked == 6
    run.end(make_batch([[1, 0]]))
    assert run.driver.account == Account()


def test_a_group_stays_if_nobody_drops_a_row_of_it():
    some = context([[0, 0], [0, 0], [0, 0]])
    assert resolve_groups(some, groups(3)) is None
    some.keep(torch.tensor([True, True, False, True, True, True]), by="one")
    assert resolve_groups(some, groups(4)).tolist() == [True, False, True, False]
    some.keep(torch.tensor([True] * 5 + [False]), by="other")
    assert resolve_groups(some, groups(3)).tolist() == [True, False, False]
    some.keep(torch.tensor([True] * 6), by="one")  # replaces its first
    assert resolve_groups(some, groups(3)).tolist() == [True, True, False]
    some.metric("mine", 1.0)
    some.discard("other")
    assert resolve_groups(some, groups(3)).tolist() == [True] * 3
    assert resolve_groups(context([]), groups(2)) is None


def test_no_group_has_a_rollout():
    some = context([])
    some.keep(torch.zeros(0, dtype=torch.bool), by="one")
    assert resolve_groups(some, groups(2)).tolist() == [False, False]
    account = Account()
    account.add(some, resolve_groups(some, groups(2)))
    assert str(account) == "2 groups were looked at and 0 kept; 2 had no rollout, because all of theirs failed"


@pytest.mark.parametrize(
    ("mask", "given"),
    [
        (torch.ones(3, dtype=torch.bool), r"bool tensor of shape \(3,\)"),
        (torch.ones(4), r"float32 tensor of shape \(4,\)"),
        (torch.ones(4, 1, dtype=torch.bool), r"bool tensor of shape \(4, 1\)"),
        ([True] * 4, "list"),
    ],
)
def test_proposals_that_are_none_are_an_error(mask, given):
    some = context([[0, 0], [0, 0]])
    with pytest.raises(HandlerOutputError, match=f"'one' proposed to keep {given}.*, expected a bool tensor of shape"):
        some.keep(mask, by="one")
    assert resolve_groups(some, groups(2)) is None


def test_without_a_refill_a_proposal_is_an_error():
    some = GroupContext(make_batch([[0, 0]]))
    with pytest.raises(
        HandlerOutputError, match="'one' proposed groups to keep, but no policy of this run has `refill`"
    ):
        some.keep(torch.ones(2, dtype=torch.bool), by="one")


def test_a_handler_that_fails_proposes_nothing():
    def propose_and_fail(event):
        event.context.keep(torch.zeros(2, dtype=torch.bool))
        raise RuntimeError("no idea")

    bus = EventBus(on_error="detach")
    bus.subscribe(GroupsFinished, propose_and_fail, name="one")
    driver = StepDriver(bus, RunFacts(), refills=True)
    assert driver.groups_finished(StepId(1), make_batch([[1, 0]]), groups(1)) is None
    assert driver.account == Account()


def told(scores, kept=()):
    """The account of groups with one row each."""
    account, some = Account(), context([[0]] * len(scores))
    some.keep(torch.tensor([at in kept for at in range(len(scores))]), scores=torch.tensor(scores), by="band")
    account.add(some, resolve_groups(some, groups(len(scores))))
    return str(account)


def test_the_account_in_words():
    assert str(Account()) == "0 groups were looked at and 0 kept"
    assert told([0.5], kept=[0]) == "1 groups were looked at and 1 kept"
    assert told([1, 1, 0, 0.5, 1 / 3, 1 / 3, 1 / 3], kept=[3]) == (
        "7 groups were looked at and 1 kept; 'band' dropped 6 (3 with the score 0.333, 2 with the score 1, "
        "1 with the score 0)"
    )
    assert told([1, 1, NAN]) == (
        "3 groups were looked at and 0 kept; 'band' dropped 3 (2 with the score 1, 1 without a score)"
    )
    # Six scores: the four that most groups have, and the groups with others. One without a score is none of these.
    assert told([1] * 7 + [2] * 6 + [3] * 5 + [4] * 4 + [5] * 3 + [6, 6, NAN]) == (
        "28 groups were looked at and 0 kept; 'band' dropped 28 (7 with the score 1, 6 with the score 2, "
        "5 with the score 3, 4 with the score 4, 1 without a score, 5 with others)"
    )
    assert told([NAN] * 9 + [1, 2, 3, 4]) == (
        "13 groups were looked at and 0 kept; 'band' dropped 13 (1 with the score 1, 1 with the score 2, "
        "1 with the score 3, 1 with the score 4, 9 without a score)"
    )


def test_an_account_of_several_who_drop():
    account = Account()
    for _ in range(2):
        some = context([[1, 0], [1, 1]])
        some.keep(torch.tensor([True, True, False, False]), by="one")
        some.keep(torch.tensor([True, False, True, True]), scores=torch.tensor([0.5, 0.5, 1, 1]), by="other")
        account.add(some, resolve_groups(some, groups(2)))
    assert str(account) == (
        "4 groups were looked at and 0 kept; 'one' dropped 2 (2 without a score); "
        "'other' dropped 2 (2 with the score 0.5)"
    )


def test_a_score_is_computed_once_for_all_who_ask_for_it():
    run = GateRun({"policies": [band_block(refill=True), gate_block()]})
    batch = make_batch([[1, 0], [1, 1]])
    assert run.finish(batch).tolist() == [True, False]
    run.end(batch.take(torch.tensor([0, 1])))
    assert run.known([0, 1]).visits.tolist() == [1, 1], "what is dropped counts"
    assert run.known([0, 1]).streak.tolist() == [0, 1]
