"""Dropped rows where verl cuts micro-batches by number of rows, shuffles, and has a reference policy.

verl asserts that the rows of a rank divide into micro-batches of the configured size, at each stage; and its shuffle in
the worker would undo that padding was dealt evenly.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from droplab import MICRO_BATCHES, Runs
from dropstory import Step, expected_kept, initial_model, real, replay
from plaingrpo import PlainGrpo

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def steps(drop_runs: Runs) -> list[Step]:
    """Steps that keep 91, 21, 7 and all rows, on two ranks with two mini-batches."""
    return drop_runs.steps(MICRO_BATCHES)


def test_workers_get_exactly_the_kept_rows(steps: list[Step]) -> None:
    for step, sizes in zip(steps, MICRO_BATCHES.sizes, strict=True):
        assert sorted(row.key for row in step.trained) == sorted(expected_kept(step, sizes))
    assert [len(step.trained) for step in steps] == [91, 21, 7, 160]


def test_padding_and_micro_batches(steps: list[Step]) -> None:
    # Rows of each rank and mini-batch: 24 in sixes of 4, 6 in twos of 3, 2 in one, 40 in tens of 4.
    sizes = [sorted(len(call["uid"]) for update in step.updates for call in update.calls) for step in steps]
    assert sizes == [[4] * 24, [3] * 8, [2] * 4, [4] * 40]
    assert [step.metrics["dataflex/padding_rows"] for step in steps] == [5, 3, 1, 0]


def test_shuffling_does_not_undo_the_dealing(steps: list[Step]) -> None:
    for step in steps[:3]:
        for update in step.updates:
            share = [sum(len(real(call)) for call in update.calls if call["rank"] == rank) for rank in (0, 1)]
            assert min(share) > 0
            assert max(share) - min(share) <= 1


def test_rows_are_shuffled(steps: list[Step]) -> None:
    step = steps[0]
    place = {row.key: number for number, row in enumerate(step.generated)}
    for rank in (0, 1):
        calls = [call for update in step.updates for call in update.calls if call["rank"] == rank]
        order = [place[step.find(call, i).key] for call in calls for i in real(call)]
        ascending = sum(a < b for a, b in pairwise(order)) / len(order)
        assert ascending < 0.75, "rows that are not shuffled come in the order of the draw"


def test_the_update_is_plain_grpo_with_kl_on_the_kept_rows(drop_runs: Runs) -> None:
    deviations = [deviation for step in drop_runs.deviations(MICRO_BATCHES) for deviation in step]
    assert max(deviation.gradient for deviation in deviations) < 1e-4
    assert max(deviation.change for deviation in deviations) < 5e-3


def test_the_kl_term_matters_here(steps: list[Step]) -> None:
    """The comparison above would see a reference policy that is wrong."""
    without = [step[-1].gradient for step in replay(steps, PlainGrpo(initial_model(), MICRO_BATCHES.loss), follow=True)]
    assert min(without) > 1e-2
