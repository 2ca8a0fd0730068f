"""Mistakes in a mix policy, and what its keys mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mixbus import block

from dataflex_events import ConfigError
from dataflex_events.plan import make_plan


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (block("stattic"), "dataflex.actuator.name: unknown mixer 'stattic' (did you mean 'static'?)"),
        (block("sec", window=3), "dataflex.window: the mixer 'sec' has no window"),
        (block("sec", "token_prob"), "dataflex.scorer.name: scores tokens; a mixer needs a score per rollout"),
        (block("sec", apply="drop"), "dataflex.apply: is not for `mechanism: mix`, which decides what is drawn"),
        (block("sec", initial=3), "dataflex.initial: should be 'data', 'uniform' or a mapping from domains to numbers"),
        (block("sec", initial={"a": -1}), "dataflex.initial: should be 'data', 'uniform' or a mapping from domains"),
        (block("sec", initial={"a": 0}), "dataflex.initial: should give some domain more than 0"),
        (block("sec", initial="uniform"), "dataflex.initial: holds during the warm-up, and `warmup_step` is 0"),
        (block("sec", unlisted="keep"), "dataflex.unlisted: is 'keep', and without `domains` all domains are kept"),
        (block("sec", domains=[]), "dataflex.domains: should not be empty, not []"),
        (block("sec", domains=["a", "a"]), "dataflex.domains: should name each domain once; 'a' is there more often"),
        (
            block("sec", "advantage_magnitude", scorer={"name": "advantage_magnitude", "params": {"agg": "max"}}),
            "dataflex.scorer.params.agg: is for tokens",
        ),
        (
            block("sec", domains=["a", "b"], initial={"a": 1, "c": 1}, warmup_step=1),
            "dataflex.initial: unknown domain 'c' (known: a, b); no proportion for 'b'",
        ),
        (
            block("reward_gap", domains=list("abc"), params={"floor": 0.5}),
            "dataflex.actuator.params: floor",
        ),
        (
            block("reward_gap", window=3, params={"window": 4}),
            "dataflex.actuator.params.window: is 4, but 3 in the policy",
        ),
        (
            {**block("sec"), "mechanism": "select", "scorer": {"name": "reward"}, "domains": ["a"]},
            "dataflex.domains: is for `mechanism: mix`",
        ),
    ],
)
def test_mistakes(wrong: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as refused:
        make_plan(wrong)
    assert message in str(refused.value)


def test_a_score_that_comes_too_late_is_refused():
    with pytest.raises(ConfigError, match="can run only after advantages are computed"):
        make_plan(block("sec", "toys:LateScore"))


def test_the_magnitude_of_advantages_means_that_of_groups_here():
    plan = make_plan(block("sec", "advantage_magnitude"))
    assert plan.mix is not None
    assert plan.mix.key.name == "group_advantage"


def test_all_domains_can_be_named_where_unlisted_ones_are_kept():
    shares = {"proportions": {"a": 1, "b": 3}}
    plan = make_plan(block("static", domains=["a"], unlisted="keep", params=shares))
    assert plan.mix is not None
    plan.mix.begin(("a", "b"), torch.tensor([0.5, 0.5]))
    assert plan.mix.mixer.mix(plan.mix.stats).tolist() == [0.25, 0.75]


def test_a_window_of_the_policy_is_that_of_the_mixer():
    plan = make_plan(block("reward_gap", window=7))
    assert plan.mix is not None
    assert plan.mix.mixer.keeps_steps == 7
    assert make_plan(block("static", window=7)).mix is not None, "DataFlex-RL's files have one there too"
