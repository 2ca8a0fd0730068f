"""Runs that cannot work are refused by verl's entry point in seconds: one message, and nothing has been started."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from labrun import MODULES, SUPPORT, Run, run_command, run_verl, small_overrides
from tenmistakes import FILE, MESSAGE

from dataflex_events.adapters.verl.cpu.overrides import lab_environment
from dataflex_events.cli import main

pytestmark = pytest.mark.e2e

SYNC = "trainer.v1.trainer_mode=dataflex_sync"
REWEIGHT = "+dataflex={mechanism:reweight,scorer:{name:advantage_magnitude},actuator:{name:softmax}}"
SELECT = "+dataflex={mechanism:select,scorer:{name:group_solve_rate},actuator:{name:threshold_band}}"
CRITIC = [
    "algorithm.adv_estimator=gae",
    "critic.model.path=${actor_rollout_ref.model.path}",
    "critic.ppo_micro_batch_size_per_gpu=4",
]

ESTIMATOR = ["algorithm.adv_estimator=gae"]  # the lab's own comes after the file

# What is wrong -> overrides, and the line that says so.
REFUSED: dict[str, tuple[list[str], str]] = {
    "import string": (
        [SYNC, "+dataflex.handlers=[weighting:all_one]"],
        "dataflex.handlers[0]: cannot import 'weighting': ModuleNotFoundError: No module named 'weighting'",
    ),
    "scorer": (
        [SYNC, REWEIGHT.replace("advantage_magnitude", "advantage_magnitud")],
        "dataflex.scorer.name: unknown scorer 'advantage_magnitud' (did you mean 'advantage_magnitude'?)",
    ),
    "trainer mode": (
        ["trainer.v1.trainer_mode=sync", REWEIGHT],
        "trainer.v1.trainer_mode: 'sync' would ignore the dataflex block; use 'dataflex_sync'",
    ),
    "legacy trainer": (
        [SYNC, REWEIGHT, "trainer.use_v1=false"],
        "trainer.use_v1: is false: the legacy trainer would ignore the dataflex block",
    ),
    "critic": (
        [SYNC, SELECT.replace("group_solve_rate", "reward"), *CRITIC],
        "algorithm.adv_estimator: this run trains a critic, so rows cannot be dropped; give the policy `apply: weight`",
    ),
    "loss": (
        [SYNC, SELECT[:-1] + ",apply:mask}", "actor_rollout_ref.actor.policy_loss.loss_mode=geo_mean"],
        "actor_rollout_ref.actor.policy_loss.loss_mode: 'geo_mean' averages over masked rows too",
    ),
}


EVERYTHING = [
    "trainer.v1.trainer_mode=sync",
    "trainer.use_v1=false",
    "+dataflex.handlers=[weighting:all_one]",
    REWEIGHT.replace("softmax", "softmacks").replace("+dataflex=", "+dataflex.policies=[") + "]",
]


def surroundings(folder: Path) -> dict[str, str]:
    """Ray makes its folder when it starts; the probe leaves a file in every process that imports verl."""
    return {"RAY_TMPDIR": str(folder / "ray"), MODULES: "processes"}


@pytest.fixture(scope="module")
def one_by_one(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One process, whose calls of the entry point make one mistake each."""
    folder = tmp_path_factory.mktemp("one_by_one")
    mistakes = {name: overrides for name, (overrides, _) in REFUSED.items()} | {"everything": EVERYTHING}
    calls = {name: [*small_overrides(folder), *overrides] for name, overrides in mistakes.items()}
    file = folder / "calls.json"
    file.write_text(json.dumps(calls))
    command = [sys.executable, str(SUPPORT / "entrypoint.py"), str(file)]
    return run_command(folder, command, {**lab_environment(), **surroundings(folder)}, timeout=120).succeeded()


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A command line with a run file that makes ten different mistakes."""
    folder = tmp_path_factory.mktemp("ten")
    file = [f"--config-dir={FILE.parent}", f"--config-name={FILE.stem}"]
    return run_verl(folder, *file, *ESTIMATOR, environment=surroundings(folder), timeout=120).failed()


@pytest.mark.parametrize("name", ["one_by_one", "ten"])
def test_nothing_was_started(name: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(name)
    assert not (run.folder / "ray").exists()
    assert "Started a local Ray instance" not in run.log
    assert len(list((run.folder / "farend").glob("process-*"))) == 1, "verl was imported by the entry point alone"


def test_ten_mistakes_are_one_message(ten: Run) -> None:
    assert ten.log.count(f"ConfigError: {MESSAGE}\n") == 1, ten.log[-4000:]


def test_check_says_the_same(ten: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(FILE), *small_overrides(ten.folder), *ESTIMATOR]) == 1
    assert capsys.readouterr().err == f"dataflex-events: {MESSAGE}\n"


@pytest.mark.parametrize("mistake", REFUSED)
def test_the_message_says_what_is_wrong(one_by_one: Run, mistake: str) -> None:
    said = one_by_one.log.partition(f"=== {mistake}\n")[2].partition("\n=== ")[0]
    message = f"ConfigError: 1 mistake in the dataflex configuration:\n  - {REFUSED[mistake][1]}"
    assert said.count(message) == 1, said[-3000:]
    assert "accepted" not in said


def test_one_message_lists_all_mistakes(one_by_one: Run) -> None:
    said = one_by_one.log.partition("=== everything\n")[2].partition("\n=== ")[0]
    listed = said.partition("4 mistakes in the dataflex configuration:\n")[2].splitlines()[:4]
    assert [line.partition(": ")[0] for line in listed] == [
        "  - trainer.use_v1",
        "  - trainer.v1.trainer_mode",
        "  - dataflex.policies[0].actuator.name",
        "  - dataflex.handlers[0]",
    ]
