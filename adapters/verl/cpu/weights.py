"""The trainer's side of a weight update: hand the policy's parameters to the rollout server."""

from __future__ import annotations

import os
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.utils import ensure_async_iterator

from dataflex_events.adapters.verl.cpu.replica import server_name


class WeightSender(BaseRollout):
    """Lives in each trainer rank (or in the worker of a standalone replica) and feeds one server.

    Args:
        config: Rollout configuration.
        model_config: Model configuration.
        device_mesh: Not used; servers are not sharded.
        replica_rank: Server to feed; -1 is the one with this process's rank.
    """

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **unused: Any) -> None:
        super().__init__(config, model_config, device_mesh)
        self._rank = int(os.environ["RANK"]) if replica_rank == -1 else replica_rank
        self._handle: Any = None

    # verl asks one process of each replica to talk to the server
    is_leader_rank = True

    @property
    def _server(self) -> Any:
        if self._handle is None:  # the server is started after this object
            self._handle = ray.get_actor(server_name(self._rank))
        return self._handle

    async def resume(self, tags: list[str]) -> None:
        await self._server.wake_up.remote(tags=tags)

    async def release(self) -> None:
        await self._server.sleep.remote()

    async def update_weights(
        self, weights: Any, wire_format: str = "named_tensors", global_steps: int | None = None, **unused: Any
    ) -> None:
        """Send all parameters, copied: verl reuses their memory as soon as its iterator goes on."""
        if wire_format != "named_tensors":
            raise ValueError(f"The CPU rollout server takes named tensors, not {wire_format!r}")
        copies: dict[str, torch.Tensor] = {}
        async for name, value in ensure_async_iterator(weights):
            copies[name] = value.detach().to("cpu", torch.float32, copy=True)
        await self._server.load_weights.remote(copies, global_steps)
