"""Every group of rollouts is told of once, before anything of it can be thrown away. On verl's own replay buffer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from typing import Any

import pytest
from groupqueue import GroupQueue
from verl.trainer.ppo.v1 import replay_buffer as verls

from dataflex_events.adapters.verl.groups import GroupWatch


class Watched:
    """A buffer of verl's under watch, and what was told. It answers that the groups in `drop` shall go."""

    def __init__(self, mode: str = "sync", drop: Set[str] = frozenset(), evict: Any = None, **options: Any) -> None:
        kind = verls.ReplayBuffer if mode == "sync" else verls.ReplayBufferAsync
        self.buffer = kind(mode, {}, options.pop("threshold", 8), "drop", {}, poll_interval=0.0, **options)
        self.told: list[tuple[dict[str, str], list[str]]] = []
        self._drop = drop
        GroupWatch(self.buffer, self._tell, evict)

    def _tell(self, fates: Any, rows: Any) -> set[str]:
        self.told.append((dict(fates), sorted(rows)))
        return set(fates) & self._drop

    @property
    def fates(self) -> dict[str, str]:
        return {uid: fate for fates, _ in self.told for uid, fate in fates.items()}


@pytest.fixture
def queue() -> Iterator[GroupQueue]:
    queue = GroupQueue()
    with queue.connected():
        yield queue


def test_finished_and_failed_groups_are_told_of_with_their_trajectories(
    queue: GroupQueue, monkeypatch: pytest.MonkeyPatch
):
    watched = Watched()
    queue.group("a", "finished")
    queue.group("b", "failure", rollouts=1)
    queue.group("c", "failure", rollouts=0)
    queue.group("d", "running", rollouts=1)
    watched.buffer.sample(1, "train", 3)
    assert watched.told == [({"a": "finished", "b": "failed", "c": "failed"}, ["a_0_0", "a_1_0", "b_0_0"])]


def test_each_is_told_of_once(queue: GroupQueue, monkeypatch: pytest.MonkeyPatch):
    watched = Watched()
    queue.group("a", "finished")
    for uid in ("b", "c"):
        queue.group(uid, "running", rollouts=0)
    waits = iter(["b", "c"])
    monkeypatch.setattr(watched.buffer, "_wait_for_next_poll", lambda *_: queue.group(next(waits), "finished") or 0.0)
    watched.buffer.sample(1, "train", 3)
    queue.group("d", "finished", step=2)
    watched.buffer.sample(2, "train", 1)
    assert [list(fates) for fates, _ in watched.told] == [["a"], ["b"], ["c"], ["d"]]


def test_validation_is_not_told_of(queue: GroupQueue):
    watched = Watched()
    queue.group("a", "finished", partition="val")
    watched.buffer.sample(1, "val", 1)
    assert watched.told == []


def test_what_verls_filter_evicts_is_told_of_before(queue: GroupQueue, monkeypatch: pytest.MonkeyPatch):
    def refill(count: int) -> None:
        queue.group("c", "finished")

    options = {"filter_groups_metric": "reward", "train_batch_size": 2, "gen_batch_size": 1, "refill_fn": refill}
    watched = Watched(**options)
    equal = {"b"}
    monkeypatch.setattr(watched.buffer, "_dapo_filtered_keys", lambda _: (equal & set(queue.tags["train"]), Counter()))
    queue.group("a", "finished")
    queue.group("b", "finished")
    watched.buffer.sample(1, "train", 2)
    assert watched.fates == {"a": "finished", "b": "filtered", "c": "finished"}
    assert [rows for _, rows in watched.told] == [["a_0_0", "a_1_0", "b_0_0", "b_1_0"], ["c_0_0", "c_1_0"]]


def test_what_is_too_old_is_told_of(queue: GroupQueue):
    watched = Watched(mode="colocate_async", threshold=2, refill_fn=lambda count: None)
    queue.group("old", "finished", step=1)
    queue.group("new", "finished", step=5)
    watched.buffer.sample(5, "train", 1)
    assert watched.fates == {"old": "stale", "new": "finished"}


def test_what_shall_go_is_known_at_every_look_until_it_has_gone(queue: GroupQueue, monkeypatch: pytest.MonkeyPatch):
    looks: list[set[str]] = []

    def evict(reasons: Any, dropped: set[str]) -> Any:
        """The first that shall go leaves at the second look."""
        looks.append(set(dropped))
        return reasons[0], {"a"} if len(looks) == 2 else set(), reasons[2], reasons[3]

    options = {"filter_groups_metric": "reward", "train_batch_size": 3, "gen_batch_size": 1}
    watched = Watched(drop={"a", "b"}, evict=evict, refill_fn=lambda count: queue.group("d", "finished"), **options)
    monkeypatch.setattr(watched.buffer, "_dapo_filtered_keys", lambda _: (set(), Counter()))
    queue.group("a", "finished")
    queue.group("b", "running", rollouts=0)
    queue.group("c", "finished")
    monkeypatch.setattr(watched.buffer, "_wait_for_next_poll", lambda *_: queue.group("b", "finished") or 0.0)
    batch, _ = watched.buffer.sample(1, "train", 3)
    assert looks == [{"a"}, {"a", "b"}, {"b"}]
    assert {key[0] for key in batch.keys} == {"b", "c", "d"}
    assert [list(fates) for fates, _ in watched.told] == [["a", "c"], ["b"], ["d"]]


def test_without_a_say_in_it_verl_evicts_as_it_does(queue: GroupQueue):
    watched = Watched(drop={"a"})
    queue.group("a", "finished")
    assert sorted(watched.buffer.sample(1, "train", 1)[0].keys) == ["a_0_0", "a_1_0"]
