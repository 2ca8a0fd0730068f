"""What a rollout server is told and what it answers, in verl's terms but without importing verl."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dataflex_events.adapters.verl.cpu.generation import SamplingParams

if TYPE_CHECKING:
    from dataflex_events.adapters.verl.cpu.engine import Engine


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


def sampling_params_for(settings: ServerSettings, given: dict[str, Any], prompt_length: int) -> SamplingParams:
    """Read verl's dictionary of sampling parameters.

    Args:
        settings: The server's; they give the limit where the request has none.
        given: verl's dictionary.
        prompt_length: Tokens of the request's prompt.
    """
    if given.get("repetition_penalty", 1.0) != 1.0:
        raise ValueError("The CPU rollout server has no repetition penalty")
    limit = given.get("max_tokens", given.get("max_new_tokens"))
    if limit is None:
        room = settings.prompt_length + settings.response_length - prompt_length
        limit = min(settings.response_length, room)
    return SamplingParams(
        temperature=float(given.get("temperature", 1.0)),
        top_k=int(given.get("top_k", -1)),
        top_p=float(given.get("top_p", 1.0)),
        max_tokens=int(limit),
        ignore_eos=bool(given.get("ignore_eos", settings.ignore_eos)),
    )


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
