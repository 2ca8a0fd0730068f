"""A run that is killed goes on as if it had not been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from labrun import Run, run_verl
from mixprobe import prompts

from dataflex_events.state import read_state

pytestmark = pytest.mark.e2e

POLICIES = (
    "{mix: {mechanism: mix, actuator: {name: dump_ucb, params: {temperature: 0.5, window: 40}}, warmup_step: 1}, "
    "band: {mechanism: select, scorer: {name: group_solve_rate}, actuator: {name: threshold_band}}}"
)


def run(folder: Path, checkpoints: Path, *overrides: str, kill: int = 0) -> Run:
    return run_verl(
        folder,
        "trainer.v1.trainer_mode=dataflex_sync",
        f"+dataflex.policies={POLICIES}",
        f"+dataflex.handlers=[{{path: 'mixprobe:KillAt', params: {{step: {kill}}}}}]",
        f"trainer.default_local_dir={checkpoints}",
        "trainer.save_freq=4",
        "trainer.resume_mode=auto",
        *overrides,
        steps=8,
        environment={"VERL_USE_EXTERNAL_MODULES": "mixprobe"},
    )


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Eight steps in one go."""
    folder = tmp_path_factory.mktemp("straight")
    return run(folder, folder / "checkpoints").succeeded()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The trainer is killed when it draws for step 5, after the checkpoint of step 4."""
    folder = tmp_path_factory.mktemp("killed")
    return run(folder, folder / "checkpoints", kill=5)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory, killed: Run) -> Run:
    """Goes on from there."""
    return run(tmp_path_factory.mktemp("resumed"), killed.folder / "checkpoints").succeeded()


def values(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if not name.startswith(("timing", "perf/"))}


def test_it_was_killed_after_four_steps(killed: Run):
    assert killed.code != 0
    assert len(killed.metrics) == 4
    assert (killed.folder / "checkpoints" / "latest_checkpointed_iteration.txt").read_text() == "4"


def test_the_server_gets_the_same_prompts_in_the_same_order(straight: Run, killed: Run, resumed: Run):
    whole = prompts(straight.folder)
    assert prompts(killed.folder) == [prompt for prompt in whole if prompt.step <= 4]
    assert prompts(resumed.folder) == [prompt for prompt in whole if prompt.step > 4]


def test_every_metric_is_the_same_verls_losses_included(straight: Run, killed: Run, resumed: Run):
    expected = [values(metrics) for metrics in straight.metrics]
    assert [values(metrics) for metrics in (*killed.metrics, *resumed.metrics)] == expected
    assert "actor/pg_loss" in expected[4]


def test_the_proportions_changed_in_the_steps_that_are_compared(resumed: Run):
    proportions = [metrics["dataflex/prop_range"] for metrics in resumed.metrics]
    assert len(set(proportions)) == 4


def test_the_statistics_are_the_same_to_the_last_bit(straight: Run, resumed: Run, killed: Run):
    states = [read_state(run.folder / "checkpoints" / "global_step_8" / "dataflex") for run in (straight, killed)]
    assert states[0].keys() == states[1].keys()
    assert_same(*states)


def test_what_a_selector_drops_is_in_the_statistics(straight: Run):
    generated = [
        sum(value for name, value in metrics.items() if name.endswith("/generated")) for metrics in straight.metrics
    ]
    assert generated == [64.0] * 8
    assert min(metrics["dataflex/kept_rows"] for metrics in straight.metrics) < 64
    state = read_state(straight.folder / "checkpoints" / "global_step_8" / "dataflex")
    assert state["parts"]["mix 'mix'"]["state"]["stats"]["count"].sum() == 8 * 64


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert one.numpy().tobytes() == other.numpy().tobytes()
    else:
        assert one == other
