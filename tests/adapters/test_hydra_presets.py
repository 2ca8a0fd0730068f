"""Presets by Hydra: on verl's command line, in a file, and several at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from dataflex_events import DataflexError
from dataflex_events.adapters.verl.block import dataflex_block, mode_of
from dataflex_events.adapters.verl.commands._compose import load
from dataflex_events.adapters.verl.preflight import plan_for

pytestmark = pytest.mark.verl

GRPO = ("algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.n=8")

# What a worker does: it imports verl, and nothing that composes configurations.
LIGHT = """
import sys, verl
assert not [name for name in sys.modules if name.startswith("hydra")], "verl itself imports Hydra: check another module"
assert "dataflex_events.presets" not in sys.modules
import hydra
assert "dataflex_events.presets" in sys.modules
from hydra.core.config_store import ConfigStore
print(sorted(ConfigStore.instance().repo["dataflex"]))
"""


def python(*arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def policies_of(config: DictConfig) -> list[str]:
    return [policy.name for policy in plan_for(config, dataflex_block(config)).policies]


def test_verls_entry_point_composes_presets_and_overrides(tmp_path: Path) -> None:
    shown = python(
        *("-m", "verl.trainer.main_ppo", "--cfg", "job", *GRPO),
        "+dataflex=[dapo_band,advantage_reweight]",
        "dataflex.policies.dapo_band.actuator.params.low=0.125",
        "+dataflex.shadow=true",
        cwd=tmp_path,
    )
    config: Any = yaml.safe_load(shown[shown.index("actor_rollout_ref:") :])
    assert config["trainer"]["v1"]["trainer_mode"] == "dataflex_sync"
    assert config["dataflex"] == {
        "policies": {
            "dapo_band": {
                "mechanism": "select",
                "scorer": {"name": "group_solve_rate", "params": {"success_threshold": 0.5}},
                "actuator": {"name": "threshold_band", "params": {"low": 0.125, "high": 1.0}},
            },
            "advantage_reweight": {
                "mechanism": "reweight",
                "scorer": {"name": "token_prob"},
                "actuator": {"name": "advantage_reweight", "params": {"alpha": 0.2}},
                "normalize": "none",
            },
        },
        "shadow": True,
    }
    assert policies_of(OmegaConf.create(config)) == ["dapo_band", "advantage_reweight"]


def test_no_preset_is_read_before_hydra_is_imported(tmp_path: Path) -> None:
    assert python("-c", LIGHT, cwd=tmp_path).splitlines()[-1].startswith("['advantage_reweight.yaml', 'dapo_band.yaml'")


@pytest.mark.parametrize(
    "name",
    ["dapo_band", "difficulty_filtering", "pods", "gfpo", "advantage_reweight", "per_advantage", "top_entropy"],
)
def test_a_preset_is_enough(name: str) -> None:
    config = load([f"+dataflex={name}", *GRPO]).config
    assert mode_of(config) == "dataflex_sync"
    assert policies_of(config) == [name]


def test_a_parameter_of_a_preset_is_changed_without_a_sign() -> None:
    config = load(["+dataflex=pods", *GRPO, "dataflex.policies.pods.actuator.params.keep_fraction=0.25"]).config
    assert dataflex_block(config)["policies"]["pods"]["actuator"]["params"] == {"keep_fraction": 0.25}


def test_in_the_defaults_of_a_file_with_more_in_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "defaults: [ppo_trainer, dataflex: dapo_band, _self_]\n"
        "dataflex: {verify_every: 7, policies: {dapo_band: {actuator: {params: {high: 0.9}}}}}\n"
    )
    config = load([str(file), *GRPO]).config
    assert mode_of(config) == "dataflex_sync"
    block = dataflex_block(config)
    assert block["verify_every"] == 7
    assert block["policies"]["dapo_band"]["actuator"]["params"] == {"low": 0.0, "high": 0.9}
    assert policies_of(config) == ["dapo_band"]


@pytest.mark.parametrize("block", ["{mechanism: select, scorer: {name: reward}, actuator: {name: threshold_band}}"])
def test_a_whole_block_on_the_command_line_is_no_preset(block: str) -> None:
    config = load([f"++dataflex={block}", *GRPO, "trainer.v1.trainer_mode=dataflex_sync"]).config
    assert policies_of(config) == ["threshold_band"]


def test_a_preset_next_to_the_short_form_is_refused() -> None:
    config = load(["+dataflex=pods", "+dataflex.mechanism=select", *GRPO]).config
    with pytest.raises(DataflexError, match="give either `policies` or the short form"):
        policies_of(config)


def test_a_misspelt_name() -> None:
    with pytest.raises(DataflexError, match="Could not find 'dataflex/podz'"):
        load(["+dataflex=podz", *GRPO])
