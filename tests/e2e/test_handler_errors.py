"""A handler that raises stops the run, and says so. (That `on_error: detach` goes on: `test_off.py`.)"""

from __future__ import annotations

import pytest
from labrun import run_verl

pytestmark = pytest.mark.e2e


def test_a_handler_that_raises_stops_the_run(tmp_path) -> None:
    block = [
        "trainer.v1.trainer_mode=dataflex_sync",
        "+dataflex.handlers=[{path:'weighing:Raises',params:{at:2}}]",
    ]
    run = run_verl(tmp_path, *block, steps=3, probe=True).failed()
    message = (
        "HandlerError: handler 'Raises.break_down' failed at advantage_computed, step 2: RuntimeError: out of luck"
    )
    assert message in run.log
    assert 'raise RuntimeError("out of luck")' in run.log, "the handler's own traceback"
    assert [step["training/global_step"] for step in run.metrics] == [1], "step 1 was trained, step 2 was not"
