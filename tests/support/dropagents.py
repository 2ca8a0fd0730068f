"""Agent loops for tests of dropping rows. They tell the reward function which session of its group a response is."""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from dataflex_events.adapters.verl.cpu import agent_loop
from dataflex_events.adapters.verl.cpu.agent_loop import RepeatableSingleTurn, RepeatCounter

_step = 0  # for which sessions were last asked

EMPTY_GROUPS = (5,)
"""Prompts all of whose sessions fail."""

FAILING = {2: (0, 3), 7: (6,), 9: (1, 2, 4, 5, 6, 7)}
"""Sessions that fail, by prompt."""


def has_two_outputs(index: int, session: int) -> bool:
    """Whether a session that does not fail ends with two outputs instead of one."""
    return (index + session) % 3 == 0


class EvenSessions(RepeatableSingleTurn):
    """The lab's own, unless a row asks for the rollouts of another step (`extra_info.drawn_as`)."""

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Generate the response of one session."""
        global _step
        if _step != (_step := int(row["global_steps"])):
            agent_loop._repeats = RepeatCounter()  # a row that comes again in another step is no second draw
        if row["extra_info"]["drawn_as"] is not None:
            row["global_steps"] = row["extra_info"]["drawn_as"]
        output = await super().run(sampling_params, **row)
        output.extra_fields["session"] = int(row["session_id"])
        return output


class UnevenSessions(EvenSessions):
    """Some sessions raise, some have two outputs: the beginning of the response, and what follows it."""

    async def run(  # type: ignore[override]
        self, sampling_params: dict[str, Any], **row: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """Generate the outputs of one session."""
        output = await super().run(sampling_params, **row)
        index, session = int(row["index"]), int(row["session_id"])
        if index in EMPTY_GROUPS or session in FAILING.get(index, ()):
            raise RuntimeError("the tool of this session broke")
        if not has_two_outputs(index, session):
            return output
        # The second output goes on where the first one ended, and has at least the end token.
        cut = len(output.response_ids) // 2 or 1
        first = output.model_copy(deep=True)
        first.response_ids, first.response_mask = output.response_ids[:cut], output.response_mask[:cut]
        output.prompt_ids = output.prompt_ids + output.response_ids[:cut]
        output.response_ids = output.response_ids[cut:] or output.response_ids[-1:]
        output.response_mask = [1] * len(output.response_ids)
        return [first, output]
