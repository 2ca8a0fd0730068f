"""Runs verl's own entry point in the CPU lab, from a test, and collects what came out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import schedule as by_step
import torch

from dataflex_events.adapters.verl.cpu.lab import LabSettings, build_lab
from dataflex_events.adapters.verl.cpu.overrides import lab_environment, lab_overrides

SUPPORT = Path(__file__).parent
MODULES = "VERL_USE_EXTERNAL_MODULES"  # verl imports these, in this order, in every process

# Small enough for seconds, large enough for groups with mixed outcomes: 8 prompts x 8 rollouts.
SMALL = ["data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8"]

# 7 prompts x 8 rollouts do not divide into mini-batches of 4 x 8 rows, so verl pads 56 rows up to 64; 512 tokens a
# micro-batch make several of each mini-batch.
PADDED = [
    "data.train_batch_size=7",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=512",
    "actor_rollout_ref.actor.optim.lr=5e-5",  # after some steps at the lab's own rate no answer would be right
]

# Ray's processes outlive the driver for a moment: they notice its end, and then end each other.
GRACE_SECONDS = 30


@dataclass
class Run:
    """What a finished verl run left behind.

    Attributes:
        folder: Its working folder.
        code: Exit code.
        log: Everything that it and its workers printed.
        leftovers: Command lines of its processes that were still there some time after it had ended.
        seconds: How long it took.
    """

    folder: Path
    code: int
    log: str
    leftovers: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """Metrics of each training step."""
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        records = [json.loads(line) for line in lines]
        return [record["data"] for record in records if "training/global_step" in record["data"]]

    def records(self, name: str) -> list[dict[str, Any]]:
        """What the probe or the observer of `farend` saved under a name, in the order in which it happened."""
        files = sorted((self.folder / "farend").glob(f"{name}-*.pt"), key=lambda file: file.stat().st_mtime_ns)
        return [torch.load(file, weights_only=False) for file in files]

    def succeeded(self) -> Run:
        """Itself, if the run ended well and left no process behind."""
        assert self.code == 0, self.log[-5000:]
        assert not self.leftovers, self.leftovers
        return self

    def failed(self) -> Run:
        """Itself, if the run ended with an error and left no process behind."""
        assert self.code > 0, f"exit code {self.code}: {self.log[-5000:]}"
        assert not self.leftovers, self.leftovers
        return self


def run_verl(
    folder: Path,
    *overrides: str,
    steps: int = 1,
    ranks: int = 1,
    seed: int = 0,
    probe: bool = False,
    schedule: Sequence[by_step.Settings] = (),
    environment: dict[str, str] | None = None,
    timeout: float = 600,
) -> Run:
    """Run `python -m verl.trainer.main_ppo` on the tiny lab.

    Args:
        folder: Working folder of the run; made if needed.
        overrides: Hydra overrides after those of the lab, and options.
        steps: Training steps.
        ranks: Trainer processes.
        seed: Seed of prompts and sampling.
        probe: Load `farend` in every process of the run, so that it records what the worker's loss receives.
        schedule: Settings of each step, where they differ; see `schedule`.
        environment: Further environment variables.
        timeout: Seconds; a run that takes longer is killed with all its processes and fails.
    """
    command = [
        sys.executable,
        "-m",
        "verl.trainer.main_ppo",
        *sorted(  # options of Hydra, which do not take effect between overrides, come first
            [*small_overrides(folder, ranks=ranks, seed=seed), f"trainer.total_training_steps={steps}", *overrides],
            key=lambda argument: not argument.startswith("--"),
        ),
    ]
    variables = {**lab_environment(), MODULES: "farend" if probe else "", **(environment or {})}
    if schedule:
        folder.mkdir(parents=True, exist_ok=True)
        variables |= by_step.environment(folder / "schedule.json", schedule)
        variables[MODULES] = ",".join(filter(None, [variables[MODULES], "schedule"]))
    return run_command(folder, command, {name: value for name, value in variables.items() if value}, timeout)


def small_overrides(folder: Path, *, ranks: int = 1, seed: int = 0) -> list[str]:
    """Hydra overrides of a small run on the tiny lab, whose files are all in `folder`."""
    return [
        *lab_overrides(build_lab(LabSettings.tiny()), ranks=ranks, seed=seed),
        *SMALL,
        "trainer.logger=[console,file]",
        f"trainer.default_local_dir={folder / 'checkpoints'}",
        f"hydra.run.dir={folder / 'hydra'}",
    ]


def run_command(
    folder: Path, command: Sequence[str], environment: Mapping[str, str] | None = None, timeout: float = 600
) -> Run:
    """Run a command that starts verl, in `folder`, with the modules of `tests/support` importable.

    Args:
        folder: Working folder; made if needed. Every process of the run is known by it: they inherit `FAREND_DIR`.
        command: Program and arguments.
        environment: Environment variables on top of those of this process.
        timeout: Seconds; a run that takes longer is killed with all its processes and fails.
    """
    records = folder / "farend"
    records.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"), "FAREND_DIR": str(records)}
    env["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), *filter(None, [env.get("PYTHONPATH")])])
    env["HYDRA_FULL_ERROR"] = "1"
    env |= environment or {}
    log, start = folder / "log.txt", time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            seconds = time.monotonic() - start
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            leftovers = _end_leftovers(str(records))
    return Run(folder, code, log.read_text(), leftovers, seconds)


def heed_interrupts() -> None:
    """What a shell starts in the background ignores SIGINT, and so does everything below it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end_leftovers(marker: str) -> list[str]:
    """Give the processes of a run time to end, kill those that do not, and say which these were."""
    deadline = time.monotonic() + GRACE_SECONDS
    while (left := _processes(marker)) and time.monotonic() < deadline:
        time.sleep(0.2)
    names = []
    for process in left:
        try:
            names.append(" ".join(process.cmdline())[:200])
            process.kill()
        except psutil.NoSuchProcess:
            continue
    return names


def _processes(marker: str) -> list[psutil.Process]:
    """Processes that inherited `FAREND_DIR=marker` and are not zombies."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("FAREND_DIR") == marker and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
