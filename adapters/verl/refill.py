"""Replaces groups that a policy drops: verl's own refill works for them too, and stops at a bound."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

from dataflex_events.adapters.verl.groups import TRAIN, uid_of
from dataflex_events.refill import Account, Refill, RefillError

logger = logging.getLogger("dataflex")

# verl's answer to the question which groups to evict: stale ones, those that its filter drops, failed ones, and how
# many groups its filter drops by reward.
Reasons: TypeAlias = tuple[set[str], set[str], set[str], Counter[float]]

PROGRESS_SECONDS = 30.0
"""How often a run that waits for a full batch says so."""


class Refilling:
    """Bounds what verl's replay buffer generates to fill one batch, and says why it takes so long.

    verl evicts groups that its filter drops, and generates two prompts for each; so it does for ours. Its own filter
    goes on as it is configured.

    Args:
        buffer: verl's replay buffer; some of its attributes are wrapped or set.
        refill: What the policies ask for.
        filters: True if verl's own filter is on.
        most_in_flight: Batches of prompts that may be generated at the same time.
        account: Why groups were dropped in this step.
    """

    def __init__(
        self, buffer: Any, refill: Refill, *, filters: bool, most_in_flight: int, account: Callable[[], Account]
    ) -> None:
        self.refill = refill
        self._account = account
        self._buffer, self._submit, self._sample = buffer, buffer.refill_fn, buffer.sample
        self._begin(0, 0)
        buffer.refill_fn, buffer.sample = self._add, self._sample_from
        buffer.max_inflight_gen_batches = most_in_flight
        if not filters:
            buffer.filter_groups_metric = "reward"  # switches the refill on, and with it verl's rule
            buffer._dapo_filtered_keys = lambda partition_id: (set(), Counter())

    def _begin(self, step: int, batch: int) -> None:
        self._step, self._batch = step, batch
        self._bound = math.ceil(self.refill.max_generated_factor * batch)
        self._generated, self._evicted, self._found = batch, 0, 0
        self._filtered: set[str] = set()  # by verl's filter alone
        self._exhausted = False
        self._told = time.monotonic()

    def _sample_from(self, global_steps: int, partition_id: str, batch_size: int) -> Any:
        if partition_id == TRAIN:
            self._begin(global_steps, batch_size)
        return self._sample(global_steps, partition_id, batch_size)

    def _add(self, count: int) -> None:
        """Generate fresh prompts, as many as verl asks for or fewer."""
        count = min(count, self._bound - self._generated)
        if not self.refill.eager:
            count = min(count, self._batch - (self._generated - self._evicted))
        if count > 0:
            self._generated += count
            self._submit(count)

    def evict(self, reasons: Reasons, dropped: set[str]) -> Reasons:
        """Which groups leave the buffer.

        Args:
            reasons: What verl evicts.
            dropped: What our policies drop.

        Raises:
            RefillError: More may not be generated, and `on_exhausted` is "raise" or there is nothing to train on.
        """
        stale, filtered, failed, counts = reasons
        self._filtered |= filtered - dropped
        leave = stale | failed
        droppable = (filtered | dropped) - leave
        ended = self._buffer.finished_keys[TRAIN] | self._buffer.failure_keys[TRAIN]
        self._found = len(ended - leave - droppable)
        room = self._bound - self._batch - self._evicted
        if len(leave) + len(droppable) > room:
            there = {uid_of(key) for key in self._buffer.partitions[TRAIN]}  # rather these than groups of nothing
            if len(leave) > room or not (there or self._in_flight()):
                raise RefillError(f"{self._state()}. Too many groups failed: there is nothing to train on")
            if self.refill.on_exhausted == "raise":
                raise RefillError(self._message())
            if not self._exhausted:
                logger.warning("%s. The step trains on what there is", self._state())
            self._exhausted = True
            droppable = set(sorted(droppable, key=lambda uid: (uid in there, uid))[: room - len(leave)])
        self._evicted += len(leave) + len(droppable)
        self._tell()
        return stale, droppable, failed, counts

    @property
    def metrics(self) -> dict[str, float]:
        """Scalars of the step: prompts that were generated, groups that were evicted, whether the bound was met."""
        return {
            "dataflex/refill/generated": float(self._generated),
            "dataflex/refill/evicted": float(self._evicted),
            "dataflex/refill/exhausted": float(self._exhausted),
        }

    def _in_flight(self) -> int:
        return len(self._buffer.pending_keys[TRAIN]) + len(self._buffer.running_keys[TRAIN])

    def _tell(self) -> None:
        waits = self._evicted and not self._exhausted and self._found < self._batch
        if waits and time.monotonic() - self._told >= PROGRESS_SECONDS:
            self._told = time.monotonic()
            logger.warning("waiting for a full batch: %s", self._state())

    def _state(self) -> str:
        theirs = f"; algorithm.filter_groups dropped {len(self._filtered)}" if self._filtered else ""
        return (
            f"step {self._step}: {self._generated} prompts were generated, {self._evicted} groups replaced, "
            f"{self._found} of {self._batch} are found ({self._account()}{theirs})"
        )

    def _message(self) -> str:
        factor = self.refill.max_generated_factor
        return (
            f"{self._state()}. max_generated_factor={factor:g} allows no full batch any more. "
            "Select less narrowly, raise it, or say `on_exhausted: accept` in `refill` to train on what there is"
        )
