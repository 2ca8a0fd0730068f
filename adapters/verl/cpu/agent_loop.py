"""Single-turn agent loop that tells the rollout server which rollout it asks for.

verl's own loop sends prompt tokens only; two sessions of a group are then indistinguishable, and what is
sampled for which depends on who arrives first. This one passes the rollout's identity along with the request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.utils.profiler import simple_timer

from dataflex_events.adapters.verl.cpu.batched_client import batch_requests
from dataflex_events.adapters.verl.cpu.generation import Draw

_REMEMBERED_ROWS = 65536
_REMEMBERED_PROMPTS = 4096


class RepeatCounter:
    """Numbers the draws of one row within one step: 0, 1, 2, ..."""

    def __init__(self, capacity: int = _REMEMBERED_ROWS) -> None:
        self._seen: OrderedDict[tuple[int, int, tuple[int, ...]], dict[str, int]] = OrderedDict()
        self._capacity = capacity

    def number(self, step: int, row: int, prompt_ids: list[int], uid: str) -> int:
        """Number of draw `uid` among those of its step, row and prompt; all its sessions get the same."""
        draws = self._seen.setdefault((step, row, tuple(prompt_ids)), {})
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
        return draws.setdefault(uid, len(draws))


class TokenizedPrompts:
    """The tokens of the prompts that were asked for last: all sessions of a prompt begin with the same ones."""

    def __init__(self, capacity: int = _REMEMBERED_PROMPTS) -> None:
        self._tokens: OrderedDict[str, list[int]] = OrderedDict()
        self._capacity = capacity

    def get(self, uid: str, tokenize: Callable[[], list[int]]) -> list[int]:
        """The tokens of prompt `uid`, made by `tokenize` if they are not known."""
        if uid not in self._tokens:
            self._tokens[uid] = tokenize()
        if len(self._tokens) > self._capacity:
            self._tokens.popitem(last=False)
        return list(self._tokens[uid])


# An agent loop lives for one session, its process for the run.
_repeats = RepeatCounter()
_prompts = TokenizedPrompts()


class RepeatableSingleTurn(AgentLoopBase):
    """One prompt, one response, sampled as a function of seed, weights, step, dataset row and session."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Generate the response of one session.

        Args:
            sampling_params: verl's dictionary.
            **row: The dataset row's columns and `uid`, `session_id`, `global_steps`.
        """
        messages = list(row["raw_prompt"])
        tokens = _prompts.get(
            str(row["uid"]), lambda: list(self.continuous_token_builder.build_initial_tokens(messages))
        )
        prompt_ids = self._cap_text_prompt_length(tokens)
        step, index = int(row["global_steps"]), int(row["index"])
        draw = Draw(
            step=step,
            row=index,
            repeat=_repeats.number(step, index, prompt_ids, str(row["uid"])),
            session=int(row["session_id"]),
            prompt_length=len(prompt_ids),
        )
        timing: dict[str, float] = {}
        with simple_timer("generate_sequences", timing):
            answer = await batch_requests(self.server_manager).generate(
                request_id=uuid4().hex, prompt_ids=prompt_ids, sampling_params=sampling_params, draw=draw
            )
        limit = self.rollout_config.response_length
        response_ids = answer.token_ids[:limit]
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=response_ids,
            response_mask=[1] * len(response_ids),
            response_logprobs=answer.log_probs[:limit] if answer.log_probs else None,
            num_turns=2,
            metrics=AgentLoopMetrics(**timing),
            extra_fields={**answer.extra_fields, "turn_scores": [], "tool_rewards": []},
        )
