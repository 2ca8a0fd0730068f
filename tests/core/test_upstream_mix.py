"""DataFlex-RL's blocks for Mix: they run as they are, and say what differs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import yaml

from dataflex_events.plan import make_plan
from dataflex_events.upstream import differences

COMMON = {"scorer": {"name": "reward_difficulty"}, "warmup_step": 1, "update_step": 1, "window": 50}
SHORT_LONG = ["gsm8k_short", "gsm8k_long"]
THREE = ["math", "logic", "science"]


def campaign(mixer: str, **params: float) -> dict[str, Any]:
    """A block of experiments/gen_jobs_mix.sh."""
    actuator = {"name": mixer, "params": params} if params else {"name": mixer}
    return {"mechanism": "mix", "domains": THREE, "domain_key": "domain", "actuator": actuator, **COMMON}


# The README's, examples/run_mix_grpo.sh's, and those of its experiments.
BLOCKS: dict[str, dict[str, Any]] = {
    "README": yaml.safe_load(
        "{mechanism: mix, domains: [gsm8k_short, gsm8k_long], domain_key: domain, scorer: {name: reward_difficulty}, "
        "actuator: {name: reward_gap, params: {temperature: 1.0, floor: 0.05}}, warmup_step: 5, update_step: 5}"
    ),
    "run_mix_grpo.sh": {
        "mechanism": "mix",
        "domains": SHORT_LONG,
        "actuator": {"name": "reward_gap", "params": {"temperature": 1.0, "floor": 0.05}},
        **COMMON,
    },
    "reward_gap": campaign("reward_gap", temperature=1.0, floor=0.05),
    "dump_ucb": campaign("dump_ucb", temperature=1.0, c=1.0, floor=0.05),
    "tscl": campaign("tscl", temperature=1.0, floor=0.05),
    "static": campaign("static"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_runs_as_it_is(name: str):
    plan = make_plan(BLOCKS[name])
    mix = plan.mix
    assert mix is not None
    mix.begin(BLOCKS[name]["domains"], torch.tensor([1.0] * len(BLOCKS[name]["domains"])))
    proportions = mix.mixer.mix(mix.stats)
    assert proportions.tolist() == pytest.approx([1 / len(proportions)] * len(proportions)), "nothing is known yet"
    assert mix.key.name == "reward"
    assert (mix.warmup_step, mix.update_step) == (BLOCKS[name]["warmup_step"], BLOCKS[name]["update_step"])


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("README", ["mix", "mix", "reward_gap", "reward_gap", "reward_gap", "warmup_step"]),
        ("dump_ucb", ["mix", "mix", "dump_ucb", "dump_ucb", "warmup_step"]),
        ("tscl", ["mix", "mix", "tscl", "tscl", "tscl", "warmup_step"]),
        ("static", ["mix", "mix", "warmup_step"]),
    ],
)
def test_what_differs(name: str, topics: list[str]):
    told = differences(make_plan(BLOCKS[name]), BLOCKS[name])
    assert [sentence.split(":")[0] for sentence in told] == topics


def test_defaults_that_differ_are_named_where_they_are_not_set():
    block = campaign("dump_ucb")
    told = differences(make_plan(block), block)
    assert "dump_ucb: temperature is 0.1, theirs 1.0" in told
    assert "dump_ucb: floor is 0, theirs 0.05" in told


def test_a_mixer_that_it_does_not_have():
    block = campaign("sec")
    del block["window"]
    assert differences(make_plan(block), block) == []
