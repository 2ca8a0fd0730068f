"""The trainer's hooks around a drop, on a stand-in for verl's trainer that sets and reads the same things."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakequeue import FakeQueue
from faketrainer import FakeTrainer, OwnTrainer
from omegaconf import OmegaConf
from transfer_queue.metadata import KVBatchMeta

from dataflex_events import EventBus, RolloutDone, RunFacts, StepDriver
from dataflex_events.adapters.verl.numbers import BadNumbers
from dataflex_events.adapters.verl.reduced import Step
from dataflex_events.errors import DataflexError, VerificationError


class Trainer(FakeTrainer):
    """Two mini-batches of eight rows on two ranks.

    Args:
        queue: Where the rows are.
        keep: Rows to keep, or None to listen without proposing anything.
        **actor: Settings of the actor.
    """

    def __init__(self, queue: FakeQueue, keep: list[int] | None, **actor: Any) -> None:
        settings = {"ppo_mini_batch_size": 2, "ppo_epochs": 1, "shuffle": False, "data_loader_seed": 1}
        settings |= {"use_dynamic_bsz": True, "ppo_micro_batch_size_per_gpu": 4, **actor}
        rollout = {"n": 4, "log_prob_use_dynamic_bsz": settings["use_dynamic_bsz"]}
        rollout |= {"log_prob_micro_batch_size_per_gpu": 4}
        roles = {"actor": settings, "rollout": rollout, "ref": rollout}
        OwnTrainer.__init__(self, OmegaConf.create({"data": {"train_batch_size": 4}, "actor_rollout_ref": roles}))
        self.connect(queue)
        self._now, self._last_verified = Step(), {}
        self._plan = SimpleNamespace(settings=SimpleNamespace(verify_every=1), drops=True, baseline=None, applied=())
        self._bad_numbers, self._baseline = BadNumbers(), None
        bus = EventBus()

        def propose(event: RolloutDone) -> None:
            if keep is not None:
                event.context.keep(torch.isin(torch.arange(len(event.batch)), torch.tensor(keep)))

        bus.subscribe(RolloutDone, propose)
        self._driver = StepDriver(bus, RunFacts(group_baseline=False))

    def run(self) -> KVBatchMeta:
        """From the generated rows to the update."""
        batch = self._balance_batch(self.queue.meta(), {})
        return self._update_actor(batch, {})


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    """Four groups of four rows."""
    fake = FakeQueue(monkeypatch)
    for group in "abcd":
        for session in range(4):
            scores = torch.tensor([0.0, 1.0])
            fake.put(f"{group}_{session}_0", uid=group, responses=torch.arange(2), rm_scores=scores)
    return fake


def test_the_step_follows_the_kept_rows(queue: FakeQueue) -> None:
    trainer = Trainer(queue, keep=[0, 1, 2, 5, 6, 9, 15])
    batch = trainer.run()
    assert sum("is_padding" not in tag for tag in batch.tags) == 7
    assert len(batch) == 8  # two ranks, two mini-batches, two rows each
    assert trainer.actor_rollout_wg.sent == [
        {"mini_batch_size": 4, "global_batch_size": 3.5, "dataloader_kwargs": {"shuffle": False}}
    ]
    assert trainer._now.metrics == {
        "dataflex/rows": 7,
        "dataflex/padding_rows": 1,
        "dataflex/optimizer_steps": 2,
        "dataflex/verified": 1,
    }


@pytest.mark.parametrize("keep", [None, list(range(16))], ids=["no proposal", "everything"])
def test_a_step_without_a_drop_is_that_of_verl(queue: FakeQueue, keep: list[int] | None) -> None:
    trainer = Trainer(queue, keep, shuffle=True, use_dynamic_bsz=False)
    batch = trainer._compute_old_log_prob(trainer._balance_batch(queue.meta(), {}), {})
    assert "micro_batch_size_per_gpu" not in batch.extra_info
    trainer._update_actor(batch, {})
    assert batch.keys == list(queue.rows)
    assert trainer.actor_rollout_wg.sent == [
        {"mini_batch_size": 8, "global_batch_size": 8, "dataloader_kwargs": {"shuffle": True}}
    ]
    assert trainer._now.metrics["dataflex/optimizer_steps"] == 2
    assert "dataflex/verified" not in trainer._now.metrics


@pytest.mark.parametrize("keep", [None, [0, 1, 2, 5, 6, 9, 15]], ids=["all", "some"])
def test_every_epoch_counts_as_optimizer_steps(queue: FakeQueue, keep: list[int] | None) -> None:
    trainer = Trainer(queue, keep, ppo_epochs=3)
    trainer.run()
    assert trainer._now.metrics["dataflex/optimizer_steps"] == 6


def test_a_critic_cannot_follow_a_drop(queue: FakeQueue) -> None:
    trainer = Trainer(queue, keep=[0, 1])
    trainer.use_critic = True
    with pytest.raises(DataflexError, match="a handler drops rows, but this run trains a critic"):
        trainer.run()
    assert len(queue.rows) == 16


def test_dropped_rows_are_cleared(queue: FakeQueue) -> None:
    trainer = Trainer(queue, keep=[0, 3])
    trainer._balance_batch(queue.meta(), {})
    assert [key for key in queue.rows if not key.startswith("pad")] == ["a_0_0", "a_3_0"]


def test_padding_is_dealt(queue: FakeQueue) -> None:
    batch = Trainer(queue, keep=[0, 1, 5, 6, 9]).run()
    padding = [bool(tag.get("is_padding")) for tag in batch.tags]
    assert [padding[cell : cell + 2] for cell in range(0, 8, 2)] == [[False, False], *[[False, True]] * 3]


def test_shuffling_happens_before_the_dealing(queue: FakeQueue) -> None:
    keep = list(range(13))
    orders = []
    for step in (1, 1, 2):
        trainer = Trainer(queue, keep, shuffle=True)
        trainer.global_steps = step
        before = dict(queue.rows)
        orders.append([key for key in trainer.run().keys if not key.startswith("pad")])
        queue.rows = before
    assert sorted(orders[0]) == list(queue.rows)[:13]
    assert orders[0] != sorted(orders[0])
    assert orders[0] == orders[1] != orders[2]


def test_micro_batches_divide_at_every_stage(queue: FakeQueue) -> None:
    trainer = Trainer(queue, keep=list(range(12)), use_dynamic_bsz=False)
    batch = trainer._balance_batch(queue.meta(), {})
    for stage in (trainer._compute_old_log_prob, trainer._compute_ref_log_prob):
        batch.extra_info.clear()  # verl's stages hand on a batch without it
        stage(batch, {})
        assert batch.extra_info == {"micro_batch_size_per_gpu": 3}  # six rows on each rank
    trainer._update_actor(batch, {})
    assert trainer.actor_rollout_wg.sent[0]["micro_batch_size_per_gpu"] == 3  # three in each cell


def test_dropped_rows_still_in_the_queue_stop_the_update(queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(queue, keep=[0, 1])
    monkeypatch.setattr("transfer_queue.kv_clear", lambda **_: None)
    with pytest.raises(VerificationError, match="14 dropped rows are still in TransferQueue"):
        trainer.run()
    assert trainer.actor_rollout_wg.sent == []


def test_the_worker_group_is_left_as_it_was(queue: FakeQueue) -> None:
    trainer = Trainer(queue, keep=[0, 1])
    original = trainer.actor_rollout_wg.update_actor
    batch = trainer._balance_batch(queue.meta(), {})
    batch.extra_info["fail"] = True
    with pytest.raises(RuntimeError, match="worker died"):
        trainer._update_actor(batch, {})
    assert trainer.actor_rollout_wg.update_actor == original


@pytest.mark.parametrize(("every", "verified"), [(1, [1, 2, 3, 4]), (2, [1, 3]), (0, [1])])
def test_how_often_is_verified(queue: FakeQueue, every: int, verified: list[int]) -> None:
    trainer = Trainer(queue, keep=list(range(8)))
    trainer._plan.settings.verify_every = every
    seen = []
    for step in range(1, 5):
        trainer.global_steps, trainer._now = step, Step()
        before = dict(queue.rows)
        trainer.run()
        queue.rows = before
        seen += [step] * ("dataflex/verified" in trainer._now.metrics)
    assert seen == verified
