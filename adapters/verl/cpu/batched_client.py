"""Fewer messages between agent loop, load balancer and rollout server.

verl sends three messages for every rollout: ask the load balancer for a server, generate, give the server back. With a
model as small as the lab's they cost more than the generation. All sessions of a prompt start in the same turn of the
event loop, so what is sent in one turn is put into one message here. verl's client keeps its logic (retries, resuming
what was aborted); only how it reaches the others is replaced.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any


class Coalesced:
    """Turns all calls of one turn of the event loop into one call.

    Args:
        call: Takes the list of arguments and returns the results in their order. A result that is an exception is
            raised for its caller only; an exception of the call itself, for all.
    """

    def __init__(self, call: Callable[[list[Any]], Awaitable[Sequence[Any]]]) -> None:
        self._call = call
        self._pending: list[tuple[Any, asyncio.Future[Any]]] = []
        self._running: set[asyncio.Task[None]] = set()

    def remote(self, argument: Any = None, /, **fields: Any) -> asyncio.Future[Any]:
        """One call; its argument is a single value or a dictionary of fields. Named as Ray names it."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if not self._pending:
            loop.call_soon(self._send)
        self._pending.append((fields or argument, future))
        return future

    def _send(self) -> None:
        pending, self._pending = self._pending, []
        task = asyncio.ensure_future(self._answer(pending))
        self._running.add(task)  # the event loop itself does not keep tasks alive
        task.add_done_callback(self._running.discard)

    async def _answer(self, pending: list[tuple[Any, asyncio.Future[Any]]]) -> None:
        try:
            results = await self._call([argument for argument, _ in pending])
        except Exception as error:
            results = [error] * len(pending)
        for (_, future), result in zip(pending, results, strict=True):
            if future.done():  # its caller was cancelled
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)


class _Server:
    """What verl's client takes for a handle of a rollout server."""

    def __init__(self, handle: Any) -> None:
        self.generate = Coalesced(lambda requests: handle.generate_many.remote(requests))


class _Servers:
    """Asks the load balancer for servers and gives them back, several at a time."""

    def __init__(self, router: Any, patient: bool) -> None:
        self._router = router
        self._patient = patient
        self._servers: dict[str, _Server] = {}
        self._acquire = Coalesced(lambda requests: router.acquire_servers.remote(len(requests)))
        self._released: Counter[str] = Counter()

    async def acquire(self, request_id: str, **unused: Any) -> tuple[str, _Server]:
        while True:
            try:
                name, handle = await self._acquire.remote(request_id)
            except RuntimeError as error:
                # as verl's asynchronous client does while all its servers take over weights
                if not (self._patient and "No available servers" in str(error)):
                    raise
                await asyncio.sleep(1)
                continue
            return name, self._servers.setdefault(name, _Server(handle))

    def release(self, server_id: str, request_id: str | None = None) -> None:
        if not self._released:
            asyncio.get_running_loop().call_soon(self._send_released)
        self._released[server_id] += 1

    def _send_released(self) -> None:
        released, self._released = dict(self._released), Counter()
        self._router.release_servers.remote(released)


def batch_requests(client: Any) -> Any:
    """Make verl's `LLMServerClient` send what it sends in one turn as one message; once per client.

    A client whose load balancer is not the lab's is left as it is.
    """
    router = client._load_balancer
    if "_acquire_server" not in vars(client) and hasattr(router, "acquire_servers"):
        servers = _Servers(router, patient=getattr(client, "_only_hybrid", False))
        client._acquire_server, client._release_server = servers.acquire, servers.release
    return client
