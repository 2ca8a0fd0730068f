"""Runs in which a mix, a gate or a refill cannot work, and DataFlex-RL's replay buffer, which none of them needs."""

from __future__ import annotations

from typing import Any

import pytest
from verlconfig import verl_config

from dataflex_events import ConfigError
from dataflex_events.adapters.verl.draw_suitability import drop_upstream_buffer, fetch_singly
from dataflex_events.adapters.verl.preflight import plan_for

MIX: dict[str, Any] = {"mechanism": "mix", "actuator": {"name": "sec"}}
MODE = "trainer.v1.trainer_mode=dataflex_sync"
BUFFER = "trainer.v1.sampler.custom_sampler"


def refusal(*overrides: str, block: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        plan_for(verl_config(MODE, *overrides), block or MIX)
    return str(refused.value)


def test_it_fits_a_run_with_groups():
    assert plan_for(verl_config(MODE, "actor_rollout_ref.rollout.n=4"), MIX).draws


def test_a_score_that_compares_rollouts_needs_several():
    assert "dataflex.scorer.name: compares the rollouts of a prompt" in refusal("actor_rollout_ref.rollout.n=1")
    reward = {**MIX, "scorer": {"name": "reward"}}
    assert plan_for(verl_config(MODE, "actor_rollout_ref.rollout.n=1"), reward).draws


def test_a_replay_buffer_of_the_users_own_is_refused_with_its_path():
    overrides = [f"{BUFFER}.path=pkg://mine.buffer", f"{BUFFER}.name=Mine", "actor_rollout_ref.rollout.n=4"]
    assert f"{BUFFER}.path: is pkg://mine.buffer: nothing can be learnt from finished groups" in refusal(*overrides)


def test_dataflex_rls_buffer_is_left_out_with_one_warning(caplog: pytest.LogCaptureFixture):
    theirs = [f"{BUFFER}.path=pkg://dataflex_verl.replay_buffer", f"{BUFFER}.name=DataFlexMixReplayBuffer"]
    config = verl_config("trainer.v1.trainer_mode=dataflex_mix_sync", "actor_rollout_ref.rollout.n=4", *theirs)
    assert plan_for(config, MIX).draws
    drop_upstream_buffer(config)
    drop_upstream_buffer(config)
    assert config.trainer.v1.sampler.custom_sampler.path is None
    assert config.trainer.v1.sampler.custom_sampler.name is None
    assert [record.getMessage() for record in caplog.records] == [
        f"{BUFFER}.path=pkg://dataflex_verl.replay_buffer is left out: verl's own replay buffer does"
    ]


def test_a_reward_model_that_answers_too_late():
    late = ["reward.reward_model.enable=True", "reward.reward_model.enable_resource_pool=False"]
    message = refusal("actor_rollout_ref.rollout.n=4", *late)
    assert "dataflex.scorer.name: needs the reward of each group when it is finished" in message


def test_rollouts_that_come_back_for_other_prompts():
    message = refusal("actor_rollout_ref.rollout.n=4", "skip.rollout_tq.enable=True")
    assert "skip.rollout_tq.enable: is true: rollouts of earlier runs come back for other prompts" in message


def test_data_that_differ_at_every_start(caplog: pytest.LogCaptureFixture):
    plan_for(verl_config(MODE, "data.train_max_samples=100", "data.seed=null"), MIX)
    assert "data.train_max_samples without data.seed: every start has other data" in caplog.text


def test_a_score_that_comes_too_late_is_one_mistake_among_others():
    late = {**MIX, "scorer": {"name": "token_entropy"}}
    other = {"mechanism": "select", "scorer": {"name": "rewrad"}, "actuator": {"name": "threshold_band"}}
    message = refusal(block={"policies": [late, other]})
    assert "dataflex.policies[0].scorer.name: scores tokens" in message
    assert "dataflex.policies[1].scorer.name: unknown scorer 'rewrad'" in message


# ------------------------------------------------------------------ gates


def gate(name: str, **options: Any) -> dict[str, Any]:
    params = {"column": "difficulty"} if name == "adarft" else {}
    return {"mechanism": "gate", "actuator": {"name": name, "params": params}, **options}


ONE_ROLLOUT = "actor_rollout_ref.rollout.n=1"
CRITIC = ["algorithm.adv_estimator=gae", "critic.model.path=model", "critic.ppo_micro_batch_size_per_gpu=1"]
LATE = ["reward.reward_model.enable=True", "reward.reward_model.enable_resource_pool=False"]


@pytest.mark.parametrize("name", ["learnability", "greso", "mopps", "difficulty_pools"])
def test_a_gate_that_goes_by_groups_needs_them(name: str):
    assert plan_for(verl_config(MODE), gate(name)).draws
    why = "dataflex.actuator.name: compares the rollouts of a prompt with each other, and"
    assert f"{why} the advantage estimator 'gae' has no groups" in refusal(*CRITIC, block=gate(name))
    assert f"{why} this run has one for each prompt" in refusal(ONE_ROLLOUT, block=gate(name))


def test_one_that_goes_by_a_column_does_not():
    for overrides in (CRITIC, [ONE_ROLLOUT]):
        assert plan_for(verl_config(MODE, *overrides), gate("adarft")).draws


def test_an_outcome_is_known_only_when_the_reward_function_has_run():
    """Nobody can tell at the start whether it returns one of that name."""
    plan = plan_for(verl_config(MODE), gate("greso", signal="acc"))
    assert plan.gate is not None
    assert plan.gate.reads == "outcome/acc"


def band(refill: Any, signal: str = "reward", **options: Any) -> dict[str, Any]:
    scorer = {"name": "group_solve_rate", "params": {"signal": signal}}
    return {
        "mechanism": "select",
        "scorer": scorer,
        "actuator": {"name": "threshold_band"},
        "refill": refill,
        **options,
    }


@pytest.mark.parametrize(
    ("block", "path"),
    [
        (gate("greso"), "dataflex"),
        (gate("greso", signal="acc"), "dataflex"),
        (gate("adarft", shadow=True), "dataflex"),
        ({"policies": [gate("mopps")]}, "dataflex.policies[0]"),
        (band(True), "dataflex.refill"),
        (band(True, signal="acc"), "dataflex.refill"),
        ({"policies": [band(None), band(True)]}, "dataflex.policies[1].refill"),
        ({"policies": [gate("mopps"), band({"eager": False})]}, "dataflex.policies[1].refill"),
    ],
)
def test_gates_and_refills_need_the_reward_when_a_group_is_finished(block: dict[str, Any], path: str):
    message = refusal(*LATE, block=block)
    assert f"- {path}: needs the reward of each group when it is finished, and a reward model that" in message
    elsewhere = [LATE[0], "reward.reward_model.enable_resource_pool=True"]
    assert plan_for(verl_config(MODE, *elsewhere), block)


@pytest.mark.parametrize("block", [gate("greso"), gate("greso", shadow=True), band(True)])
def test_gates_and_refills_need_verls_own_buffer_and_fresh_rollouts(block: dict[str, Any]):
    theirs = [f"{BUFFER}.path=pkg://mine.buffer", f"{BUFFER}.name=Mine"]
    message = refusal(*theirs, "skip.rollout_tq.enable=True", block=block)
    assert f"{BUFFER}.path: is pkg://mine.buffer: nothing can be learnt from finished groups" in message
    assert "skip.rollout_tq.enable: is true: rollouts of earlier runs come back for other prompts" in message


@pytest.mark.parametrize("block", [band(None), band(False), {"shadow": True, "policies": [band(True)]}])
def test_a_selection_that_replaces_nothing_needs_neither(block: dict[str, Any]):
    theirs = [f"{BUFFER}.path=pkg://mine.buffer", f"{BUFFER}.name=Mine"]
    plan = plan_for(verl_config(MODE, *LATE, *theirs, "skip.rollout_tq.enable=True"), block)
    assert plan.refill is None


@pytest.mark.parametrize("given", ["null", "1"])
def test_prompts_are_fetched_one_by_one(given: str, caplog: pytest.LogCaptureFixture):
    config = verl_config(MODE, f"data.gen_batch_size={given}")
    fetch_singly(config)
    assert config.data.gen_batch_size == 1
    assert not caplog.records


def test_another_wish_is_overruled_with_a_warning(caplog: pytest.LogCaptureFixture):
    config = verl_config(MODE, "data.gen_batch_size=8")
    fetch_singly(config)
    assert config.data.gen_batch_size == 1
    (record,) = caplog.records
    assert record.getMessage() == "data.gen_batch_size=8 is set to 1: a refill asks for any number of prompts"
