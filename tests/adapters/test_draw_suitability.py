"""Runs in which a mix policy cannot work, and DataFlex-RL's replay buffer, which it does not need."""

from __future__ import annotations

from typing import Any

import pytest
from verlconfig import verl_config

from dataflex_events import ConfigError
from dataflex_events.adapters.verl.draw_suitability import drop_upstream_buffer
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
        f"{BUFFER}.path=pkg://dataflex_verl.replay_buffer is left out: Mix works with verl's own replay buffer"
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
