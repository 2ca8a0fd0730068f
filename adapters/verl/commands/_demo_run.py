"""Runs verl's entry point for the demo and follows it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dataflex_events.adapters.verl.cpu.lab import Lab
from dataflex_events.adapters.verl.cpu.overrides import lab_environment, lab_overrides
from dataflex_events.errors import DataflexError

LOG, METRICS, TENSORBOARD = "verl.log", "metrics.jsonl", "tensorboard"


def train(lab: Lab, out: Path, steps: int, overrides: Sequence[str], on_step: Callable[[dict[str, Any]], None]) -> int:
    """Run verl in a process of its own.

    Args:
        lab: What to train on.
        out: Folder for its logs, made by `prepare`.
        steps: Training steps.
        overrides: Further Hydra overrides, the block among them.
        on_step: Receives the metrics of each step and validation as they appear.

    Returns:
        verl's exit status.
    """
    environment = os.environ | lab_environment()
    environment |= {"VERL_FILE_LOGGER_PATH": str(out / METRICS), "TENSORBOARD_DIR": str(out / TENSORBOARD)}
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *lab_overrides(lab), *_settings(out, steps), *overrides]
    with (out / LOG).open("w") as log, _ended_by_signals():
        process = subprocess.Popen(
            command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            for record in _follow(out / METRICS, process):
                on_step(record)
            return process.wait()
        finally:
            _stop(process)


def _settings(out: Path, steps: int) -> list[str]:
    return [
        f"trainer.total_training_steps={steps}",
        "trainer.val_before_train=True",
        f"trainer.test_freq={steps}",
        "trainer.logger=[console,file,tensorboard]",
        "trainer.project_name=dataflex",
        "trainer.experiment_name=demo",
        f"trainer.default_local_dir={out / 'checkpoints'}",
        f"hydra.run.dir={out / 'hydra'}",
    ]


def prepare(out: Path) -> None:
    """Make the folder, without the logs of an earlier demo.

    Raises:
        DataflexError: There is something else of that name.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise DataflexError(f"{out} is not a folder, and none can be made there") from error
    for file in (out / LOG, out / METRICS, *(out / TENSORBOARD).rglob("events.out.tfevents.*")):
        file.unlink(missing_ok=True)


def _follow(metrics: Path, process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """The records of verl's metrics file as they are written, until the process has ended."""
    seen = 0
    while True:
        ended = process.poll() is not None
        lines = metrics.read_text().splitlines(keepends=True) if metrics.exists() else []
        complete = [line for line in lines if line.endswith("\n")]
        for line in complete[seen:]:
            yield json.loads(line)
        seen = len(complete)
        if ended:
            return
        time.sleep(0.2)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn the signals that would end this process at once into an exception, so that the run is ended as well."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the run with everything that it started, also after Ctrl-C or an error of ours."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
