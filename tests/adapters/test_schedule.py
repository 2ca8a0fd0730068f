"""The kit that changes settings between the steps of a run, where no run is needed. That they arrive: tests/e2e."""

from __future__ import annotations

from pathlib import Path

import pytest
import schedule
from verl.workers.config import ActorConfig

pytestmark = pytest.mark.verl

ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    "path",
    [
        f"{ACTOR}.fsdp_config.param_offload",
        "actor_rollout_ref.rollout.n",
        f"{ACTOR}.optim.weight_decay",
        f"{ACTOR}.loss_agg_mod",
        "data.train_batch_size",
        "dataflex.policies",
    ],
)
def test_what_a_step_cannot_change_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=f"step 2: {path} is fixed when the run starts"):
        schedule.check([{}, {path: 1}])


def test_a_schedule_is_found_by_the_run(tmp_path: Path) -> None:
    steps = [{}, {"dataflex": {"policies": []}, f"{ACTOR}.policy_loss.loss_mode": "gspo"}]
    found = schedule.environment(tmp_path / "schedule.json", steps)
    assert schedule.read(found) == steps


def test_a_copy_of_the_loss_configuration_has_the_settings() -> None:
    config = ActorConfig(strategy="fsdp2", rollout_n=8, use_dynamic_bsz=True)
    settings = {"loss_agg_mode": "token-sum", "policy_loss.loss_mode": "gspo", "policy_loss.clip_cov_lb": 0.5}
    changed = schedule.with_settings(config, settings)
    assert (changed.loss_agg_mode, changed.policy_loss.loss_mode) == ("token-sum", "gspo")
    assert changed.policy_loss.get("clip_cov_lb") == 0.5
    assert (config.loss_agg_mode, config.policy_loss.loss_mode) == ("token-mean", "vanilla")
    assert changed.global_batch_info is config.global_batch_info


@pytest.mark.parametrize("name", ["loss_mode", "policy_loss.los_mode"])
def test_a_setting_that_the_loss_does_not_have_is_an_error(name: str) -> None:
    config = ActorConfig(strategy="fsdp2", rollout_n=8, use_dynamic_bsz=True)
    with pytest.raises(AttributeError):
        schedule.with_settings(config, {name: 1})
