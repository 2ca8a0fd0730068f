"""Steps in which estimators, handlers and padding meet in ways that the usual ones do not, on stand-ins for workers."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from fakequeue import FakeQueue
from madeup import MadeUpRun, make_step
from omegaconf import OmegaConf, open_dict
from verlconfig import SYNC, verl_config

from dataflex_events import AdvantageComputed, RolloutDone, on
from dataflex_events.adapters.verl.apply import quiet_padding
from dataflex_events.adapters.verl.block import dataflex_block
from dataflex_events.adapters.verl.preflight import plan_for
from dataflex_events.errors import DataflexError

pytestmark = pytest.mark.verl

SMALL = (SYNC, "data.train_batch_size=6", "actor_rollout_ref.actor.ppo_mini_batch_size=3")
DYNAMIC = "actor_rollout_ref.actor.use_dynamic_bsz=true"
LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"


def select(scorer: str, actuator: str, params: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    named = {"name": actuator, "params": params or {}}
    return {"mechanism": "select", "scorer": {"name": scorer}, "actuator": named, **keys}


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    return FakeQueue(monkeypatch)


def run(queue: FakeQueue, block: dict[str, Any], *overrides: str, reward: float | None = None) -> MadeUpRun:
    """One step. `reward` is what the first rollout gets."""
    config = verl_config(*SMALL, DYNAMIC, *overrides)
    with open_dict(config):
        config.dataflex = OmegaConf.create({"verify_every": 1, **block})
    plan_for(config, dataflex_block(config))
    step = list(make_step(random.Random(0), 8))
    if reward is not None:
        step[0] = type(step[0])(**{**vars(step[0]), "reward": reward})
    trainer = MadeUpRun(config, queue, [step])
    trainer.fit(None)
    return trainer


@on(AdvantageComputed)
def ones(event: AdvantageComputed) -> None:
    event.context.weigh(torch.ones(len(event.batch)))


@on(AdvantageComputed)
def mask_first(event: AdvantageComputed) -> None:
    event.context.keep(torch.arange(len(event.batch)) > 0, apply="mask")


@on(RolloutDone)
def one_of_the_first_group(event: RolloutDone) -> None:
    event.context.keep((event.batch.uid > 0) | (torch.arange(len(event.batch)) == 0))


HERE = "test_odd_steps"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers of this file, by import string."""
    import sys

    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])


def padding_of(queue: FakeQueue, estimate: float) -> FakeQueue:
    for key, value in (("a_0_0", 1.0), ("pad0_0_0", estimate), ("pad0_1_0", estimate)):
        column = torch.tensor([value, value])
        queue.put(key, uid=key[:4], responses=torch.arange(2), advantages=column, returns=column)
    return queue


def test_padding_rows_carry_no_nan(queue: FakeQueue) -> None:
    """As `opo` makes it: a group in which no token counts."""
    meta = padding_of(queue, float("nan")).meta(padding=["pad0_0_0", "pad0_1_0"], fields=["advantages", "returns"])
    quiet_padding(meta)
    assert {key: row["advantages"].tolist() for key, row in queue.rows.items()} == {
        "a_0_0": [1, 1],
        "pad0_0_0": [0, 0],
        "pad0_1_0": [0, 0],
    }


def test_a_drop_under_opo_is_verified_and_finite(queue: FakeQueue) -> None:
    block = {"policies": [select("reward", "threshold_band", {"low": 0.5, "high": 9.0}, advantages="full")]}
    trainer = run(queue, block, "algorithm.adv_estimator=opo", f"{LOSS}=geo_mean")
    assert trainer._now.metrics["dataflex/verified"] == 1
    (received,) = trainer.actor_rollout_wg.received
    assert all(row["advantages"].isfinite().all() for row in received.values())


def test_a_nan_reward_with_weights_of_a_mere_handler(queue: FakeQueue) -> None:
    trainer = run(queue, {"handlers": [f"{HERE}:ones"]}, f"{LOSS}=geo_mean", reward=float("nan"))
    (received,) = trainer.actor_rollout_wg.received
    assert all(row["advantages"].isfinite().all() for row in received.values())
    assert trainer._now.metrics["dataflex/nonfinite/advantages"] == 8


@pytest.mark.parametrize("loss", ["geo_mean", "bypass_mode"])
def test_a_handler_that_masks_where_a_policy_may_not_is_stopped(queue: FakeQueue, loss: str) -> None:
    with pytest.raises(
        DataflexError, match=f"a handler masks, but the policy loss '{loss}' cannot do with masked rows"
    ):
        run(queue, {"handlers": [f"{HERE}:mask_first"]}, f"{LOSS}={loss}")
    assert run(queue, {"handlers": [f"{HERE}:mask_first"]})._now.metrics["dataflex/verified"] == 1


def test_a_row_left_alone_by_a_handler_keeps_the_baseline_of_its_group(queue: FakeQueue) -> None:
    policies = [select("reward", "gfpo", {"k": 7, "advantages": "full"}, apply="weight")]
    trainer = run(queue, {"policies": policies, "handlers": [f"{HERE}:one_of_the_first_group"]})
    (received,) = trainer.actor_rollout_wg.received
    # The first prompt is always solved: against all of its rollouts the one that is left has no advantage.
    assert received["prompt0_0_0"]["advantages"].abs().max() < 1e-4


def test_rows_of_weight_zero_are_dealt_whoever_gave_it(queue: FakeQueue) -> None:
    band = {"name": "difficulty_band", "params": {"focus_weight": 0.0, "low_q": 0.0, "high_q": 0.3}}
    block = {"policies": [{"mechanism": "reweight", "scorer": {"name": "reward"}, "actuator": band}]}
    trainer = run(queue, block)
    (received,) = trainer.actor_rollout_wg.received
    weights = [float(row["rollout_is_weights"].max()) for row in received.values()]
    assert 0 < sum(weight == 0 for weight in weights) < len(weights)
    assert trainer._now.shape is not None
    assert trainer._now.shape.rows == sum(weight > 0 for weight in weights)
