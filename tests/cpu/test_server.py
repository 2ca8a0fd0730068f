"""The rollout server without Ray: it is an ordinary class with coroutines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import torch

from dataflex_events.adapters.verl.cpu.engine import Engine
from dataflex_events.adapters.verl.cpu.generation import Draw
from dataflex_events.adapters.verl.cpu.model import build_model
from dataflex_events.adapters.verl.cpu.protocol import Output, ServerSettings
from dataflex_events.adapters.verl.cpu.server import RolloutServer
from dataflex_events.adapters.verl.cpu.tokenizer import build_tokenizer

SETTINGS = ServerSettings(model_path="", seed=3, rows=8, prompt_length=12, response_length=6)
SAMPLE = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True, "repetition_penalty": 1.0}


def make_engine() -> Engine:
    model = build_model(build_tokenizer(), hidden_size=32, layers=1, seed=0)
    return Engine(model, {7}, 0, SETTINGS.rows, SETTINGS.prompt_length, SETTINGS.response_length)


def serve(scenario: Callable[[RolloutServer], Awaitable[Any]], engine: Engine | None = None) -> Any:
    """Run a scenario against a started server."""

    async def run() -> Any:
        server = RolloutServer(SETTINGS, engine or make_engine())
        await server.start()
        return await asyncio.wait_for(scenario(server), timeout=60)

    return asyncio.run(run())


def ask(server: RolloutServer, row: int, session: int, **params: Any) -> Awaitable[Output]:
    prompt = [40 + row, 50, 60]
    draw = Draw(step=1, row=row, repeat=0, session=session, prompt_length=3)
    return server.generate(prompt, {**SAMPLE, **params}, request_id="r", draw=draw)


def tokens(outputs: list[Output]) -> list[tuple[list[int], list[float] | None]]:
    return [(output.token_ids, output.log_probs) for output in outputs]


ROLLOUTS = [(row, session) for row in range(5) for session in range(4)]


def test_results_do_not_depend_on_the_order_of_arrival() -> None:
    async def in_order(server: RolloutServer) -> list[Output]:
        return await asyncio.gather(*(ask(server, *rollout) for rollout in ROLLOUTS))

    async def late_and_shuffled(server: RolloutServer) -> list[Output]:
        answers: dict[tuple[int, int], asyncio.Task[Output]] = {}
        order = random.Random(0).sample(ROLLOUTS, len(ROLLOUTS))
        for number, rollout in enumerate(order):
            answers[rollout] = asyncio.ensure_future(ask(server, *rollout))
            if number % 3 == 0:
                await asyncio.sleep(0.015)
        return [await answers[rollout] for rollout in ROLLOUTS]

    expected = tokens(serve(in_order))
    assert expected == tokens(serve(late_and_shuffled))
    assert len({tuple(ids) for ids, _ in expected}) > 15, "sessions differ"


def test_log_probs_only_when_asked_for() -> None:
    async def scenario(server: RolloutServer) -> list[Output]:
        return [await ask(server, 0, 0, logprobs=False), await ask(server, 0, 0)]

    without, with_log_probs = serve(scenario)
    assert without.log_probs is None
    assert len(with_log_probs.log_probs) == len(with_log_probs.token_ids)
    assert without.token_ids == with_log_probs.token_ids
    assert with_log_probs.stop_reason == "completed"


def test_an_error_of_the_engine_reaches_every_caller_and_the_server_goes_on() -> None:
    engine = make_engine()
    forward = engine.model.forward

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("out of luck")

    async def scenario(server: RolloutServer) -> tuple[list[Any], Output]:
        engine.model.forward = fail
        failed = await asyncio.gather(*(ask(server, *r) for r in ROLLOUTS[:3]), return_exceptions=True)
        engine.model.forward = forward
        return failed, await ask(server, 0, 0)

    failed, output = serve(scenario, engine)
    assert [str(error) for error in failed] == ["out of luck"] * 3
    assert output.token_ids


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ([1] * 30, {}, "max_tokens must be >= 1"),
        ([1] * 19, {"max_tokens": 2}, "19 tokens"),
        ([1], {"temperature": -1}, "temperature"),
        ([1], {"repetition_penalty": 1.1}, "repetition penalty"),
    ],
)
def test_what_cannot_be_generated_is_an_error_for_the_caller(
    prompt: list[int], params: dict[str, Any], message: str
) -> None:
    async def scenario(server: RolloutServer) -> None:
        await server.generate(prompt, {**SAMPLE, **params}, request_id="r")

    with pytest.raises(ValueError, match=message):
        serve(scenario)


def test_images_are_refused() -> None:
    async def scenario(server: RolloutServer) -> None:
        await server.generate([1], SAMPLE, request_id="r", image_data=["image"])

    with pytest.raises(ValueError, match="text only"):
        serve(scenario)


def test_without_identity_equal_prompts_still_differ_and_repeat() -> None:
    async def scenario(server: RolloutServer) -> list[Output]:
        return await asyncio.gather(*(server.generate([40, 50], SAMPLE, request_id="r") for _ in range(6)))

    first, second = tokens(serve(scenario)), tokens(serve(scenario))
    assert first == second
    assert len({tuple(ids) for ids, _ in first}) > 3


def test_abort_answers_with_what_there_is_and_the_rest_continues_unchanged() -> None:
    async def whole(server: RolloutServer) -> Output:
        return await ask(server, 0, 0, ignore_eos=True)

    async def interrupted(server: RolloutServer) -> tuple[Output, Output]:
        task = asyncio.ensure_future(ask(server, 0, 0, ignore_eos=True))
        while not (server._decoding and server._decoding[0].generation.token_ids):
            await asyncio.sleep(0)
        counts = await server.abort_all_requests()
        part = await task
        assert counts["aborted_count"] == 1
        later = asyncio.ensure_future(
            server.generate(
                [40, 50, 60, *part.token_ids],
                {**SAMPLE, "ignore_eos": True, "max_tokens": SETTINGS.response_length - len(part.token_ids)},
                request_id="r",
                draw=Draw(step=1, row=0, repeat=0, session=0, prompt_length=3),
            )
        )
        await asyncio.sleep(0.05)
        assert not later.done(), "held until generation is resumed"
        await server.resume_generation()
        return part, await later

    part, rest = serve(interrupted)
    assert part.stop_reason == "aborted"
    assert 0 < len(part.token_ids) < SETTINGS.response_length
    assert part.token_ids + rest.token_ids == serve(whole).token_ids


def test_abort_can_reject_later_requests() -> None:
    async def scenario(server: RolloutServer) -> Output:
        await server.abort_all_requests(reject_request=True)
        return await ask(server, 0, 0)

    output = serve(scenario)
    assert (output.token_ids, output.stop_reason) == ([], "aborted")


def test_sleep_lets_running_requests_end_and_holds_new_ones_until_the_cache_wakes() -> None:
    async def scenario(server: RolloutServer) -> None:
        running = asyncio.ensure_future(ask(server, 0, 0))
        await asyncio.sleep(0)
        await server.sleep()
        answer = await asyncio.wait_for(running, 1)  # nothing is decoded any more: it has its result, or never gets it
        held = asyncio.ensure_future(ask(server, 0, 0))
        await server.wake_up(tags=["weights"])
        await asyncio.sleep(0.05)
        assert not held.done()
        await server.wake_up(tags=["kv_cache"])
        assert (await held).token_ids == answer.token_ids

    serve(scenario)


def test_new_weights_count_from_the_next_request_and_name_their_step() -> None:
    other = build_model(build_tokenizer(), hidden_size=32, layers=1, seed=9)

    async def scenario(server: RolloutServer) -> tuple[Output, Output]:
        before = await ask(server, 0, 0)
        weights = {name: value.to(torch.float64) for name, value in other.state_dict().items()}
        await server.load_weights(weights, global_step=4)
        return before, await ask(server, 0, 0)

    before, after = serve(scenario)
    assert before.extra_fields == {"global_steps": None}
    assert after.extra_fields == {"global_steps": 4}
    assert before.log_probs != after.log_probs
