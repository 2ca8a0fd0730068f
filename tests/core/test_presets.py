"""The presets, without Hydra, and the command that shows them."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import yaml

from dataflex_events import cli, presets
from dataflex_events.parameters import parameters
from dataflex_events.plan import make_plan

# Those of one policy that is called as the preset; what acts on batches, and the gates.
ON_BATCHES = [
    "advantage_reweight",
    "dapo_band",
    "dapo_refill",
    "difficulty_filtering",
    "gfpo",
    "per_advantage",
    "pods",
    "top_entropy",
]
GATES = ["learnability", "mopps", "pools"]
ALL = sorted([*ON_BATCHES, *GATES, "greso_refill"])
HAVE_A_GATE = {*GATES, "greso_refill"}


def test_names() -> None:
    assert presets.names() == ALL


@pytest.mark.parametrize("name", ALL)
def test_a_preset_sets_the_trainer_mode_and_policies_of_which_one_has_its_name(name: str) -> None:
    settings = presets.load(name)
    assert settings.keys() == {"trainer", "dataflex"}
    assert settings["trainer"] == {"v1": {"trainer_mode": "dataflex_sync"}}
    assert settings["dataflex"].keys() == {"policies"}
    expected = ("band", "greso") if name == "greso_refill" else (name,)
    assert make_plan(settings["dataflex"]).names == expected


@pytest.mark.parametrize("name", [*GATES, "greso_refill"])
def test_every_parameter_of_a_gate_is_written_out(name: str) -> None:
    block = presets.load(name)["dataflex"]
    (policy,) = [policy for policy in block["policies"].values() if policy["mechanism"] == "gate"]
    made = make_plan(block).gate
    assert made is not None
    assert set(policy["actuator"]["params"]) == set(parameters(type(made.gate)))


@pytest.mark.parametrize("name", ON_BATCHES)
def test_every_common_parameter_is_written_out(name: str) -> None:
    """Hydra changes what is there without a sign; a parameter that is not there needs a `+`."""
    policy = presets.load(name)["dataflex"]["policies"][name]
    (made,) = make_plan(presets.load(name)["dataflex"]).policies
    of_the_policy_or_left_out = {"inclusive", "advantages", "adaptive_k", "warmup_steps", "history"}
    for part, component in (("scorer", made.scorer), ("actuator", made.actuator)):
        written = set(policy[part].get("params", {}))
        assert set(parameters(type(component))) - written <= of_the_policy_or_left_out | {"signal"}


PAIRS = [pair for pair in combinations(ALL, 2) if not HAVE_A_GATE.issuperset(pair)]  # a run has one gate


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_any_two_merge(pair: tuple[str, str]) -> None:
    """No two are called the same, and no two want different baselines."""
    blocks = [presets.load(name)["dataflex"]["policies"] for name in pair]
    merged = make_plan({"policies": {**blocks[0], **blocks[1]}})
    assert sorted(merged.names) == sorted([*blocks[0], *blocks[1]])


@pytest.mark.parametrize("name", ALL)
def test_a_file_is_one_that_hydra_reads_from_a_folder_too(name: str) -> None:
    lines = presets.source(name).splitlines()
    assert lines[0] == "# @package _global_"
    assert yaml.safe_load(presets.source(name)) == presets.load(name)
    assert lines[1] == f"# {presets.summary(name)}"


def test_the_command_shows_all_in_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[: len(ALL)]] == ALL
    assert max(map(len, shown.splitlines())) <= 100
    assert "  Of each prompt the half of its rollouts whose rewards vary most (2504.13818)\n" in shown


def test_the_command_prints_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets", "pods"]) == 0
    assert capsys.readouterr().out == Path(presets.__file__).with_name("pods.yaml").read_text()


def test_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["presets", "dapo-band"]) == 1
    assert capsys.readouterr().err == "dataflex-events: unknown preset 'dapo-band' (did you mean 'dapo_band'?)\n"
