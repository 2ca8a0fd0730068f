"""A replay buffer whose batches are in the order of the draw, and that looks more often.

verl lists the rows of a batch in the order in which they arrived. With equal rollouts the arithmetic would
still differ: other rows share a micro-batch, sums are taken in another order. Here rows are ordered by draw,
session and output instead.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

POLL_SECONDS = 0.2
"""verl looks every 2 s, longer than all rollouts of a lab step take. Every look takes time from the rollouts."""


def order_replay_buffer(module: ModuleType) -> None:
    """Patch verl's `ReplayBuffer` (and with it `ReplayBufferAsync`, which inherits what is patched here)."""
    buffer = module.ReplayBuffer
    original_init = buffer.__init__
    original_materialize = buffer._materialize_batch

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        self.poll_interval = min(self.poll_interval, POLL_SECONDS)

    def _select_prompt_uids(
        self: Any, partition_id: str, sampleable_keys: set[str], batch_size: int
    ) -> tuple[list[str], dict[str, dict[str, Any]], dict[str, int]]:
        steps = dict(self.prompt_global_steps[partition_id])  # prompts were registered in the order of the draw
        chosen = sorted(
            (uid for uid in steps if uid in sampleable_keys), key=steps.__getitem__
        )  # stable: oldest step first, then the order of the draw
        return chosen[:batch_size], dict(self.partitions[partition_id]), steps

    def _materialize_batch(
        self: Any, partition_id: str, selected: list[str], snapshot: dict[str, dict[str, Any]]
    ) -> Any:
        place = {uid: number for number, uid in enumerate(selected)}

        def order(key: str) -> tuple[int, int, int]:
            uid, session, output = key.rsplit("_", 2)
            return place[uid], int(session), int(output)

        rows = sorted((key for key in snapshot if key.rsplit("_", 2)[0] in place), key=order)
        return original_materialize(self, partition_id, selected, {key: snapshot[key] for key in rows})

    buffer.__init__ = __init__
    buffer._select_prompt_uids = _select_prompt_uids
    buffer._materialize_batch = _materialize_batch
