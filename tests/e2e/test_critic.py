"""A run with a critic: weights leave the value loss alone, masks take rows out of it, in the worker of the critic.

GAE has no groups; rows are chosen by their advantages.
"""

from __future__ import annotations

from typing import Any

import pytest
from labrun import MODULES, SMALL, Run, run_verl
from ppobyhand import value_loss

pytestmark = pytest.mark.e2e

CRITIC = [
    "algorithm.adv_estimator=gae",
    "critic.strategy=fsdp2",
    "critic.model.path=${actor_rollout_ref.model.path}",
    "+critic.model.override_config.attn_implementation=sdpa",
    "critic.model.use_remove_padding=False",
    "critic.model.enable_gradient_checkpointing=False",
    "critic.ppo_max_token_len_per_gpu=512",
    "+critic.fsdp.mixed_precision={param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}",
]
HALF = {
    "mechanism": "select",
    "scorer": {"name": "advantage_magnitude"},
    "actuator": {"name": "topk_fraction", "params": {"fraction": 0.5}},
}
LOSS = "actor_rollout_ref.actor.loss_agg_mode"


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each call of the value loss got: with weights, with masks, and with masks and sequence means."""
    run: Run = run_verl(
        tmp_path_factory.mktemp("critic"),
        *CRITIC,
        *SMALL,
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "trainer.v1.trainer_mode=dataflex_sync",
        "critic.loss_agg_mode=seq-mean-token-mean",
        "+dataflex.handlers=[weighing:all_one]",
        steps=2,
        schedule=[
            {"dataflex": {"policies": [HALF]}},
            {"dataflex": {"policies": [{**HALF, "apply": "mask"}], "verify_every": 1}},
        ],
        environment={MODULES: "lossprobe"},
    ).succeeded()
    found = run.records("value")
    rows = [sum(len(call["keys"]) for call in found[:count]) for count in range(len(found) + 1)]
    half = rows.index(rows[-1] // 2)
    return {"weight": found[:half], "mask": found[half:]}


def masked(call: dict[str, Any]) -> int:
    """Rows without a token that counts."""
    return sum(not row.any() for row in call["response_mask"])


def test_weights_leave_the_value_loss_alone(calls: dict[str, list[dict[str, Any]]]) -> None:
    assert sum(map(masked, calls["weight"])) == 0
    assert {call["global_batch_size"] for call in calls["weight"]} == {32}


def test_masks_take_rows_out_of_the_value_loss(calls: dict[str, list[dict[str, Any]]]) -> None:
    assert sum(map(masked, calls["mask"])) == 32
    assert {call["global_batch_size"] for call in calls["mask"]} == {16}, "of 32 rows of a mini-batch half are left"


@pytest.mark.parametrize("way", ["weight", "mask"])
def test_the_value_loss_is_that_of_the_rows_that_arrived(calls: dict[str, list[dict[str, Any]]], way: str) -> None:
    for call in calls[way]:
        assert call["loss"] == pytest.approx(value_loss(call), rel=1e-4, abs=1e-6)
