"""A handler that raises stops the run, and says so. (That `on_error: detach` goes on: `test_off.py`.)"""

from __future__ import annotations

import pytest
from droplab import FULL_STEPS, TIMED, Runs

pytestmark = pytest.mark.e2e


def test_a_handler_that_raises_stops_the_run(drop_runs: Runs) -> None:
    run = drop_runs.run(TIMED)
    place = f"handler 'Raises.break_down' failed at advantage_computed, step {FULL_STEPS + 1}"
    assert f"HandlerError: {place}: RuntimeError: out of luck" in run.log
    assert 'raise RuntimeError("out of luck")' in run.log, "the handler's own traceback"
    trained = [step["training/global_step"] for step in run.metrics]
    assert trained == list(range(1, FULL_STEPS + 1)), "the steps before were trained, this one was not"
