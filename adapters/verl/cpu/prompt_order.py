"""Rollouts start in the order of the draw.

verl's agent loop notes for each prompt that it is running before it starts its rollouts, all prompts at once; which of
these notes is written first is chance, and so is the order in which the rollout server gets the prompts.
"""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

_STARTS = {"status": "running"}


def order_prompts(queue: ModuleType) -> None:
    """Patch TransferQueue's `async_kv_put`: what says that a prompt is running is written one after the other."""
    put = queue.async_kv_put
    line = asyncio.Lock()  # first come, first served

    async def async_kv_put(*args: Any, **fields: Any) -> Any:
        if fields.get("tag") != _STARTS:
            return await put(*args, **fields)
        async with line:
            return await put(*args, **fields)

    queue.async_kv_put = async_kv_put
