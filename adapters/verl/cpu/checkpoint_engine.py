"""Checkpoint engine of the lab: takes weights to rollout servers that are separate from the trainer.

Needed only where rollouts have processes of their own (`trainer_mode=separate_async`). verl's engines use NCCL and the
like; this one leaves the weights in a Ray actor. `lab_overrides` selects it.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable
from typing import Any

import torch
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

from dataflex_events.adapters.verl.cpu.install import CHECKPOINT_ENGINE
from dataflex_events.adapters.verl.cpu.weight_mailbox import find_mailbox


@CheckpointEngineRegistry.register(CHECKPOINT_ENGINE)
class MailboxCheckpointEngine(CheckpointEngine):
    """One end of the transfer, in a trainer rank or in a rollout worker.

    Args:
        bucket_size: Not used; weights travel at once.
        is_master: Whether this trainer rank is the one that sends.
    """

    def __init__(self, bucket_size: int, is_master: bool = False, **unused: Any) -> None:
        self._sends = is_master
        self._token = ""

    def prepare(self) -> dict[str, Any]:
        return {}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: Any
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """Give both sides the same token, so that a receiver never takes the weights of an earlier update."""
        token = uuid.uuid4().hex
        return {"token": [token] * actor_wg_world_size}, {"token": [token] * rollout_world_size}

    def init_process_group(self, token: str) -> None:
        self._token = token

    def finalize(self) -> None:
        """Nothing to take down."""

    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        # every rank must run through the iterator: it gathers the shards of all
        copies = {name: value.detach().to("cpu", torch.float32, copy=True) for name, value in weights}
        if self._sends:
            await find_mailbox().put.remote(self._token, copies)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        for name, value in (await find_mailbox().get.remote(self._token)).items():
            yield name, value
