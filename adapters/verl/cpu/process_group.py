"""A torch process group on gloo whose meeting point listens on the loopback only."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any


def initialize_process_group(timeout_second: int | None = None, backend: str | None = None) -> None:
    """Stand-in for verl's `initialize_global_process_group_ray`.

    verl asks torch for `cpu:gloo,<device>:<backend>`, which torch refuses when the device is the CPU, and
    torch's meeting point would listen on every interface.

    Args:
        timeout_second: Limit for each collective operation; torch's default if left out.
        backend: As torch takes it.
    """
    import torch.distributed as dist

    if dist.is_initialized():
        return
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    timeout = timedelta(seconds=timeout_second) if timeout_second is not None else None
    dist.init_process_group(
        backend=backend or "cpu:gloo", store=_store(rank, world_size), rank=rank, world_size=world_size, timeout=timeout
    )


def _store(rank: int, world_size: int) -> Any:
    from torch.distributed import TCPStore

    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", 0))
    if rank != 0:
        return TCPStore(host, port, world_size=world_size, is_master=False)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen()
    return TCPStore(
        host,
        listener.getsockname()[1],
        world_size=world_size,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )
