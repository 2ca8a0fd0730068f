"""Ctrl-C while a step waits for a batch that it will never get: the run ends, and nothing of it is left."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from threading import Thread

import psutil
import pytest
from mixprobe import FILE
from mixrun import BAND, ROLLOUT, run_mix

pytestmark = pytest.mark.e2e

NOTHING = {**BAND, "actuator": {"name": "threshold_band", "params": {"low": 0.99, "high": 0.995}}}
FOREVER = {"eager": True, "max_generated_factor": 1e6}
PROMPTS, ROLLOUTS = 8, 2


def test_nothing_is_left(tmp_path: Path):
    watcher = Thread(target=interrupt, args=(tmp_path,))
    watcher.start()
    run = run_mix(tmp_path, [{**NOTHING, "refill": FOREVER}], [], f"{ROLLOUT}.n={ROLLOUTS}", steps=1)
    watcher.join()
    assert run.code != 0
    assert not run.leftovers
    assert "KeyboardInterrupt" in run.log
    assert not (tmp_path / "metrics.jsonl").exists() or not run.metrics, "no step was finished"


def interrupt(folder: Path) -> None:
    """Send SIGINT to the run when the server has got several batches, as a terminal does."""
    server, deadline = folder / "farend" / FILE, time.monotonic() + 500
    while time.monotonic() < deadline:
        time.sleep(0.5)
        if server.exists() and len(server.read_text().splitlines()) > 4 * PROMPTS * ROLLOUTS:
            break
    for process in psutil.process_iter():
        try:
            if "verl.trainer.main_ppo" in process.cmdline() and str(folder) in process.environ().get("FAREND_DIR", ""):
                process.send_signal(signal.SIGINT)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
