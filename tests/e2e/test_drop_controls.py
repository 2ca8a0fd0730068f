"""Negative controls: in a real run each mechanism of dropping is cut for a step, and the check that guards it fails."""

from __future__ import annotations

import pytest
from droplab import CONTROLS, Runs
from dropstory import Step, initial_model, replay
from labrun import Run
from plaingrpo import PlainGrpo

pytestmark = pytest.mark.e2e

INTACT, OWN_PADDING, PADDED_MEAN, FEW_INTACT, UNDEALT = range(5)


@pytest.fixture(scope="module")
def run(drop_runs: Runs) -> Run:
    """A run whose last step does not take dropped rows out of TransferQueue."""
    return drop_runs.run(CONTROLS)


@pytest.fixture(scope="module")
def steps(drop_runs: Runs) -> list[Step]:
    """Its steps but the last, which stopped it."""
    return drop_runs.steps(CONTROLS)


@pytest.fixture(scope="module")
def deviations(steps: list[Step]) -> list[float]:
    """Largest relative deviation of a gradient from plain GRPO on the kept rows, by step, as far as there are rows."""
    hand = PlainGrpo(initial_model(), CONTROLS.loss)
    return [max(update.gradient for update in step) for step in replay(steps[:UNDEALT], hand, follow=True)]


def least_share(step: Step) -> int:
    """Kept rows of the mini-batch that has fewest."""
    return min(len(step.received(update)) for update in step.updates)


def test_intact_steps_pass(steps: list[Step], deviations: list[float]) -> None:
    for number in (INTACT, FEW_INTACT):
        assert deviations[number] < 1e-4
        assert least_share(steps[number]) > 0
        assert len(steps[number].updates) == 4


def test_with_the_padding_of_verl_the_update_is_another(steps: list[Step], deviations: list[float]) -> None:
    assert deviations[OWN_PADDING] > 0.2
    assert len(steps[OWN_PADDING].updates) == 3  # 91 rows are filled up to 120, in mini-batches of 40
    assert steps[OWN_PADDING].metrics["dataflex/padding_rows"] == 29


def test_a_mean_over_padding_rows_is_another(deviations: list[float]) -> None:
    assert deviations[PADDED_MEAN] == pytest.approx(1 - 91 / 92, rel=1e-2)


def test_without_dealing_a_mini_batch_is_padding_only(steps: list[Step]) -> None:
    assert len(steps[UNDEALT].trained) == 5
    assert least_share(steps[UNDEALT]) == 0
    assert min(update.norm for update in steps[UNDEALT].updates) == 0


def test_dropped_rows_that_stay_in_transfer_queue_stop_the_run(run: Run, steps: list[Step]) -> None:
    assert len(steps) == len(CONTROLS.sizes) - 1
    assert "VerificationError: 69 dropped rows are still in TransferQueue" in run.log
