from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dataflex_events.adapters.verl.cpu.batched_client import Coalesced, batch_requests
from dataflex_events.adapters.verl.cpu.router import Router


class Remote:
    """A method of a Ray handle: notes its messages, runs the method at once."""

    def __init__(self, method: Any, messages: list[str]) -> None:
        self._method, self._messages = method, messages

    def remote(self, *args: Any) -> Any:
        self._messages.append(self._method.__name__)
        future = asyncio.get_running_loop().create_future()
        try:
            future.set_result(self._method(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class FakeServer:
    def __init__(self, name: str) -> None:
        self.name = name

    def generate_many(self, requests: list[dict[str, Any]]) -> list[Any]:
        return [ValueError(r["prompt"]) if r["prompt"] < 0 else (self.name, r["prompt"]) for r in requests]


class Client:
    """The part of verl's client that matters."""

    def __init__(self, router: Router, messages: list[str], **attributes: Any) -> None:
        self._load_balancer = SimpleNamespace(
            acquire_servers=Remote(router.acquire_servers, messages),
            release_servers=Remote(router.release_servers, messages),
        )
        vars(self).update(attributes)

    def _acquire_server(self) -> None:
        raise AssertionError("replaced")

    _release_server = _acquire_server

    async def generate(self, prompt: int) -> Any:
        name, server = await self._acquire_server(f"r{prompt}", prompt=prompt)  # type: ignore[call-arg, func-returns-value]
        try:
            return await server.generate.remote(prompt=prompt)
        finally:
            self._release_server(name, request_id="r")  # type: ignore[call-arg]


def make(servers: int, **attributes: Any) -> tuple[Client, Router, list[str]]:
    messages: list[str] = []
    handles = {f"s{n}": FakeServer(f"s{n}") for n in range(servers)}
    router = Router({n: SimpleNamespace(generate_many=Remote(h.generate_many, messages)) for n, h in handles.items()})
    client = batch_requests(Client(router, messages, **attributes))
    assert batch_requests(client) is client, "once"
    return client, router, messages


def test_a_group_needs_one_message_of_each_kind() -> None:
    async def scenario() -> None:
        client, router, messages = make(servers=1)
        answers = await asyncio.gather(*(client.generate(prompt) for prompt in range(8)))
        await asyncio.sleep(0)
        assert answers == [("s0", prompt) for prompt in range(8)]
        assert messages == ["acquire_servers", "generate_many", "release_servers"]
        assert router.get_total_inflight() == 0

    asyncio.run(scenario())


def test_the_load_is_still_balanced() -> None:
    async def scenario() -> None:
        client, _, messages = make(servers=2)
        answers = await asyncio.gather(*(client.generate(prompt) for prompt in range(4)))
        assert [name for name, _ in answers] == ["s0", "s1", "s0", "s1"]
        assert messages.count("generate_many") == 2

    asyncio.run(scenario())


def test_an_error_reaches_its_own_caller_only() -> None:
    async def scenario() -> None:
        client, router, _ = make(servers=1)
        answers = await asyncio.gather(*(client.generate(prompt) for prompt in (1, -2, 3)), return_exceptions=True)
        await asyncio.sleep(0)
        assert [str(answer) for answer in answers] == ["('s0', 1)", "-2", "('s0', 3)"]
        assert router.get_total_inflight() == 0, "also after an error"

    asyncio.run(scenario())


def test_without_servers_a_client_waits_only_if_verls_would(monkeypatch: pytest.MonkeyPatch) -> None:
    async def impatient() -> None:
        client, _, _ = make(servers=0)
        await client.generate(1)

    with pytest.raises(RuntimeError, match="No available servers"):
        asyncio.run(impatient())

    async def patient() -> Any:
        client, router, messages = make(servers=0, _only_hybrid=True)
        task = asyncio.ensure_future(client.generate(1))
        await asyncio.sleep(0.1)
        assert not task.done()
        server = FakeServer("late")
        router.add_servers({"late": SimpleNamespace(generate_many=Remote(server.generate_many, messages))})
        return await task

    assert asyncio.run(patient()) == ("late", 1)


def test_a_client_with_another_load_balancer_is_left_alone() -> None:
    client = SimpleNamespace(_load_balancer=SimpleNamespace(acquire_server=None))
    assert vars(batch_requests(client)) == {"_load_balancer": client._load_balancer}


def test_a_failed_call_fails_for_all_its_callers_and_not_for_later_ones() -> None:
    async def scenario() -> list[Any]:
        calls: list[list[int]] = []

        async def call(arguments: list[int]) -> list[int]:
            calls.append(arguments)
            if len(calls) == 1:
                raise OSError("lost")
            return [2 * argument for argument in arguments]

        double = Coalesced(call)
        lost = await asyncio.gather(double.remote(1), double.remote(2), return_exceptions=True)
        return [*map(str, lost), *await asyncio.gather(double.remote(3), double.remote(4)), calls]

    assert asyncio.run(scenario()) == ["lost", "lost", 6, 8, [[1, 2], [3, 4]]]


def test_a_cancelled_caller_does_not_disturb_the_others() -> None:
    async def scenario() -> Any:
        async def call(arguments: list[int]) -> list[int]:
            await asyncio.sleep(0.01)
            return arguments

        same = Coalesced(call)
        first, second = same.remote(1), same.remote(2)
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(scenario()) == 2
