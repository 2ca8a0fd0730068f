"""Which rows stay: all proposals must agree, sessions stay whole, no group is left with one session."""

import logging

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import samples

from dataflex_events import BatchContext
from dataflex_events.resolve import resolve_keep
from dataflex_events.testing import make_batch


def resolved(batch, *masks, regroup=True):
    context = BatchContext(batch)
    for number, mask in enumerate(masks):
        context.keep(torch.tensor(mask, dtype=torch.bool), by=f"policy {number}")
    return resolve_keep(context, regroup=regroup)


def kept(decision):
    return decision.keep.int().tolist()


def test_without_a_proposal_there_is_no_decision():
    decision = resolved(make_batch([[1, 0]]))
    assert decision.keep is None
    assert not decision.kept_whole


def test_all_proposals_must_agree():
    batch = make_batch([[1, 0, 1, 0]])
    assert kept(resolved(batch, [1, 1, 1, 0], [0, 1, 1, 1])) == [0, 1, 1, 0]


def test_a_session_is_kept_or_dropped_whole_as_its_final_output_says():
    # Two sessions of two outputs each and one of one; the final outputs are rows 1, 3 and 4.
    batch = make_batch([[0, 1, 0, 1, 1]], sessions=[0, 0, 1, 1, 2])
    assert kept(resolved(batch, [0, 1, 1, 0, 1])) == [1, 1, 0, 0, 1]


def test_a_group_is_never_left_with_one_session():
    batch = make_batch([[1, 0, 1], [1, 0]])
    decision = resolved(batch, [1, 0, 0, 1, 1])
    assert kept(decision) == [0, 0, 0, 1, 1]
    assert decision.lonely_groups == 1


def test_two_outputs_of_one_session_are_still_one_session():
    batch = make_batch([[0, 1, 0], [1, 0]], sessions=[0, 0, 1, 0, 1])
    decision = resolved(batch, [1, 1, 0, 1, 1])
    assert kept(decision) == [0, 0, 0, 1, 1]
    assert decision.lonely_groups == 1


def test_a_group_that_had_one_session_to_begin_with_stays():
    batch = make_batch([[1], [1, 0]])
    decision = resolved(batch, [1, 1, 1])
    assert kept(decision) == [1, 1, 1]
    assert decision.lonely_groups == 0


def test_where_no_baseline_is_recomputed_one_session_may_be_left():
    batch = make_batch([[1, 0, 1], [1, 0]])
    assert kept(resolved(batch, [1, 0, 0, 1, 1], regroup=False)) == [1, 0, 0, 1, 1]


@pytest.mark.parametrize("mask", [[0, 0, 0, 0], [1, 0, 1, 0]], ids=["nothing chosen", "only lonely ones chosen"])
def test_a_selection_that_would_empty_the_batch_keeps_it_whole_and_warns(mask, caplog):
    with caplog.at_level(logging.WARNING, logger="dataflex"):
        decision = resolved(make_batch([[1, 0], [1, 1]]), mask)
    assert kept(decision) == [1, 1, 1, 1]
    assert decision.kept_whole
    assert decision.lonely_groups == 0  # none was dropped in the end
    assert "policy 0 would empty the batch" in caplog.text


def test_a_selection_of_empty_responses_would_empty_the_batch_too():
    batch = make_batch([[0, 0, 1]], lengths=[0, 0, 2])
    decision = resolved(batch, [1, 1, 0])
    assert kept(decision) == [1, 1, 1]
    assert decision.kept_whole
    assert kept(resolved(make_batch([[0, 0, 0]], lengths=[0, 0, 0]), [1, 1, 0])) == [1, 1, 0]


def test_an_empty_batch_is_not_emptied(caplog):
    decision = resolved(make_batch([]), [])
    assert kept(decision) == []
    assert not decision.kept_whole
    assert caplog.text == ""


def slowly(sample, masks, regroup):
    chosen = [all(mask[at] for mask in masks) for at in range(len(sample.rows))]
    sessions = {row.session for row in sample.rows}
    finals = {row.session: at for at, row in enumerate(sample.rows) if row in sample.finals(row.uid)}
    staying = {session for session in sessions if chosen[finals[session]]}
    lonely = 0
    for uid in {row.uid for row in sample.rows}:
        before = {row.session for row in sample.rows if row.uid == uid}
        if regroup and len(before & staying) == 1 < len(before):
            lonely += 1
            staying -= before
    filled = {row.session for row in sample.rows if row.mask} or sessions
    if sessions and not staying & filled:
        return [1] * len(sample.rows), 0, True
    return [int(row.session in staying) for row in sample.rows], lonely, False


@given(sample=samples(), regroup=st.booleans(), data=st.data())
def test_against_plain_python(sample, regroup, data):
    bools = st.lists(st.booleans(), min_size=len(sample.rows), max_size=len(sample.rows))
    masks = data.draw(st.lists(bools, min_size=1, max_size=2))
    decision = resolved(sample.batch, *masks, regroup=regroup)
    assert (kept(decision), decision.lonely_groups, decision.kept_whole) == slowly(sample, masks, regroup)
