"""The demo's process handling, with a stand-in for verl that only waits."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from labrun import heed_interrupts

pytestmark = pytest.mark.verl

PARENT = """
import sys
from pathlib import Path
from dataflex_events.adapters.verl.commands import _demo_run
from dataflex_events.adapters.verl.cpu.lab import Lab, LabSettings

out = Path(sys.argv[1])
_demo_run.prepare(out)
sys.executable = str(out / "waits")
_demo_run.train(Lab(out, LabSettings.tiny(), {}), out, 1, [], on_step=print)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_ends_the_demo_ends_verl(number: signal.Signals, tmp_path: Path) -> None:
    waits = tmp_path / "waits"
    waits.write_text(
        f'#!/bin/sh\necho $$ > "{tmp_path}/pid.new"\nmv "{tmp_path}/pid.new" "{tmp_path}/pid"\nexec sleep 60\n'
    )
    waits.chmod(0o755)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stderr=subprocess.DEVNULL, preexec_fn=heed_interrupts
    )
    try:
        child = wait_for(tmp_path / "pid")
        parent.send_signal(number)
        parent.wait(30)
        assert parent.returncode != 0
        assert not psutil.pid_exists(child)
    finally:
        parent.kill()


def wait_for(file: Path) -> int:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline, "verl's stand-in was not started"
        time.sleep(0.05)
    return int(file.read_text())
