"""A Ray actor in which the trainer leaves weights for rollout servers that have processes of their own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import ray

if TYPE_CHECKING:
    import torch

    Weights = dict[str, torch.Tensor]

_NAME = "dataflex_cpu_mailbox"


class Mailbox:
    """Holds the weights of the newest update."""

    def __init__(self) -> None:
        self._token: str | None = None
        self._weights: Weights = {}
        self._arrived = asyncio.Condition()

    async def put(self, token: str, weights: Weights) -> None:
        async with self._arrived:
            self._token, self._weights = token, weights
            self._arrived.notify_all()

    async def get(self, token: str) -> Weights:
        """Wait for the weights of update `token`."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: self._token == token)
            return self._weights


def find_mailbox() -> Any:
    """Handle of the run's only mailbox."""
    # detached: whoever finds an actor by name does not keep it alive. It ends with Ray, that is with the run.
    return ray.remote(Mailbox).options(name=_NAME, get_if_exists=True, lifetime="detached", num_cpus=0).remote()
