"""Every group of rollouts is told of once, before anything of it can be thrown away. On verl's own replay buffer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from verl.trainer.ppo.v1 import replay_buffer as verls

from dataflex_events.adapters.verl.groups import GroupWatch


class Queue:
    """TransferQueue as far as the buffer needs it: tags by partition and key."""

    def __init__(self) -> None:
        self.tags: dict[str, dict[str, dict[str, Any]]] = {"train": {}, "val": {}}

    def group(self, uid: str, status: str, rollouts: int = 2, partition: str = "train", step: int = 1) -> None:
        self.tags[partition][uid] = {"is_prompt": True, "status": status, "global_steps": step}
        for session in range(rollouts):
            self.tags[partition][f"{uid}_{session}_0"] = {"status": "success", "response_len": 3}

    def kv_list(self, *_: Any) -> dict[str, dict[str, dict[str, Any]]]:
        return {partition: dict(tags) for partition, tags in self.tags.items()}

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            del self.tags[partition_id][key]


class Watched:
    """A buffer of verl's under watch, and what was told."""

    def __init__(self, queue: Queue, patch: pytest.MonkeyPatch, mode: str = "sync", **options: Any) -> None:
        for name in ("kv_list", "kv_clear"):
            patch.setattr(verls.tq, name, getattr(queue, name))
        kind = verls.ReplayBuffer if mode == "sync" else verls.ReplayBufferAsync
        self.buffer = kind(mode, {}, options.pop("threshold", 8), "drop", {}, poll_interval=0.0, **options)
        self.told: list[tuple[dict[str, str], list[str]]] = []
        GroupWatch(self.buffer, lambda fates, rows: self.told.append((dict(fates), sorted(rows))))

    @property
    def fates(self) -> dict[str, str]:
        return {uid: fate for fates, _ in self.told for uid, fate in fates.items()}


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_finished_and_failed_groups_are_told_of_with_their_trajectories(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    watched = Watched(queue, monkeypatch)
    queue.group("a", "finished")
    queue.group("b", "failure", rollouts=1)
    queue.group("c", "failure", rollouts=0)
    queue.group("d", "running", rollouts=1)
    watched.buffer.sample(1, "train", 3)
    assert watched.told == [({"a": "finished", "b": "failed", "c": "failed"}, ["a_0_0", "a_1_0", "b_0_0"])]


def test_each_is_told_of_once(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    watched = Watched(queue, monkeypatch)
    queue.group("a", "finished")
    for uid in ("b", "c"):
        queue.group(uid, "running", rollouts=0)
    waits = iter(["b", "c"])
    monkeypatch.setattr(watched.buffer, "_wait_for_next_poll", lambda *_: queue.group(next(waits), "finished") or 0.0)
    watched.buffer.sample(1, "train", 3)
    queue.group("d", "finished", step=2)
    watched.buffer.sample(2, "train", 1)
    assert [list(fates) for fates, _ in watched.told] == [["a"], ["b"], ["c"], ["d"]]


def test_validation_is_not_told_of(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    watched = Watched(queue, monkeypatch)
    queue.group("a", "finished", partition="val")
    watched.buffer.sample(1, "val", 1)
    assert watched.told == []


def test_what_verls_filter_evicts_is_told_of_before(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    def refill(count: int) -> None:
        queue.group("c", "finished")

    options = {"filter_groups_metric": "reward", "train_batch_size": 2, "gen_batch_size": 1, "refill_fn": refill}
    watched = Watched(queue, monkeypatch, **options)
    equal = {"b"}
    monkeypatch.setattr(watched.buffer, "_dapo_filtered_keys", lambda _: (equal & set(queue.tags["train"]), Counter()))
    queue.group("a", "finished")
    queue.group("b", "finished")
    watched.buffer.sample(1, "train", 2)
    assert watched.fates == {"a": "finished", "b": "filtered", "c": "finished"}
    assert [rows for _, rows in watched.told] == [["a_0_0", "a_1_0", "b_0_0", "b_1_0"], ["c_0_0", "c_1_0"]]


def test_what_is_too_old_is_told_of(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    watched = Watched(queue, monkeypatch, mode="colocate_async", threshold=2, refill_fn=lambda count: None)
    queue.group("old", "finished", step=1)
    queue.group("new", "finished", step=5)
    watched.buffer.sample(5, "train", 1)
    assert watched.fates == {"old": "stale", "new": "finished"}
