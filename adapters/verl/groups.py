"""Watches verl's replay buffer, tells of each group of rollouts when it is finished, and evicts what is not kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from dataflex_events.events import Fate

TRAIN = "train"

# Told the fate of each group by its uid and the tags of their trajectories by key; returns the groups that shall go.
Tell = Callable[[Mapping[str, Fate], Mapping[str, dict[str, Any]]], Set[str]]
# Given what verl evicts and what shall go, returns what is evicted.
Evict = Callable[[Any, set[str]], Any]


class GroupWatch:
    """Tells of every group exactly once, at the first look of the buffer at which it has ended.

    The buffer asks which groups to evict before it evicts or selects any, so nothing is thrown away unseen.

    Args:
        buffer: verl's replay buffer; its method is wrapped.
        tell: Called with the groups that have just ended.
        evict: Decides what is evicted; by default what verl evicts.
    """

    def __init__(self, buffer: Any, tell: Tell, evict: Evict | None = None) -> None:
        self._buffer = buffer
        self._tell = tell
        self._evict = evict
        self._reasons = buffer._terminal_eviction_reasons
        self._told: frozenset[str] = frozenset()
        self._dropped: set[str] = set()
        buffer._terminal_eviction_reasons = self._look

    def _look(self, global_steps: int, partition_id: str) -> Any:
        reasons = self._reasons(global_steps, partition_id)
        if partition_id != TRAIN:
            return reasons
        failed = self._buffer.failure_keys[TRAIN]
        ended = self._buffer.finished_keys[TRAIN] | failed
        fresh = ended - self._told
        if fresh:
            self._dropped |= self._tell(
                {uid: _fate(uid, failed, *reasons[:2]) for uid in sorted(fresh)},
                {key: tag for key, tag in self._buffer.partitions[TRAIN].items() if uid_of(key) in fresh},
            )
        self._told = frozenset(ended)  # what is no longer there has left for good
        self._dropped &= ended
        return reasons if self._evict is None else self._evict(reasons, set(self._dropped))


def uid_of(key: str) -> str:
    """The group of a trajectory."""
    return key.rsplit("_", 2)[0]


def _fate(uid: str, failed: set[str], stale: set[str], filtered: set[str]) -> Fate:
    if uid in failed:
        return "failed"
    if uid in stale:
        return "stale"
    return "filtered" if uid in filtered else "finished"
