"""Every recipe runs for two steps on made-up rollouts; what the workers get is computed again by hand, slowly."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean, pvariance, stdev
from typing import TypeAlias

import pytest
import torch
from fakequeue import FakeQueue
from madeup import MadeUpRun, Rollout, Step, make_step
from omegaconf import DictConfig

from dataflex_events import presets
from dataflex_events.adapters.verl.block import dataflex_block
from dataflex_events.adapters.verl.commands._compose import load
from dataflex_events.adapters.verl.cpu.lab import Lab, LabSettings
from dataflex_events.adapters.verl.cpu.overrides import lab_overrides
from dataflex_events.adapters.verl.preflight import plan_for
from dataflex_events.plan import make_plan

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
SMALL = ("data.train_batch_size=6", "actor_rollout_ref.actor.ppo_mini_batch_size=3")
DYNAMIC = ("actor_rollout_ref.actor.use_dynamic_bsz=true",)
OFTEN = ("++dataflex.verify_every=1",)

Weights: TypeAlias = Callable[[Rollout], Sequence[float]]


def compose(name: str, *overrides: str) -> DictConfig:
    return load([str(RECIPES / f"{name}.yaml"), *SMALL, *DYNAMIC, *OFTEN, *overrides]).config


def run(queue: FakeQueue, config: DictConfig, seed: int = 0) -> tuple[MadeUpRun, list[Step]]:
    generator = random.Random(seed)
    steps = [make_step(generator, config.actor_rollout_ref.rollout.n) for _ in range(2)]
    trainer = MadeUpRun(config, queue, steps)
    trainer.fit(None)
    assert len(trainer.actor_rollout_wg.received) == 2
    return trainer, steps


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    return FakeQueue(monkeypatch)


# ------------------------------------------------------------------ by hand


def groups(step: Step) -> list[list[Rollout]]:
    return [[row for row in step if row.prompt == prompt] for prompt in dict.fromkeys(row.prompt for row in step)]


def grpo(group: Sequence[Rollout]) -> dict[str, float]:
    rewards = [row.reward for row in group]
    return {row.key: (row.reward - mean(rewards)) / (stdev(rewards) + 1e-6) for row in group}


def solve_rate(group: Sequence[Rollout]) -> float:
    return sum(row.reward > 0.5 for row in group) / len(group)


def between(low: float, high: float) -> Callable[[Sequence[Rollout]], list[Rollout]]:
    return lambda group: list(group) if low + 1e-6 < solve_rate(group) < high - 1e-6 else []


def shortest(group: Sequence[Rollout]) -> list[Rollout]:
    return sorted(group, key=lambda row: (row.length, row.number))[:4]


def most_efficient(group: Sequence[Rollout]) -> list[Rollout]:
    return sorted(group, key=lambda row: (-row.reward / row.length, row.number))[:4]


def most_varied(group: Sequence[Rollout]) -> list[Rollout]:
    """Of all subsets of four with the highest variance the one with the highest rewards, then the first rows."""
    best = max(pvariance([row.reward for row in subset]) for subset in combinations(group, 4))
    as_good = [subset for subset in combinations(group, 4) if pvariance([row.reward for row in subset]) > best - 1e-9]
    return list(min(as_good, key=lambda subset: (-sum(row.reward for row in subset), [row.number for row in subset])))


DROPPING = {
    "dapo_band": between(0.0, 1.0),
    "difficulty_filtering": between(0.2, 0.8),
    "pods": most_varied,
    "gfpo_short": shortest,
    "gfpo_efficient": most_efficient,
}


def ar(step: Step) -> Weights:
    return lambda row: [0.2 * prob + 0.8 for prob in row.probs]


def per(step: Step) -> Weights:
    advantages = {key: value for group in groups(step) for key, value in grpo(group).items()}
    raw = {row.key: abs(advantages[row.key]) ** 0.5 for row in step}
    scale = sum(raw[row.key] * row.length for row in step) / sum(row.length for row in step)  # mean 1 over tokens
    return lambda row: [raw[row.key] / scale] * len(row.mask)


def eighty_twenty(step: Step) -> Weights:
    every = sorted(value for row in step for value, valid in zip(row.entropy, row.mask, strict=True) if valid)
    position = 0.8 * (len(every) - 1)
    below = int(position)
    bound = every[below] + (position - below) * (every[below + 1] - every[below])
    return lambda row: [float(value >= bound) for value in row.entropy]


# These decide what is generated: `test_draw_recipes.py`.
DRAWING = ("dapo_refill", "greso_refill", "learnability", "mopps", "pools")

WEIGHING = {"advantage_reweight": ar, "per": per, "top_entropy_tokens": eighty_twenty}


# ------------------------------------------------------------------ what the workers got


def valid_tokens(row: Rollout, values: torch.Tensor) -> list[float]:
    assert len(values) == len(row.mask)
    return [value for value, valid in zip(values.tolist(), row.mask, strict=True) if valid]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", DROPPING)
def test_recipes_that_drop_rows(name: str, seed: int, queue: FakeQueue) -> None:
    trainer, steps = run(queue, compose(name), seed)
    for step, received, sent in zip(
        steps, trainer.actor_rollout_wg.received, trainer.actor_rollout_wg.sent, strict=True
    ):
        kept = [DROPPING[name](group) for group in groups(step)]
        expected = {row.key: (row, grpo(group)[row.key]) for group in kept for row in group}
        assert 0 < len(expected) < len(step)
        assert received.keys() == expected.keys()
        for key, (row, advantage) in expected.items():
            assert valid_tokens(row, received[key]["advantages"]) == pytest.approx([advantage] * row.length, abs=1e-5)
            assert received[key]["response_mask"].tolist() == list(row.mask)
            assert "rollout_is_weights" not in received[key]
        assert sent["global_batch_size"] == len(expected) / 2, "two mini-batches, as in a full step"


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", WEIGHING)
def test_recipes_that_weigh(name: str, seed: int, queue: FakeQueue) -> None:
    trainer, steps = run(queue, compose(name), seed)
    for step, received in zip(steps, trainer.actor_rollout_wg.received, strict=True):
        weights = WEIGHING[name](step)
        advantages = {key: value for group in groups(step) for key, value in grpo(group).items()}
        assert received.keys() == {row.key for row in step}
        for row in step:
            columns = received[row.key]
            expected = [value for value, valid in zip(weights(row), row.mask, strict=True) if valid]
            assert valid_tokens(row, columns["rollout_is_weights"]) == pytest.approx(expected, rel=1e-5, abs=1e-6)
            assert valid_tokens(row, columns["advantages"]) == pytest.approx(
                [advantages[row.key]] * row.length, abs=1e-5
            )
            assert columns["response_mask"].tolist() == list(row.mask)


def test_a_recipe_in_shadow_leaves_everything_as_it_is(queue: FakeQueue) -> None:
    trainer, steps = run(queue, compose("pods", "+dataflex.shadow=true"))
    for step, received in zip(steps, trainer.actor_rollout_wg.received, strict=True):
        advantages = {key: value for group in groups(step) for key, value in grpo(group).items()}
        assert received.keys() == advantages.keys()
        for row in step:
            assert valid_tokens(row, received[row.key]["advantages"]) == pytest.approx(
                [advantages[row.key]] * row.length, abs=1e-5
            )
            assert "rollout_is_weights" not in received[row.key]


# ------------------------------------------------------------------ the folder


@pytest.mark.parametrize("name", [*DROPPING, *WEIGHING])
def test_a_recipe_fits_the_lab(name: str, tmp_path: Path) -> None:
    lab = Lab(tmp_path, LabSettings(), {})
    config = load([str(RECIPES / f"{name}.yaml"), *lab_overrides(lab)]).config
    assert len(plan_for(config, dataflex_block(config)).policies) == 1


def test_every_recipe_is_tested_and_in_the_index() -> None:
    names = {path.stem for path in RECIPES.glob("*.yaml")}
    assert names == {*DROPPING, *WEIGHING, *DRAWING}
    index = (RECIPES / "README.md").read_text()
    assert all(f"[`{name}`]({name}.yaml)" in index for name in names)


@pytest.mark.parametrize(
    ("recipe", "preset"),
    [
        *((name, name) for name in ("dapo_band", "difficulty_filtering", "pods", "advantage_reweight")),
        ("gfpo_efficient", "gfpo"),
        ("per", "per_advantage"),
        ("top_entropy_tokens", "top_entropy"),
    ],
)
def test_a_recipe_decides_what_its_preset_does(recipe: str, preset: str) -> None:
    assert f"+dataflex={preset}\n" in (RECIPES / f"{recipe}.yaml").read_text()
    of_the_recipe, of_the_preset = (
        make_plan(block).policies[0] for block in (dataflex_block(compose(recipe)), presets.load(preset)["dataflex"])
    )
    for part in ("key", "scorer", "actuator", "acts_at", "normalize", "apply", "baseline"):
        assert getattr(of_the_recipe, part) == getattr(of_the_preset, part)
