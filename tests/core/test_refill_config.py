"""Blocks with a gate or a refill: what they mean, what is refused, and what is said about them."""

from __future__ import annotations

from typing import Any

import pytest
from gatebus import band_block, gate_block

from dataflex_events import ConfigError, RunFacts, make_plan
from dataflex_events.describe import WIDTH, describe
from dataflex_events.refill import Refill

SCORE = {"scorer": {"name": "reward"}}


def issues(block: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        make_plan(block)
    return [str(issue) for issue in caught.value.issues]


def test_what_a_gate_goes_by():
    gate = make_plan(gate_block()).gate
    assert gate is not None
    assert (gate.name, gate.reads, gate.success_threshold) == ("learnability", "reward", 0.5)
    assert (gate.warmup_step, gate.update_step, gate.shadow) == (0, 1, False)
    plan = make_plan(gate_block(signal="acc", success_threshold=0, name="mine", warmup_step=2, update_step=3))
    assert plan.gate is not None
    assert (plan.gate.name, plan.gate.reads, plan.gate.success_threshold) == ("mine", "outcome/acc", 0.0)
    assert (plan.gate.warmup_step, plan.gate.update_step) == (2, 3)
    assert plan.names == ("mine",)
    assert plan.draws


DECIDES = "is not for `mechanism: gate`, which decides what is drawn, not what becomes of it"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (SCORE, "scorer: is not for `mechanism: gate`, which goes by pass rates; say `signal` for another outcome"),
        ({"apply": "drop"}, f"apply: {DECIDES}"),
        ({"normalize": "row"}, f"normalize: {DECIDES}"),
        ({"advantages": "full"}, f"advantages: {DECIDES}"),
        ({"refill": True}, f"refill: {DECIDES}"),
        ({"refill": {"eager": False}}, f"refill: {DECIDES}"),
        ({"domains": ["a"]}, "domains: is for `mechanism: mix`"),
        ({"domain_key": "x"}, "domain_key: is for `mechanism: mix`"),
        ({"unlisted": "keep"}, "unlisted: is for `mechanism: mix`"),
        ({"initial": "uniform"}, "initial: is for `mechanism: mix`"),
        ({"window": 3}, "window: is for `mechanism: mix`"),
        ({"signal": ""}, "signal: string should have at least 1 character, not ''"),
        ({"success_threshold": "high"}, "success_threshold: should be a valid number, not 'high'"),
        ({"signl": "acc"}, "signl: unknown key (did you mean 'signal'?)"),
        ({"actuator": {"name": "gresso"}}, "actuator.name: unknown gate 'gresso' (did you mean 'greso'?)"),
        (
            {"actuator": {"name": "greso", "params": {"p_int": 0.5}}},
            "actuator.params.p_int: unknown key (did you mean 'p_init'?)",
        ),
        ({"actuator": {"name": "adarft"}}, "actuator.params.column: is missing"),
    ],
)
def test_mistakes_with_a_gate(changes: dict[str, Any], message: str):
    assert issues({**gate_block(), **changes}) == [f"dataflex.{message}"]


@pytest.mark.parametrize(
    "block",
    [
        band_block(),
        {"mechanism": "reweight", **SCORE, "actuator": {"name": "softmax"}},
        {"mechanism": "mix", "actuator": {"name": "static"}},
    ],
)
@pytest.mark.parametrize(("key", "value"), [("signal", "acc"), ("success_threshold", 0.7), ("success_threshold", 0.0)])
def test_what_is_for_gates_only(block: dict[str, Any], key: str, value: Any):
    assert issues({**block, key: value}) == [f"dataflex.{key}: is for `mechanism: gate`"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (True, Refill(eager=True, max_generated_factor=10.0, on_exhausted="raise")),
        ({}, Refill()),
        ({"eager": False}, Refill(eager=False)),
        (
            {"eager": False, "max_generated_factor": 3, "on_exhausted": "accept"},
            Refill(eager=False, max_generated_factor=3.0, on_exhausted="accept"),
        ),
        (False, None),
        (None, None),
    ],
)
def test_how_to_refill(given: Any, meant: Refill | None):
    plan = make_plan(band_block(refill=given))
    assert plan.refill == meant
    assert plan.policies[0].refill == meant
    assert plan.policies[0].refills == (meant is not None)
    assert plan.draws is False


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eagr": True}, ".eagr: unknown key (did you mean 'eager'?)"),
        ({"often": 3}, ".often: unknown key (known: eager, max_generated_factor, on_exhausted)"),
        ({"eager": "no"}, ".eager: should be a valid boolean, not 'no'"),
        ({"max_generated_factor": 1}, ".max_generated_factor: should be greater than 1, not 1"),
        ({"max_generated_factor": float("inf")}, ".max_generated_factor: should be a finite number, not inf"),
        ({"on_exhausted": "stop"}, ".on_exhausted: should be 'raise' or 'accept', not 'stop'"),
        (
            "yes",
            ": should be a mapping with the keys eager, max_generated_factor, on_exhausted, not 'yes'",
        ),
    ],
)
def test_mistakes_with_a_refill(given: Any, message: str):
    assert issues(band_block(refill=given)) == [f"dataflex.refill{message}"]


ADVANTAGES = "needs a score that is known when a group is finished, and this one needs advantages or log-probabilities"


@pytest.mark.parametrize(
    ("scorer", "actuator", "reason"),
    [
        ("group_solve_rate", "topk_fraction", "'topk_fraction' chooses rows of the whole batch"),
        ("group_solve_rate", "max_variance", "'max_variance' chooses rows of a group"),
        ("reward", "threshold_band", "'threshold_band' chooses single rows"),
        ("token_prob", "threshold_band", "'threshold_band' chooses tokens"),
        ("token_entropy", "top_entropy_tokens", "'top_entropy_tokens' chooses tokens"),
    ],
)
def test_only_whole_groups_are_replaced(scorer: str, actuator: str, reason: str):
    block = {"mechanism": "select", "scorer": {"name": scorer}, "actuator": {"name": actuator}, "refill": True}
    assert issues(block) == [f"dataflex.refill: needs a selector that keeps or drops whole groups; {reason}"]


def test_a_score_that_comes_too_late_for_a_refill():
    late = {**band_block(), "scorer": {"name": "gatescores:LateGroupScore"}, "refill": True}
    assert issues(late) == [f"dataflex.refill: {ADVANTAGES}"]
    late = {**band_block(refill=True), "actuator": {"name": "toys:LateSelector"}}
    assert issues(late) == [f"dataflex.refill: {ADVANTAGES}"]


@pytest.mark.parametrize("refill", [True, {"eager": False}])
def test_a_reweighter_drops_nothing(refill: Any):
    block = {"mechanism": "reweight", **SCORE, "actuator": {"name": "softmax"}, "refill": refill}
    assert issues(block) == ["dataflex.refill: is for `mechanism: select`; a reweighter keeps all rows"]


def test_a_run_has_one_way_to_refill():
    frugal = {"eager": False}
    assert issues({"policies": [band_block(refill=True), band_block(0.2, refill=frugal)]}) == [
        "dataflex.policies[1].refill: is another one than that of dataflex.policies[0]; a run has one way to refill"
    ]
    plan = make_plan({"policies": [band_block(refill=frugal), band_block(0.2, refill=frugal), band_block(0.1)]})
    assert plan.refill == Refill(eager=False)
    # One that only shows what it would do replaces nothing.
    plan = make_plan({"policies": [band_block(refill=True, shadow=True), band_block(0.2, refill=frugal)]})
    assert plan.refill == Refill(eager=False)
    assert make_plan({"policies": [band_block(refill=True, shadow=True)]}).refill is None
    assert make_plan(band_block(refill=True, shadow=True)).refill is None


def described(block: dict[str, Any]) -> str:
    text = describe(make_plan(block), RunFacts())
    assert max(map(len, text.splitlines())) <= WIDTH
    return " ".join(text.split())


def test_a_gate_in_words():
    text = described(gate_block("mopps", warmup_step=3, update_step=2, signal="acc", success_threshold=0.25))
    assert "policy 'mopps' (gate)" in text
    assert "outcomes of every group that is generated, by prompt: outcome/acc above 0.25 is a success" in text
    assert "gate mopps(target=0.5, decay=1.0, candidates=8, explore=0.01)" in text
    assert (
        "at buffer_sample, it chooses within each domain which prompts are generated next, 1% of them, each in turn, "
        "whatever it prefers" in text
    )
    assert "when after the first 3 steps, in one step of 2" in text
    assert "shadow" not in text
    assert "reads outcome/acc, row_id at groups_finished" in text


def test_a_gate_that_explores_nothing_and_only_shows_in_words():
    text = described({"policies": [gate_block("adarft", params={"column": "level"}, shadow=True)]})
    assert "which prompts are generated next shadow what it would draw is computed and logged" in text


def test_a_refill_in_words():
    text = described(band_block(refill=True))
    assert (
        "refill at groups_finished, dropped groups are replaced: two fresh prompts for each, what is too much is "
        "discarded; after 10 batches of prompts in one step the run stops" in text
    )
    text = described(band_block(refill={"eager": False, "max_generated_factor": 2.5, "on_exhausted": "accept"}))
    assert (
        "refill at groups_finished, dropped groups are replaced: one fresh prompt for each; after 2.5 batches of "
        "prompts in one step the step trains on what there is" in text
    )
    for shadowed in (band_block(refill=True, shadow=True), {"policies": [band_block(refill=True, shadow=True)]}):
        assert "replaced" not in described(shadowed)
    assert "replaced" not in described(band_block())
