"""Dropping half of the rows saves time: log-probs and update together, alternating with full steps of the same run."""

from __future__ import annotations

from statistics import median

import pytest
from droplab import FULL_STEPS, TIMED, Runs

pytestmark = pytest.mark.e2e

CLEARLY_BELOW = 0.8


def test_log_probs_and_update_of_half_the_rows_take_clearly_less_time(
    drop_runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    run = drop_runs.run(TIMED)
    seconds = [step["timing_s/old_log_prob"] + step["timing_s/update_actor"] for step in run.metrics]
    rows = [step["dataflex/rows"] for step in run.metrics]
    assert rows == [256 if step % 2 == 0 else 128 for step in range(FULL_STEPS)]
    full, half = median(seconds[2::2]), median(seconds[1::2])  # the first step also warms up
    with capsys.disabled():
        print(f"\nlog-probs and update: all {full:.2f} s, half {half:.2f} s, ratio {half / full:.2f}")
    assert half / full < CLEARLY_BELOW
