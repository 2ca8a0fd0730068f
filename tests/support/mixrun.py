"""Runs that draw in other proportions at every step, through a gate, refill, and are killed and resumed."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
from labrun import Run, run_verl
from mixprobe import FILE, Prompt

NAMES = ["range", "reverse", "sort", "add"]
# The proportions of step 1, 2, 3, 4, 1, ...
TURNS = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.5, 0.0, 0.5, 0.0], [0.05, 0.05, 0.3, 0.6]]

STEPS, SAVED = 8, 4
CUT = STEPS + 1  # a further step of one run, in which the plan ignores the proportions
ENDLESS = CUT + 1  # and one in which no group is good enough
PROMPTS, ROLLOUTS = 8, 4

MIX = {
    "mechanism": "mix",
    "domains": NAMES,
    "scorer": {"name": "group_advantage"},
    "actuator": {"name": "mixprobe:InTurn", "params": {"turns": TURNS}},
}
BAND = {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}}
# One fresh prompt for each dropped group: so a run does not depend on timing.
REFILLED = {**BAND, "refill": {"eager": False, "max_generated_factor": 1e6}}
# Draws random numbers, and meets prompts again: the data are small.
GATE = {"mechanism": "gate", "actuator": {"name": "mopps", "params": {"candidates": 4, "explore": 0.1}}}
HALF = {"mechanism": "select", "scorer": {"name": "reward"}, "actuator": {"name": "max_variance"}}

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
# Everything that the lab supports, so that a comparison to the last bit is worth something.
EVERYTHING = [
    # two mini-batches, several micro-batches
    f"data.train_batch_size={PROMPTS}",
    f"{ACTOR}.ppo_mini_batch_size=4",
    f"{ACTOR}.ppo_max_token_len_per_gpu=256",
    f"{ACTOR}.optim.lr=5e-5",
    "data.train_max_samples=128",
    "trainer.total_epochs=10",
    # reference policy
    f"{ACTOR}.use_kl_loss=True",
    # log-probs of the rollout server in the loss
    f"{ROLLOUT}.calculate_log_probs=True",
    "algorithm.rollout_correction.rollout_is=token",
    # validation
    f"trainer.test_freq={SAVED}",
    "trainer.logger=[console,file,tensorboard]",
]


def hydra(value: Any) -> str:
    """A value as Hydra's command line has it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{hydra(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(hydra, value)) + "]"
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


def run_mix(
    folder: Path,
    policies: Sequence[dict[str, Any]],
    handlers: Sequence[Any],
    *overrides: str,
    steps: int,
    environment: dict[str, str] | None = None,
    **options: Any,
) -> Run:
    """Run verl in the lab with these policies and handlers, with the probe of `mixprobe` in every process."""
    return run_verl(
        folder,
        "trainer.v1.trainer_mode=dataflex_sync",
        f"+dataflex.policies={hydra(list(policies))}",
        f"+dataflex.handlers={hydra(list(handlers))}",
        *overrides,
        steps=steps,
        environment={"VERL_USE_EXTERNAL_MODULES": "mixprobe", **(environment or {})},
        **options,
    )


def run_and_listen(
    folder: Path, checkpoints: Path, *, kill: int = 0, steps: int = STEPS
) -> tuple[Run, set[tuple[str, str]]]:
    """A run with all of `EVERYTHING`, and the addresses on which its processes listened.

    Args:
        folder: Of the run.
        checkpoints: Where it saves, and resumes from.
        kill: The step in whose draw the trainer is killed; 0: it is not.
        steps: How many it makes. In step `ENDLESS` it gets a Ctrl-C.
    """
    tensorboard, found, ended = folder / "tensorboard", set[tuple[str, str]](), Event()

    def look() -> None:
        interrupted = False
        while not ended.wait(1.0):
            found.update(_listening(tensorboard))
            if not interrupted and sent_in(folder, ENDLESS) > 4 * PROMPTS * ROLLOUTS:
                interrupted = True
                interrupt(folder)

    watcher = Thread(target=look)
    watcher.start()
    try:
        run = run_mix(
            folder,
            [MIX, GATE, REFILLED, HALF],
            [
                {"path": "mixprobe:KillAt", "params": {"step": kill}},
                {"path": "mixprobe:IgnoreShares", "params": {"step": CUT}},
                {"path": "gateprobe:Refuse", "params": {"step": ENDLESS}},
            ],
            *EVERYTHING,
            f"trainer.default_local_dir={checkpoints}",
            f"trainer.save_freq={SAVED}",
            "trainer.resume_mode=auto",
            f"{ROLLOUT}.n={ROLLOUTS}",
            steps=steps,
            environment={"TENSORBOARD_DIR": str(tensorboard)},
        )
    finally:
        ended.set()
        watcher.join()
    return run, found


def sent_in(folder: Path, step: int) -> int:
    """Rollouts of a step that the server has got."""
    server = folder / "farend" / FILE
    return server.read_text().count(f'"step": {step},') if server.exists() else 0


def interrupt(folder: Path) -> None:
    """Send SIGINT to verl's own process, as a terminal does."""
    for process in psutil.process_iter():
        try:
            if "verl.trainer.main_ppo" in process.cmdline() and str(folder) in process.environ().get("FAREND_DIR", ""):
                process.send_signal(signal.SIGINT)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def _listening(folder: Path) -> Iterator[tuple[str, str]]:
    """Addresses on which the processes of the run in `folder` listen, with the name of the process."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("TENSORBOARD_DIR") == str(folder):
                for connection in process.net_connections("inet"):
                    if connection.status == psutil.CONN_LISTEN:
                        yield connection.laddr.ip, " ".join(process.cmdline())[:80]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def owed(got: Sequence[Prompt]) -> list[list[float]]:
    """Before the first and after each prompt, how many each domain is behind its target: shares less prompts."""
    history = [[0.0] * len(NAMES)]
    for prompt in got:
        shares = TURNS[(prompt.step - 1) % len(TURNS)]
        before = history[-1]
        history.append(
            [was + share - (name == prompt.domain) for was, share, name in zip(before, shares, NAMES, strict=True)]
        )
    return history


def worst_prefix(got: Sequence[Prompt]) -> float:
    """The most by which a domain misses its target after any prompt."""
    return max(abs(value) for domains in owed(got) for value in domains)


def worst_window(got: Sequence[Prompt]) -> float:
    """The most by which a domain misses its target in any run of consecutive prompts."""
    return max(max(column) - min(column) for column in zip(*owed(got), strict=True))
