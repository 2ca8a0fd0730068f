"""The examples run as they stand, without a GPU, and what they show reaches TensorBoard."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from labrun import MODULES, Run, run_command
from mixprobe import prompts
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 2


def run_example(folder: Path, script: str, modules: str = "") -> Run:
    """Run a script from a foreign folder, on the tiny lab, with a further override. verl imports `modules`."""
    environment = {
        "OUT": str(folder / "out"),
        "LAB_OPTIONS": "--tiny",
        **({MODULES: modules} if modules else {}),
        # no GPU, wherever the tests run; and `python` is this one
        "PATH": os.pathsep.join([str(without_gpu(folder)), str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    command = ["bash", str(EXAMPLES / script), f"trainer.total_training_steps={STEPS}"]
    return run_command(folder, command, environment).succeeded()


def without_gpu(folder: Path) -> Path:
    """A folder with an `nvidia-smi` that finds nothing."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    (tools / "nvidia-smi").chmod(0o755)
    return tools


def scalars(folder: Path, *, every_step: bool = True) -> dict[str, list[float]]:
    """The scalars of a TensorBoard run in the order of steps: those that were logged in every step, or all."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    found = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    steps = list(range(1, STEPS + 1))
    return {
        tag: [event.value for event in values]
        for tag, values in found.items()
        if not every_step or [event.step for event in values] == steps
    }


def was_verified(run: Run) -> bool:
    """The run-time verification was made in the first step, and only there: it is due every 50 steps."""
    events = EventAccumulator(str(run.folder / "out" / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("dataflex/verified")] == [(1, 1.0)]


def histograms(folder: Path) -> dict[str, list[tuple[int, float, float, float]]]:
    """(step, count, lowest, highest) of the histograms of a TensorBoard run."""
    events = EventAccumulator(str(folder), size_guidance={"histograms": 0})
    events.Reload()
    return {
        tag: [
            (event.step, event.histogram_value.num, event.histogram_value.min, event.histogram_value.max)
            for event in events.Histograms(tag)
        ]
        for tag in events.Tags()["histograms"]
    }


@pytest.fixture(scope="module")
def custom(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_example(tmp_path_factory.mktemp("custom"), "custom_handler/run.sh")


@pytest.fixture(scope="module")
def select(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_example(tmp_path_factory.mktemp("select"), "select.sh")


@pytest.fixture(scope="module")
def reweight(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_example(tmp_path_factory.mktemp("reweight"), "reweight.sh")


@pytest.fixture(scope="module")
def mix(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_example(tmp_path_factory.mktemp("mix"), "mix.sh", modules="mixprobe")


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_example(tmp_path_factory.mktemp("gate"), "gate.sh", modules="mixprobe")


def test_metrics_of_a_custom_handler_reach_tensorboard(custom: Run) -> None:
    logged = scalars(custom.folder / "out" / "tensorboard")
    assert all(1 <= tokens <= 8 for tokens in logged["my/wrong_answer_tokens"]), (
        "the lab's responses have 1 to 8 tokens"
    )
    assert all(count in range(STEPS + 1) for count in logged["my/steps_without_right_answer"])
    assert "actor/grad_norm" in logged, "next to verl's own"


def test_a_custom_scorer_acts_through_a_built_in_reweighter(custom: Run) -> None:
    logged = scalars(custom.folder / "out" / "tensorboard")
    assert was_verified(custom)
    assert all(value == pytest.approx(1, abs=1e-5) for value in logged["dataflex/weight_mean"])
    assert max(logged["dataflex/weight_std"]) > 0


def test_histograms_go_to_a_sub_run(custom: Run) -> None:
    folder = custom.folder / "out" / "tensorboard"
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["dataflex"]
    assert len(list(folder.glob("events.*"))) == 1, "verl's folder has one writer"
    logged, drawn = scalars(folder), histograms(folder / "dataflex")
    assert set(drawn) == {"dataflex/weights"}
    assert [step for step, *_ in drawn["dataflex/weights"]] == [1, 2]
    for number, (_, count, lowest, highest) in enumerate(drawn["dataflex/weights"]):
        assert count == logged["response_length/mean"][number] * 256, "all response tokens of 32 x 8 rollouts"
        assert lowest == pytest.approx(logged["dataflex/weight_min"][number])
        assert highest == pytest.approx(logged["dataflex/weight_max"][number])


def test_select_drops_rows(select: Run) -> None:
    logged = scalars(select.folder / "out" / "tensorboard")
    assert was_verified(select)
    assert all(0 < share < 1 for share in logged["dataflex/kept_frac"])
    for share, rows, kept in zip(
        logged["dataflex/kept_frac"], logged["dataflex/rows"], logged["dataflex/kept_rows"], strict=True
    ):
        assert share == pytest.approx(rows / 256) and rows == kept


def test_reweight_changes_weights(reweight: Run) -> None:
    logged = scalars(reweight.folder / "out" / "tensorboard")
    assert was_verified(reweight)
    assert all(deviation > 0 for deviation in logged["dataflex/weight_std"])


def test_mix_draws_what_its_scores_ask_for(mix: Run) -> None:
    logged = scalars(mix.folder / "out" / "tensorboard", every_step=False)
    sent = Counter((prompt.step, prompt.domain) for prompt in prompts(mix.folder))  # to the rollout server
    names = sorted({name for _, name in sent})
    assert len(names) == 4
    # Nothing is known before the first step, and all domains have the same bonus before the second.
    raised = {name: math.exp(logged[f"dataflex/domain/{name}/score"][0] / 0.1) for name in names}
    for name in names:
        shares = [0.25, raised[name] / sum(raised.values())]
        assert logged[f"dataflex/prop_{name}"] == pytest.approx(shares, rel=1e-4)
        for step, share in enumerate(shares, 1):
            assert abs(sent[step, name] - 32 * share) < 1
            assert logged[f"dataflex/domain/{name}/generated"][step - 1] == 8 * sent[step, name]
    assert max(logged[f"dataflex/prop_{name}"][1] for name in names) > 0.3, "and it makes a difference"


def test_gate_fills_its_batches_and_counts_what_that_takes(gate: Run) -> None:
    logged = scalars(gate.folder / "out" / "tensorboard")
    sent = Counter(prompt.step for prompt in prompts(gate.folder))  # to the rollout server
    for step in range(STEPS):
        assert logged["dataflex/rollouts_generated"][step] == 8 * sent[step + 1] > 256
        assert logged["dataflex/rollouts_useful"][step] == logged["dataflex/rows"][step] == 256
        assert logged["dataflex/gate/drawn"][step] == sent[step + 1]
    assert len(logged["dataflex/gate/skipped"]) == len(logged["dataflex/gate/explored"]) == STEPS


@pytest.mark.parametrize("name", ["custom", "select", "reweight", "mix", "gate"])
def test_everything_is_written_to_the_output_folder(name: str, request: pytest.FixtureRequest) -> None:
    run: Run = request.getfixturevalue(name)
    made = {path.name for path in run.folder.iterdir()}
    assert made == {"out", "tools", "farend", "log.txt"}, "nothing in the working folder but what the test put there"
    assert {path.name for path in (run.folder / "out").iterdir()} >= {"tensorboard", "hydra"}


@pytest.mark.parametrize("script", sorted(path.relative_to(EXAMPLES) for path in EXAMPLES.rglob("*.sh")), ids=str)
def test_scripts_are_valid_bash(script: Path) -> None:
    subprocess.run(["bash", "-n", str(EXAMPLES / script)], check=True)
    executable = os.access(EXAMPLES / script, os.X_OK)
    assert executable != script.name.startswith("_"), "what is sourced is not executable, everything else is"
