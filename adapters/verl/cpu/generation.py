"""Requests for generation, and which random numbers each of them uses.

A rollout is known by a `Draw`: the step and dataset row that it was drawn for, which of several equal draws
it is, and its session. Its random numbers come from a counter-based generator keyed by the seed, the draw and
the prompt, one number per response position. So they depend neither on what else is generated at the same
time nor on the order of arrival, and a rollout that was interrupted goes on with the numbers it would have
had.

This module does not import torch: processes that only handle requests start faster without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class SamplingParams:
    """How to pick tokens; the names are verl's.

    Attributes:
        temperature: Divides the logits; 0 is greedy.
        top_k: Keep the k most probable tokens; -1 or 0 keeps all.
        top_p: Keep the smallest set of most probable tokens that holds this probability; 1 keeps all.
        max_tokens: Upper bound of new tokens, >= 1.
        ignore_eos: Go on after an end token.
    """

    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    max_tokens: int = 16
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens must be >= 1, got {self.max_tokens}")


@dataclass(frozen=True)
class Draw:
    """Identity of one rollout.

    Attributes:
        step: Global step for which the prompt was drawn.
        row: The dataset's own number of the prompt (`extra_info.index`).
        repeat: 0, or 1, 2, ... when the same row was drawn several times for one step.
        session: Number within the prompt's group.
        prompt_length: Tokens of the prompt. An interrupted rollout comes back with its own tokens appended to
            the prompt.
    """

    step: int
    row: int
    repeat: int
    session: int
    prompt_length: int


def uniforms(seed: int, draw: Draw, prompt_ids: Sequence[int], start: int, count: int) -> np.ndarray:
    """Random numbers in [0, 1) for response positions `start` to `start + count - 1`, float64 `(count,)`."""
    identity = np.array([seed, draw.step, draw.row, draw.repeat, draw.session, *prompt_ids], dtype=np.int64)
    digest = hashlib.blake2b(identity.tobytes(), digest_size=16).digest()
    key = np.frombuffer(digest, dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key)).random(start + count)[start:]


@dataclass
class Generation:
    """One request and what has been generated for it.

    Attributes:
        prompt_ids: Prompt tokens, with the tokens generated so far if an interrupted rollout continues.
        params: How to sample.
        uniforms: `(>= max_tokens,)` float64, the random number of each new position.
        token_ids: New tokens, the end token included.
        log_probs: One per new token.
        finished: An end token or the limit was reached.
    """

    prompt_ids: list[int]
    params: SamplingParams
    uniforms: np.ndarray
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    finished: bool = False
