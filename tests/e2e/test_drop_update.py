"""Dropped rows at the far end: the workers get exactly the kept rows, and their update is plain GRPO on these.

A case is four steps. Step 1 keeps everything. Step 2 keeps an odd number of rows, with partial groups. Step 3 keeps two
rows. Step 4 would keep none.
"""

from __future__ import annotations

import pytest
from droplab import CASES, ROLLOUTS, Case, Runs
from dropstory import Step, expected_kept
from labrun import Run

pytestmark = pytest.mark.e2e

ALL, ODD, FEW, NONE = range(4)

# Same model, same rows, same float32: what is left is the order of sums. Padding that counted would change the gradient
# of step 2 by 1% to 5%, a baseline over all rows by far more.
GRADIENT_TOLERANCE = 1e-4
# AdamW divides by the gradient's own size: where that is nearly 0, rounding decides by how much a parameter moves.
CHANGE_TOLERANCE = 5e-3


@pytest.fixture(scope="module", params=CASES, ids=lambda c: f"{c.loss}-{c.mini_batches}-mini-batches-{c.ranks}-ranks")
def case(request: pytest.FixtureRequest) -> Case:
    """One way to average the loss, one number of mini-batches and one of ranks."""
    return request.param


@pytest.fixture(scope="module")
def run(case: Case, drop_runs: Runs) -> Run:
    """The run of the case."""
    return drop_runs.run(case)


@pytest.fixture(scope="module")
def steps(case: Case, drop_runs: Runs) -> list[Step]:
    """The steps of the case."""
    return drop_runs.steps(case)


def test_the_settings_of_the_case_reach_trainer_and_workers(case: Case, steps: list[Step]) -> None:
    calls = [call for step in steps for update in step.updates for call in update.calls]
    assert {call["loss_agg_mode"] for call in calls} == {case.loss}
    assert {call["rank"] for call in calls} == set(range(case.ranks))
    assert len(steps[ALL].updates) == case.mini_batches


def test_workers_get_exactly_the_kept_rows(case: Case, steps: list[Step]) -> None:
    counts = []
    for step, sizes in zip(steps, case.sizes, strict=True):
        assert len(step.generated) == case.prompts * ROLLOUTS
        assert sorted(row.key for row in step.trained) == sorted(expected_kept(step, sizes))
        counts.append(len(step.trained))
    assert counts == [160, 91, 2, 160]


def test_padding_is_what_divisibility_needs_and_nothing_more(case: Case, steps: list[Step]) -> None:
    cells = case.ranks * case.mini_batches
    assert [sum(update.padding for update in step.updates) for step in steps] == [0, -91 % cells, 0, 0]


def test_the_update_is_plain_grpo_on_the_kept_rows(case: Case, steps: list[Step], drop_runs: Runs) -> None:
    found = [deviation for step in drop_runs.deviations(case) for deviation in step]
    assert len(found) == sum(len(step.updates) for step in steps)
    print(f"largest deviations: gradient {max(d.gradient for d in found):.1e}", end=", ")
    print(f"change of the parameters {max(d.change for d in found):.1e}")
    assert max(deviation.gradient for deviation in found) < GRADIENT_TOLERANCE
    assert max(deviation.change for deviation in found) < CHANGE_TOLERANCE


def test_the_number_of_optimizer_steps_stays(case: Case, steps: list[Step]) -> None:
    for number in (ALL, ODD, NONE):
        assert len(steps[number].updates) == case.mini_batches


def test_fewer_rows_than_cells_make_fewer_optimizer_steps(case: Case, steps: list[Step]) -> None:
    assert len(steps[FEW].updates) == min(case.mini_batches, 2 // case.ranks)
    assert all(update.norm > 0 for update in steps[FEW].updates)


def test_no_mini_batch_is_padding_only(case: Case, steps: list[Step]) -> None:
    for step in steps:
        share = [len(step.received(update)) for update in step.updates]
        assert min(share) > 0
        # dealt evenly over the cells of every rank
        assert max(share) - min(share) <= case.ranks


def test_rows_padding_and_optimizer_steps_are_logged(steps: list[Step]) -> None:
    for step in steps:
        metrics = step.metrics
        assert metrics["dataflex/rows"] == len(step.trained)
        assert metrics["dataflex/kept_rows"] == len(step.trained)
        assert metrics["dataflex/kept_frac"] == pytest.approx(len(step.trained) / len(step.generated))
        assert metrics["dataflex/padding_rows"] == sum(update.padding for update in step.updates)
        assert metrics["dataflex/optimizer_steps"] == len(step.updates)


def test_the_reward_before_selection_is_logged(steps: list[Step]) -> None:
    for step in steps:
        mean = sum(row.reward for row in step.generated) / len(step.generated)
        assert step.metrics["dataflex/reward_before_select"] == pytest.approx(mean, rel=1e-5)
        kept = sum(row.reward for row in step.trained) / len(step.trained)
        assert step.metrics["critic/score/mean"] == pytest.approx(kept, rel=1e-5)


def test_dropped_rows_are_gone_from_transfer_queue(run: Run, steps: list[Step]) -> None:
    for step in steps:
        kept = {row.key for row in step.trained}
        padding = {key for key, tag in step.left.items() if tag.get("is_padding")}
        assert step.left.keys() - padding == kept
        assert len(padding) == step.metrics["dataflex/padding_rows"]
    ends = [over for over in run.records("over") if not over["failed"]]  # a later case may stop the run
    assert ends and all(over["tags"] == {} for over in ends)


def test_a_group_is_not_left_with_a_single_row(steps: list[Step]) -> None:
    assert steps[ODD].metrics["dataflex/lonely_groups"] == 1
    by_group = [row.uid for row in steps[ODD].trained]
    assert min(by_group.count(uid) for uid in by_group) == 2


def test_a_selection_that_would_empty_the_batch_keeps_it(case: Case, run: Run, steps: list[Step]) -> None:
    assert [step.metrics["dataflex/kept_whole"] for step in steps] == [0, 0, 0, 1]
    together = sum(other.ranks == case.ranks for other in CASES)
    assert run.log.count("would empty the batch; all rows are kept") == together


def test_every_step_that_dropped_rows_was_verified(steps: list[Step]) -> None:
    assert [step.metrics.get("dataflex/verified") for step in steps] == [None, 1, 1, None]
