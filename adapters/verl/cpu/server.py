"""The rollout server: a Ray actor that answers verl's generation requests with an `Engine`.

It does not import verl, so that its process starts quickly; what it returns has the attributes of verl's
`TokenOutput`. Nor does the module import torch: every process that holds a handle of the server imports the
module.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflex_events.adapters.verl.cpu.generation import Draw, Generation, uniforms
from dataflex_events.adapters.verl.cpu.protocol import Output, ServerSettings, load_engine, sampling_params_for

if TYPE_CHECKING:
    import torch

    from dataflex_events.adapters.verl.cpu.engine import Engine

SETTLE_SECONDS = 0.01
"""How long a batch that is not full waits for company; it costs the same however full it is."""


@dataclass(eq=False)
class _Request:
    generation: Generation
    answer: asyncio.Future[Output]
    wants_log_probs: bool


@dataclass
class _Gates:
    """Generation runs while both are open; verl closes one to abort and the other to sleep."""

    running: asyncio.Event = field(default_factory=asyncio.Event)
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    rejecting: bool = False


class RolloutServer:
    """Collects requests into batches and decodes one batch at a time on its event loop."""

    def __init__(self, settings: ServerSettings, engine: Engine | None = None) -> None:
        self._settings = settings
        self._engine = engine or load_engine(settings)
        self._gates = _Gates()
        self._waiting: list[_Request] = []
        self._decoding: list[_Request] = []
        self._work = asyncio.Event()
        self._global_step: int | None = None
        self._anonymous: Counter[tuple[int, ...]] = Counter()
        self._loop_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to serve."""
        self._gates.running.set()
        self._gates.awake.set()
        self._loop_task = asyncio.create_task(self._serve())

    # ---- generation

    async def generate(
        self,
        prompt_ids: Sequence[int],
        sampling_params: dict[str, Any],
        request_id: str,
        image_data: Any = None,
        video_data: Any = None,
        draw: Draw | None = None,
        **unused: Any,
    ) -> Output:
        """Generate one response.

        Args:
            prompt_ids: Prompt tokens; an interrupted rollout appends what it has.
            sampling_params: verl's dictionary.
            request_id: Not used.
            image_data: Must be empty.
            video_data: Must be empty.
            draw: Identity of the rollout, from the lab's agent loop. Without it equal prompts are numbered as
                they arrive.
        """
        if image_data or video_data:
            raise ValueError("The CPU rollout server generates text only")
        prompt = [int(token) for token in prompt_ids]
        params = sampling_params_for(self._settings, sampling_params, len(prompt))
        while not (self._gates.running.is_set() and self._gates.awake.is_set()):
            if self._gates.rejecting:
                return self._output([], None, "aborted")
            await asyncio.sleep(SETTLE_SECONDS)
        draw = draw or self._number(prompt)
        generation = Generation(
            prompt,
            params,
            uniforms(
                self._settings.seed,
                draw,
                prompt[: draw.prompt_length],
                start=len(prompt) - draw.prompt_length,
                count=params.max_tokens,
            ),
        )
        request = _Request(
            generation, asyncio.get_running_loop().create_future(), bool(sampling_params.get("logprobs", False))
        )
        self._waiting.append(request)
        self._work.set()
        return await request.answer

    async def generate_many(self, requests: Sequence[dict[str, Any]]) -> list[Output | BaseException]:
        """`generate` for several requests in one message; each is a dictionary of its arguments."""
        return await asyncio.gather(*(self.generate(**request) for request in requests), return_exceptions=True)

    def _number(self, prompt: list[int]) -> Draw:
        """Identity of a request that came without one: the set of responses can be repeated, their order cannot."""
        session = self._anonymous[tuple(prompt)]
        self._anonymous[tuple(prompt)] += 1
        return Draw(self._global_step or 0, row=-1, repeat=0, session=session, prompt_length=len(prompt))

    def _output(self, token_ids: list[int], log_probs: list[float] | None, stop_reason: str) -> Output:
        return Output(token_ids, log_probs, stop_reason, {"global_steps": self._global_step})

    def _answer(self, request: _Request, stop_reason: str) -> None:
        if not request.answer.done():  # a caller that was cancelled took its future with it
            generation = request.generation
            log_probs = list(generation.log_probs) if request.wants_log_probs else None
            request.answer.set_result(self._output(list(generation.token_ids), log_probs, stop_reason))

    async def _serve(self) -> None:
        while True:
            await self._work.wait()
            while True:  # wait for company
                count = len(self._waiting)
                if count >= self._engine.rows:
                    break
                await asyncio.sleep(SETTLE_SECONDS)
                if len(self._waiting) == count:
                    break
            self._decoding, self._waiting = self._waiting[: self._engine.rows], self._waiting[self._engine.rows :]
            if not self._waiting:
                self._work.clear()
            if self._decoding:  # an abort may have emptied the queue
                await self._decode()

    async def _decode(self) -> None:
        requests = {id(r.generation): r for r in self._decoding}
        try:
            batch = self._engine.start([r.generation for r in self._decoding])
            while self._decoding:
                for generation in batch.step():
                    request = requests[id(generation)]
                    self._decoding.remove(request)
                    self._answer(request, "completed")
                await asyncio.sleep(0)  # let requests, aborts and answers through
        except Exception as error:  # the callers must see it, and the server must go on serving
            for request in self._decoding:
                if not request.answer.done():
                    request.answer.set_exception(error)
        finally:
            self._decoding = []

    # ---- weights

    async def load_weights(self, weights: dict[str, torch.Tensor], global_step: int | None = None) -> None:
        """Take over the trainer's parameters (by name, any float type)."""
        await self._drain()
        self._engine.load_weights(weights)
        self._anonymous.clear()
        if global_step is not None:
            self._global_step = global_step

    async def set_global_steps(self, global_steps: int) -> None:
        self._global_step = global_steps

    # ---- control, called by verl's replica and checkpoint engine

    async def wake_up(self, tags: Sequence[str] | None = None) -> None:
        # verl wakes weights first, loads them, and then wakes the cache: only then may generation go on
        if tags is None or "kv_cache" in tags:
            self._gates.awake.set()

    async def sleep(self) -> None:
        await self._drain()
        self._gates.awake.clear()

    async def abort_all_requests(self, reject_request: bool = False) -> dict[str, Any]:
        """Answer everything with what there is, and hold (or reject) requests until `resume_generation`."""
        self._gates.running.clear()
        self._gates.rejecting = reject_request
        requests = [*self._decoding, *self._waiting]
        self._decoding, self._waiting = [], []
        for request in requests:
            self._answer(request, "aborted")
        return {"aborted_count": len(requests), "request_ids": []}

    async def resume_generation(self) -> None:
        self._gates.rejecting = False
        self._gates.running.set()

    async def _drain(self) -> None:
        while self._decoding or self._waiting:
            await asyncio.sleep(SETTLE_SECONDS)

    async def clear_kv_cache(self) -> None:
        """Nothing is kept between batches."""

    async def release_kv_cache(self) -> None:
        await self._drain()

    async def resume_kv_cache(self) -> None:
        """Nothing was released."""

    async def start_profile(self, **unused: Any) -> None:
        """Not supported; verl calls it only when profiling is configured."""

    async def stop_profile(self) -> None:
        """See `start_profile`."""
