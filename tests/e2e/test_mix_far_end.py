"""Mix at its far end: the prompts that the rollout server got, counted by domain there."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from labrun import Run, run_verl
from mixprobe import Prompt, behind, prompts

pytestmark = pytest.mark.e2e

NAMES = ["sort", "reverse", "add", "range"]
# The proportions of step 1, 2, 3, 4, 1, ...
TURNS = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4], [0.5, 0.0, 0.5, 0.0], [0.05, 0.05, 0.3, 0.6]]
ROLLOUTS = 4
CUT = 7


def run_mix(folder: Path, *overrides: str, steps: int) -> Run:
    return run_verl(
        folder,
        "trainer.v1.trainer_mode=dataflex_sync",
        "+dataflex.mechanism=mix",
        f"+dataflex.domains=[{','.join(NAMES)}]",
        "+dataflex.actuator.name=mixprobe:InTurn",
        f"+dataflex.actuator.params.turns={TURNS}",
        f"actor_rollout_ref.rollout.n={ROLLOUTS}",
        *overrides,
        steps=steps,
        environment={"VERL_USE_EXTERNAL_MODULES": "mixprobe"},
    ).succeeded()


def owed(got: list[Prompt]) -> list[list[float]]:
    shares = [TURNS[(prompt.step - 1) % len(TURNS)] for prompt in got]
    return behind([prompt.domain for prompt in got], NAMES, shares)


def worst_prefix(got: list[Prompt]) -> float:
    return max(abs(value) for domains in owed(got) for value in domains)


def worst_window(got: list[Prompt]) -> float:
    """The most by which a domain misses its target in any run of consecutive prompts."""
    return max(max(column) - min(column) for column in zip(*owed(got), strict=True))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Draws of a whole batch. From step 7 on the plan ignores the proportions."""
    cut = f"+dataflex.handlers=[{{path: 'mixprobe:IgnoreShares', params: {{step: {CUT}}}}}]"
    return run_mix(tmp_path_factory.mktemp("whole"), cut, steps=8)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Draws of single prompts, with refills: verl's own filter throws away groups whose rewards are all equal."""
    overrides = ["algorithm.filter_groups.enable=True", "+dataflex.handlers=['mixprobe:watch_groups']"]
    return run_mix(tmp_path_factory.mktemp("single"), *overrides, steps=4)


def test_what_the_server_gets_follows_the_proportions(whole: Run):
    got = [prompt for prompt in prompts(whole.folder) if prompt.step < CUT]
    assert len(got) == 6 * 8
    assert {prompt.rollouts for prompt in got} == {ROLLOUTS}
    assert worst_prefix(got) < 1
    assert worst_window(got) < 2


def test_a_plan_that_ignores_the_proportions_is_found_out(whole: Run):
    assert worst_prefix(prompts(whole.folder)) > 1


def test_so_does_every_prompt_drawn_for_a_refill(single: Run):
    got = prompts(single.folder)
    assert len(got) > 4 * 8, "nothing was refilled"
    assert worst_prefix(got) < 1
    assert worst_window(got) < 2


def test_what_the_filter_throws_away_is_counted_and_once(single: Run):
    sent = Counter({name: 0 for name in NAMES})
    for prompt in prompts(single.folder):
        sent[prompt.domain] += prompt.rollouts
    counted = Counter({name: 0 for name in NAMES})
    for metrics in single.metrics:
        for name in NAMES:
            counted[name] += int(metrics[f"dataflex/domain/{name}/generated"])
    assert counted == sent
    evicted = sum(metrics.get("training/filter_groups/evicted_samples", 0) for metrics in single.metrics)
    fates = Counter(itertools.chain.from_iterable(record["fate"] for record in single.records("groups")))
    assert evicted > 0
    assert fates["filtered"] == evicted
    assert fates.total() == len(prompts(single.folder))
    trained = sum(metrics[f"dataflex/domain/{name}/kept"] for metrics in single.metrics for name in NAMES)
    assert trained == 4 * 8 * ROLLOUTS < sum(sent.values())
