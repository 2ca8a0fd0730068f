"""A run can be repeated: verl's own trainer, twice, with everything that the lab supports turned on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import pytest
from labrun import Run, run_verl

pytestmark = pytest.mark.e2e

MEASURED = ("timing", "perf/", "memory")
"""Parts of the names of metrics that measure this machine."""

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"
EVERYTHING = [
    # two mini-batches, several micro-batches, sums over two ranks
    "data.train_batch_size=8",
    f"{ACTOR}.ppo_mini_batch_size=4",
    f"{ACTOR}.ppo_max_token_len_per_gpu=256",
    # reference policy
    f"{ACTOR}.use_kl_loss=True",
    # log-probs of the rollout server in the loss
    f"{ROLLOUT}.calculate_log_probs=True",
    "algorithm.rollout_correction.rollout_is=token",
    # validation, before and between
    "trainer.val_before_train=True",
    "trainer.test_freq=2",
    "trainer.logger=[console,file,tensorboard]",
]


def listening(folder: Path) -> Iterator[tuple[str, str]]:
    """Addresses on which the processes of the run in `folder` listen, with the name of the process."""
    for process in psutil.process_iter():
        try:
            if process.environ().get("TENSORBOARD_DIR") == str(folder):
                for connection in process.net_connections("inet"):
                    if connection.status == psutil.CONN_LISTEN:
                        yield connection.laddr.ip, " ".join(process.cmdline())[:80]
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def run_and_listen(folder: Path) -> tuple[Run, set[tuple[str, str]]]:
    """Make a run, and look all the time where its processes listen."""
    tensorboard, found, ended = folder / "tensorboard", set[tuple[str, str]](), Event()

    def look() -> None:
        while not ended.wait(1.0):
            found.update(listening(tensorboard))

    watcher = Thread(target=look)
    watcher.start()
    try:
        run = run_verl(folder, *EVERYTHING, steps=3, ranks=2, environment={"TENSORBOARD_DIR": str(tensorboard)})
    finally:
        ended.set()
        watcher.join()
    return run.succeeded(), found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Run, set[tuple[str, str]]]]:
    return [run_and_listen(tmp_path_factory.mktemp(name)) for name in ("one", "two")]


@pytest.fixture(scope="module")
def runs(watched: list[tuple[Run, set[tuple[str, str]]]]) -> tuple[Run, Run]:
    (one, _), (two, _) = watched
    return one, two


def repeatable(run: Run) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in step.items() if not any(part in name for part in MEASURED)}
        for step in run.metrics
    ]


def test_two_runs_have_the_same_metrics_to_the_last_bit(runs: tuple[Run, Run]) -> None:
    one, two = map(repeatable, runs)
    assert len(one) == 3
    assert all(len(step) > 50 for step in one)
    assert one == two


def test_the_steps_are_worth_comparing(runs: tuple[Run, Run]) -> None:
    for step in runs[0].metrics:
        assert step["actor/grad_norm"] > 0
        assert 0 < step["critic/rewards/mean"] < 1
        assert step["actor/kl_loss"] >= 0
    assert len({step["actor/grad_norm"] for step in runs[0].metrics}) == 3


def test_log_probs_of_the_server_are_those_of_the_trainer(runs: tuple[Run, Run]) -> None:
    for step in runs[0].metrics:
        assert step["training/rollout_probs_diff_max"] < 1e-5
        assert math.isclose(step["rollout_corr/rollout_is_mean"], 1.0, abs_tol=1e-5)


def test_validation_reports_every_domain(runs: tuple[Run, Run]) -> None:
    second = runs[0].metrics[1]
    for domain in ("reverse", "range", "sort", "add"):
        assert 0 <= second[f"val-core/lab/{domain}/acc/mean@1"] <= 1


def test_tensorboard_has_the_steps(runs: tuple[Run, Run]) -> None:
    assert list((runs[0].folder / "tensorboard").glob("events.*"))


def test_no_process_listens_beyond_this_machine(watched: list[tuple[Run, set[tuple[str, str]]]]) -> None:
    for _, found in watched:
        assert len(found) > 10, "Ray, TransferQueue and torch all listen"
        assert {ip for ip, _ in found} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, sorted(found)
