"""What a block asks for and the run that verl's configuration describes cannot do."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from verlconfig import SYNC, verl_config

from dataflex_events.adapters.verl.suitability import absent_fields, run_issues
from dataflex_events.plan import examine

pytestmark = pytest.mark.verl

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


def policy(mechanism: str, scorer: str, actuator: str, **keys: Any) -> dict[str, Any]:
    params = keys.pop("params", {})
    return {
        "mechanism": mechanism,
        "scorer": {"name": scorer},
        "actuator": {"name": actuator, "params": params},
        **keys,
    }


BAND = policy("select", "group_solve_rate", "threshold_band")
GFPO = policy("select", "reward", "gfpo", params={"k": 4})
PODS = policy("select", "reward", "max_variance", apply="weight")
SOFTMAX = policy("reweight", "advantage_magnitude", "softmax")
ENTROPY = policy("select", "token_entropy", "top_entropy_tokens")


def issues(block: dict[str, Any], *overrides: str) -> list[str]:
    plan, found = examine(block)
    assert not found
    return [str(issue) for issue in run_issues(verl_config(SYNC, *overrides), plan)]


@pytest.mark.parametrize("block", [BAND, GFPO, PODS, SOFTMAX, ENTROPY])
def test_grpo_suits_all(block: dict[str, Any]) -> None:
    assert issues(block) == []


GAE = ("algorithm.adv_estimator=gae", "critic.model.path=x", "critic.ppo_micro_batch_size_per_gpu=1")


def test_a_comparison_within_groups_needs_groups() -> None:
    message = "compares the rollouts of a prompt with each other, and the advantage estimator 'gae' has no groups; "
    assert issues({**BAND, "apply": "weight"}, *GAE) == [f"dataflex.scorer.name: {message}use for example 'grpo'"]
    assert issues({**PODS, "advantages": "full"}, *GAE) == [f"dataflex.actuator.name: {message}use for example 'grpo'"]
    one = "this run has one for each prompt (actor_rollout_ref.rollout.n=1)"
    assert issues(BAND, f"{ROLLOUT}.n=1")[0].endswith(one)
    assert issues(SOFTMAX, *GAE) == []


def test_rows_cannot_be_dropped_with_a_critic() -> None:
    block = policy("select", "reward", "threshold_band")
    assert issues(block, *GAE) == [
        "algorithm.adv_estimator: this run trains a critic, so rows cannot be dropped; give the policy `apply: weight`"
    ]
    assert issues({**block, "shadow": True}, *GAE) == []


@pytest.mark.parametrize(("block", "ask", "other"), [(GFPO, "full", "subset"), (PODS, "subset", "full")])
def test_a_baseline_over_other_rows_needs_an_estimator_that_can(block: Any, ask: str, other: str) -> None:
    found = issues({**block, "advantages": ask}, "algorithm.adv_estimator=optimal_token_baseline")
    assert len(found) == 1
    assert found[0].startswith(
        f"dataflex.advantages: is {ask!r}, but advantages of 'optimal_token_baseline' cannot be computed over other "
        "rows than those in the batch; use an estimator among grpo, "
    )
    assert issues({**block, "advantages": other}, "algorithm.adv_estimator=optimal_token_baseline") == []
    assert issues({**block, "advantages": ask}, "algorithm.adv_estimator=rloo") == []


@pytest.mark.parametrize("estimator", ["gae", "remax", "reinforce_plus_plus"])
def test_an_estimator_without_groups_cannot_either(estimator: str) -> None:
    block = policy("select", "reward", "threshold_band", apply="weight", advantages="subset")
    critic = GAE[1:] if estimator == "gae" else ()
    (found,) = issues(block, f"algorithm.adv_estimator={estimator}", *critic)
    assert found.startswith("dataflex.advantages: is 'subset', but advantages of ")


def test_a_late_selection_beside_a_drop_would_need_the_baseline_anew() -> None:
    late = policy("select", "advantage_magnitude", "threshold_band")
    (found,) = issues({"policies": [GFPO, late]}, "algorithm.adv_estimator=optimal_token_baseline")
    assert found.startswith("dataflex.policies[0].advantages: is 'subset', but advantages of ")
    assert issues(GFPO, "algorithm.adv_estimator=optimal_token_baseline") == []


def test_passk_and_padding() -> None:
    passk = ("algorithm.adv_estimator=grpo_passk", "algorithm.norm_adv_by_std_in_grpo=false")
    assert issues(BAND, *passk) == [
        "algorithm.adv_estimator: 'grpo_passk' fails on a group of one, which the padding after a drop can be; give "
        "the policy `apply: weight`"
    ]
    assert issues({**BAND, "apply": "weight"}, *passk) == []


def test_a_full_baseline_of_dropped_rows_needs_rewards_without_kl() -> None:
    reward_kl = "algorithm.use_kl_in_reward=true"
    assert issues({**GFPO, "advantages": "full"}, reward_kl) == [
        "dataflex.advantages: is 'full', but the reward of a dropped row lacks the KL penalty that "
        "algorithm.use_kl_in_reward=true gives to the others; use `apply: weight` or 'subset'"
    ]
    assert issues(GFPO, reward_kl) == []


def test_fields_that_the_run_lacks() -> None:
    bypass = ("algorithm.rollout_correction.bypass_mode=true", f"{ROLLOUT}.calculate_log_probs=true")
    assert issues(ENTROPY, *bypass) == [
        "dataflex.scorer.name: reads 'entropy', which this run does not have: it is not computed with "
        "algorithm.rollout_correction.bypass_mode=true"
    ]
    assert absent_fields(verl_config(f"{ROLLOUT}.calculate_log_probs=false")).keys() == {
        "rollout_log_probs",
        "rollout_is_weights",
        "ref_log_prob",
        "values",
    }
    correction = (f"{ROLLOUT}.calculate_log_probs=true", "algorithm.rollout_correction.rollout_is=token")
    everything = (*correction, f"{ACTOR}.use_kl_loss=true", "algorithm.adv_estimator=gae")
    assert absent_fields(verl_config(*everything)) == {}


def test_fields_that_a_handler_lacks() -> None:
    assert issues({"handlers": ["toys:reads_values"]}) == [
        "dataflex.handlers: 'reads_values' reads 'values', which this run does not have: it needs a critic "
        "(algorithm.adv_estimator=gae)"
    ]


LOSS = f"{ACTOR}.policy_loss.loss_mode"


def test_a_loss_that_does_not_exist_is_refused_whatever_the_block_does() -> None:
    expected = [f"{LOSS}: unknown policy loss 'vanila' (did you mean 'vanilla'?)"]
    assert issues(BAND, f"{LOSS}=vanila") == expected
    assert issues(SOFTMAX, f"{LOSS}=vanila") == expected


def test_a_loss_of_ones_own_is_a_warning_if_anything_is_weighed(caplog: pytest.LogCaptureFixture) -> None:
    own = (f"{LOSS}=mine", "actor_rollout_ref.model.external_lib=my_losses")  # registered in the workers
    with caplog.at_level(logging.WARNING, logger="dataflex"):
        assert issues(BAND, *own) == []
        assert caplog.text == ""
        assert issues(SOFTMAX, *own) == []
    assert "the policy loss 'mine' is not one of verl's: nobody knows whether it applies weights" in caplog.text


@pytest.mark.parametrize("loss", ["bypass_mode", "geo_mean"])
def test_losses_that_cannot_do_with_masked_rows(loss: str) -> None:
    (found,) = issues({**PODS, "apply": "mask"}, f"{LOSS}={loss}")
    assert found.startswith(f"{LOSS}: {loss!r}") and found.endswith("use `apply: weight`")
    assert issues(PODS, f"{LOSS}={loss}") == []
    assert issues(SOFTMAX, f"{LOSS}={loss}") == []


def test_distillation_does_not_weigh() -> None:
    assert issues(SOFTMAX, "distillation.enabled=true") == [
        "distillation.enabled: is true: verl's distillation losses do not apply weights"
    ]
    assert issues(BAND, "distillation.enabled=true") == []
