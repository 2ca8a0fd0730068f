"""Repeatable identities and batch order, without Ray."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from dataflex_events.adapters.verl.cpu.replay_order import POLL_SECONDS, order_replay_buffer
from dataflex_events.adapters.verl.cpu.router import Router


@pytest.fixture
def buffer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An instance of verl's replay buffer with our order, and a queue that only notes what is cleared."""
    from verl.trainer.ppo.v1 import replay_buffer as verls

    class Patched(verls.ReplayBuffer):
        pass

    order_replay_buffer(SimpleNamespace(ReplayBuffer=Patched))  # type: ignore[arg-type]
    monkeypatch.setattr(verls.tq, "kv_clear", lambda **_: None)
    return Patched("sync", {}, 8, "drop", {})


def fill(buffer: Any, uids: list[str], steps: list[int], rng: random.Random) -> None:
    buffer.prompt_global_steps["train"].update(zip(uids, steps, strict=True))
    keys = [f"{uid}_{session}_{output}" for uid in uids for session in range(11) for output in range(2)]
    rng.shuffle(keys)  # the order of arrival
    buffer.partitions["train"].update({key: {"key": key} for key in keys})


@pytest.mark.verl
def test_rows_come_in_the_order_of_the_draw_then_session_then_output(buffer: Any) -> None:
    uids = ["c-3", "a-1", "b-2"]
    fill(buffer, uids, [1, 1, 1], random.Random(0))
    selected, snapshot, steps = buffer._select_prompt_uids("train", set(uids), 3)
    batch = buffer._materialize_batch("train", selected, snapshot)
    assert selected == uids
    assert batch.keys == [f"{uid}_{session}_{output}" for uid in uids for session in range(11) for output in range(2)]
    assert [tag["key"] for tag in batch.tags] == batch.keys
    assert steps == dict.fromkeys(uids, 1)


@pytest.mark.verl
def test_older_prompts_first_and_only_those_that_are_ready(buffer: Any) -> None:
    fill(buffer, ["new", "late", "old", "older"], [7, 5, 5, 4], random.Random(1))
    selected, snapshot, _ = buffer._select_prompt_uids("train", {"new", "old", "older"}, 2)
    assert selected == ["older", "old"]
    assert {key.split("_")[0] for key in buffer._materialize_batch("train", selected, snapshot).keys} == {
        "older",
        "old",
    }


@pytest.mark.verl
def test_the_buffer_looks_often(buffer: Any) -> None:
    assert buffer.poll_interval == POLL_SECONDS


@pytest.mark.verl
def test_draws_of_one_row_are_numbered_once_each() -> None:
    from dataflex_events.adapters.verl.cpu.agent_loop import RepeatCounter

    counter = RepeatCounter(capacity=2)
    assert [counter.number(1, 5, [3], uid) for uid in ("a", "a", "b", "a", "b")] == [0, 0, 1, 0, 1]
    assert counter.number(2, 5, [3], "c") == 0, "another step"
    assert counter.number(1, 5, [4], "d") == 0, "another prompt"
    assert counter.number(1, 5, [3], "e") == 0, "forgotten"


def test_router_takes_the_least_busy_server() -> None:
    router = Router({"a": "A", "b": "B"}, {"router_class": "..."})
    assert [router.acquire_server(f"r{n}")[1] for n in range(3)] == ["A", "B", "A"]
    router.release_server("a")
    router.release_server("a")
    assert router.acquire_server("r3") == ("a", "A")
    router.add_servers({"c": "C"})
    assert router.acquire_server("r4") == ("c", "C")
    router.remove_servers(["a", "b", "c"])
    router.release_server("a")
    with pytest.raises(RuntimeError, match="No available servers in load balancer"):
        router.acquire_server("r5")


@pytest.mark.verl
def test_router_answers_everything_that_verls_does() -> None:
    from verl.workers.rollout.router import GlobalRequestLoadBalancer

    wanted = {name for name in vars(GlobalRequestLoadBalancer) if not name.startswith("_")}
    assert wanted <= set(vars(Router))
