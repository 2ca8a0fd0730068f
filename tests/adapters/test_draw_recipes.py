"""Recipes that decide what is generated: what they ask for, and that they are their presets."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import DictConfig

from dataflex_events import Gate, Plan, presets
from dataflex_events.adapters.verl.block import dataflex_block
from dataflex_events.adapters.verl.commands._compose import load
from dataflex_events.adapters.verl.cpu.lab import Lab, LabSettings
from dataflex_events.adapters.verl.cpu.overrides import lab_overrides
from dataflex_events.adapters.verl.preflight import plan_for
from dataflex_events.plan import make_plan
from dataflex_events.refill import Refill

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
GATES = {"greso_refill": "Greso", "mopps": "Mopps", "learnability": "Learnability", "pools": "DifficultyPools"}
REFILLED = ("dapo_refill", "greso_refill")
DRAWING = sorted({*GATES, *REFILLED})


def compose(name: str, *overrides: str) -> DictConfig:
    return load([str(RECIPES / f"{name}.yaml"), *overrides]).config


def gate_of(plan: Plan) -> Gate | None:
    return None if plan.gate is None else plan.gate.gate


@pytest.mark.parametrize("name", DRAWING)
def test_a_recipe_fits_the_lab(name: str, tmp_path: Path) -> None:
    config = compose(name, *lab_overrides(Lab(tmp_path, LabSettings(), {})))
    plan = plan_for(config, dataflex_block(config))
    gate = gate_of(plan)
    assert (None if gate is None else type(gate).__name__) == GATES.get(name)
    assert plan.refill == (Refill() if name in REFILLED else None)


@pytest.mark.parametrize("name", DRAWING)
def test_a_recipe_decides_what_its_preset_does(name: str) -> None:
    assert f"+dataflex={name}\n" in (RECIPES / f"{name}.yaml").read_text()
    recipe, preset = (make_plan(block) for block in (dataflex_block(compose(name)), presets.load(name)["dataflex"]))
    assert gate_of(recipe) == gate_of(preset)
    assert recipe.refill == preset.refill
    assert [(policy.key, policy.actuator) for policy in recipe.policies] == [
        (policy.key, policy.actuator) for policy in preset.policies
    ]
