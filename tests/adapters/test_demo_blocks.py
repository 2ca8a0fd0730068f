"""What the demo runs with, by mechanism."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import yaml

from dataflex_events.adapters.verl.block import dataflex_block
from dataflex_events.adapters.verl.commands import demo
from dataflex_events.adapters.verl.commands._compose import load
from dataflex_events.adapters.verl.commands._demo_blocks import (
    DEFAULT,
    POLICIES,
    as_overrides,
    data_overrides,
    demo_block,
)
from dataflex_events.adapters.verl.cpu.lab import Lab, LabSettings
from dataflex_events.adapters.verl.cpu.overrides import lab_overrides
from dataflex_events.adapters.verl.preflight import plan_for
from dataflex_events.plan import Plan, examine

pytestmark = pytest.mark.verl

# What is asked for, and what acts.
CHOICES = {
    ("select",): ["threshold_band"],
    ("reweight",): ["softmax"],
    ("mix",): ["dump_ucb"],
    ("gate",): ["learnability"],
    ("reweight", "select"): ["threshold_band", "softmax"],
    ("all",): ["threshold_band", "softmax", "dump_ucb", "learnability"],
    ("mix", "all", "mix"): ["threshold_band", "softmax", "dump_ucb", "learnability"],
    DEFAULT: ["threshold_band", "softmax"],
}
EVERY = pytest.mark.parametrize("chosen", CHOICES, ids="+".join)


@EVERY
def test_a_block_is_without_mistakes(chosen: tuple[str, ...]) -> None:
    plan, issues = examine(yaml.safe_load(demo_block(chosen))["dataflex"])
    assert issues == []
    assert list(plan.names) == CHOICES[chosen]


@pytest.mark.parametrize("chosen", [("mix",), ("gate",), ("all",), DEFAULT], ids="+".join)
def test_what_is_shown_is_what_runs_in_the_lab(chosen: tuple[str, ...], tmp_path: Path) -> None:
    lab = Lab(tmp_path, LabSettings(), {})
    config = load([*lab_overrides(lab), *as_overrides(demo_block(chosen))]).config
    shown = yaml.safe_load(demo_block(chosen))
    assert dataflex_block(config) == shown["dataflex"]
    assert config.trainer.v1.trainer_mode == shown["trainer"]["v1"]["trainer_mode"]
    plan = plan_for(config, dataflex_block(config))
    assert isinstance(plan, Plan) and list(plan.names) == CHOICES[chosen]


@EVERY
def test_only_what_can_show_something_is_asked_for(chosen: tuple[str, ...]) -> None:
    block = yaml.safe_load(demo_block(chosen))["dataflex"]
    changes_the_batch = {"threshold_band", "softmax"} & {*CHOICES[chosen]}
    assert ("tensorboard" in block) == ("softmax" in CHOICES[chosen]), "its histograms are of weights"
    assert ("verify_every" in block) == bool(changes_the_batch)


def test_a_gate_sees_its_prompts_several_times() -> None:
    assert "data.train_max_samples=256" in data_overrides(["gate"])
    assert "data.train_max_samples=256" in data_overrides(["mix", "all"])
    assert data_overrides(DEFAULT) == data_overrides(["mix"]) == []


def test_the_option() -> None:
    parser = argparse.ArgumentParser()
    demo.configure(parser)
    assert parser.parse_args([]).mechanism is None, "the default"
    assert parser.parse_args(["--mechanism", "mix", "data.seed=1"]).mechanism == ["mix"]
    assert parser.parse_args(["--mechanism", "mix", "--mechanism", "select"]).mechanism == ["mix", "select"]
    for name in (*POLICIES, "all"):
        assert parser.parse_args(["--mechanism", name]).mechanism == [name]
    with pytest.raises(SystemExit):
        parser.parse_args(["--mechanism", "curriculum"])
