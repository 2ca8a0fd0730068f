"""The rollout server: a Ray actor that answers verl's generation requests with an `Engine`.

It does not import verl, so that its process starts quickly; what it returns has the attributes of verl's `TokenOutput`. Nor does
the module import torch: every process that holds a handle of the server imports the module.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflex_events.adapters.verl.cpu.generation import Draw, Generation, SamplingParams, uniforms

if TYPE_CHECKING:
    import torch

    from dataflex_events.adapters.verl.cpu.engine import Engine

SETTLE_SECONDS = 0.01
"""A batch costs the same however full it is; so wait this long for company before starting one that is not full."""


@dataclass(frozen=True)
class ServerSettings:
    """What a server needs to know; plain values, so that no module of verl is needed to read them.

    Attributes:
        model_path: Folder of the model.
        seed: Seed of all sampling.
        rows: Rows of a batch.
        prompt_length: Longest prompt, in tokens.
        response_length: Longest response, in tokens.
        ignore_eos: Go on after end tokens.
    """

    model_path: str
    seed: int
    rows: int
    prompt_length: int
    response_length: int
    ignore_eos: bool = False


@dataclass
class Output:
    """Stand-in for verl's `TokenOutput`."""

    token_ids: list[int]
    log_probs: list[float] | None
    stop_reason: str
    extra_fields: dict[str, Any]
    routed_experts: None = None
    num_preempted: None = None


@dataclass(eq=False)
class _Request:
    generation: Generation
    answer: asyncio.Future[Output]
    wants_log_probs: bool


def load_engine(settings: ServerSettings) -> Engine:
    """Load the model of `settings` in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    from dataflex_events.adapters.verl.cpu.engine import Engine

    torch.set_num_threads(1)  # see the engine: results would depend on which thread gets which row
    model = AutoModelForCausalLM.from_pretrained(
        settings.model_path, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
    )
    ends: set[int] = set()
    for config in (model.config, model.generation_config):
        end = getattr(config, "eos_token_id", None)
        ends.update([end] if isinstance(end, int) else end or [])
    pad = model.config.pad_token_id
    return Engine(
        model,
        end_ids=ends,
        pad_id=pad if pad is not None else 0,
        rows=settings.rows,
        prompt_length=settings.prompt_length,
        response_length=settings.response_length,
    )


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
            draw: Identity of the rollout, from the lab's agent loop. Without it equal prompts are numbered as they arrive.
        """
        if image_data or video_data:
            raise ValueError("The CPU rollout server generates text only")
        prompt = [int(token) for token in prompt_ids]
        params = self._sampling_params(sampling_params, len(prompt))
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

    def _sampling_params(self, given: dict[str, Any], prompt_length: int) -> SamplingParams:
        if given.get("repetition_penalty", 1.0) != 1.0:
            raise ValueError("The CPU rollout server has no repetition penalty")
        limit = given.get("max_tokens", given.get("max_new_tokens"))
        room = self._settings.prompt_length + self._settings.response_length - prompt_length
        if limit is None:
            limit = min(self._settings.response_length, room)
        return SamplingParams(
            temperature=float(given.get("temperature", 1.0)),
            top_k=int(given.get("top_k", -1)),
            top_p=float(given.get("top_p", 1.0)),
            max_tokens=int(limit),
            ignore_eos=bool(given.get("ignore_eos", self._settings.ignore_eos)),
        )

    def _number(self, prompt: list[int]) -> Draw:
        """Identity of a request that came without one: the set of responses is repeatable, their order is not."""
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
        """Answer everything at once with what there is; later requests wait, or are rejected, until `resume_generation`."""
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
