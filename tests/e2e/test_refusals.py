"""Runs that cannot work are refused by verl's entry point in seconds: one message, and nothing has been started."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from labrun import Run, run_verl

pytestmark = pytest.mark.e2e

SYNC = "trainer.v1.trainer_mode=dataflex_sync"
REWEIGHT = "+dataflex={mechanism:reweight,scorer:{name:advantage_magnitude},actuator:{name:softmax}}"
SELECT = "+dataflex={mechanism:select,scorer:{name:group_solve_rate},actuator:{name:threshold_band}}"
CRITIC = [
    "algorithm.adv_estimator=gae",
    "critic.model.path=${actor_rollout_ref.model.path}",
    "critic.ppo_micro_batch_size_per_gpu=4",
]

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
        [SYNC, SELECT, *CRITIC],
        "algorithm.adv_estimator: this run trains a critic, so rows cannot be dropped; give the policy `apply: weight`",
    ),
    "loss": (
        [SYNC, REWEIGHT, "actor_rollout_ref.actor.policy_loss.loss_mode=geo_mean"],
        "actor_rollout_ref.actor.policy_loss.loss_mode: 'geo_mean' does not apply weights token by token",
    ),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """All runs, two at a time, and one that makes every mistake that can be made at once."""
    root = tmp_path_factory.mktemp("refused")
    everything = ["trainer.v1.trainer_mode=sync", "trainer.use_v1=false", "+dataflex.handlers=[weighting:all_one]"]
    everything += [REWEIGHT.replace("softmax", "softmacks").replace("+dataflex=", "+dataflex.policies=[") + "]"]
    commands = {**{name: overrides for name, (overrides, _) in REFUSED.items()}, "everything": everything}

    def run(name: str) -> Run:
        return _refused(root / name.replace(" ", "_"), commands[name])

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(commands, pool.map(run, commands), strict=True))


def _refused(folder: Path, overrides: list[str]) -> Run:
    # Ray makes its folder when it starts; the probe leaves a file in every process that imports verl.
    environment = {"RAY_TMPDIR": str(folder / "ray"), "VERL_USE_EXTERNAL_MODULES": "processes"}
    return run_verl(folder, *overrides, environment=environment, timeout=120).failed()


@pytest.mark.parametrize("mistake", [*REFUSED, "everything"])
def test_nothing_was_started(refused: dict[str, Run], mistake: str) -> None:
    run = refused[mistake]
    assert not (run.folder / "ray").exists()
    assert "Started a local Ray instance" not in run.log
    assert len(list((run.folder / "farend").glob("process-*"))) == 1, "verl was imported by the entry point alone"


@pytest.mark.parametrize("mistake", REFUSED)
def test_the_message_says_what_is_wrong(refused: dict[str, Run], mistake: str) -> None:
    message = f"ConfigError: 1 mistake in the dataflex configuration:\n  - {REFUSED[mistake][1]}"
    assert refused[mistake].log.count(message) == 1, refused[mistake].log[-3000:]


def test_one_message_lists_all_mistakes(refused: dict[str, Run]) -> None:
    log = refused["everything"].log
    assert log.count("mistakes in the dataflex configuration:") == 1
    listed = log.partition("4 mistakes in the dataflex configuration:\n")[2].splitlines()[:4]
    assert [line.partition(": ")[0] for line in listed] == [
        "  - trainer.use_v1",
        "  - trainer.v1.trainer_mode",
        "  - dataflex.policies[0].actuator.name",
        "  - dataflex.handlers[0]",
    ]
