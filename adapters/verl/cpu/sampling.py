"""Repeatable sampling: which random numbers a rollout uses, and how they pick tokens.

A rollout is known by a `Draw`: the step and dataset row that it was drawn for, which of several equal draws it is, and
its session. Its random numbers come from a counter-based generator keyed by the seed, the draw and the prompt, one number per
response position. So they depend neither on what else is generated at the same time nor on the order of arrival, and a
rollout that was interrupted goes on with the numbers it would have had.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

GREEDY_BELOW = 1e-6
"""Temperatures below this mean: take the most probable token (verl passes 0)."""


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
        prompt_length: Tokens of the prompt. An interrupted rollout comes back with its own tokens appended to the prompt.
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


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Set the logits that top-k and top-p exclude to -inf.

    Args:
        logits: `(rows, vocabulary)`, already divided by the temperature.
        top_k: `(rows,)` int64, the number of tokens to keep.
        top_p: `(rows,)` float, the probability to keep after top-k.
    """
    ordered, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1])
    ordered = ordered.masked_fill(rank >= top_k[:, None], float("-inf"))
    probs = torch.softmax(ordered, dim=-1)
    before = torch.cumsum(probs, dim=-1) - probs  # probability of all tokens that are more likely
    ordered = ordered.masked_fill((before >= top_p[:, None]) & (rank > 0), float("-inf"))
    return torch.empty_like(logits).scatter_(-1, order, ordered)


def pick(logits: torch.Tensor, params: Sequence[SamplingParams], uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick one token per row.

    Args:
        logits: `(rows, vocabulary)`.
        params: One per row.
        uniform: `(rows,)` float64 in [0, 1).

    Returns:
        Tokens `(rows,)` int64 and their log-probabilities `(rows,)` float32 under the distribution that was sampled from
        (a greedy row: under the model at temperature 1, as inference engines report it).
    """
    greedy = torch.tensor([p.temperature < GREEDY_BELOW for p in params])
    temperature = torch.tensor([1.0 if p.temperature < GREEDY_BELOW else p.temperature for p in params])
    scaled = logits.float() / temperature[:, None]
    vocabulary = logits.shape[-1]
    if any((0 < p.top_k < vocabulary or p.top_p < 1) and p.temperature >= GREEDY_BELOW for p in params):
        top_k = torch.tensor([p.top_k if 0 < p.top_k and p.temperature >= GREEDY_BELOW else vocabulary for p in params])
        top_p = torch.tensor([p.top_p if p.temperature >= GREEDY_BELOW else 1.0 for p in params])
        # 1.0 must keep everything, also where rounding makes the cumulative probability reach 1 early
        scaled = filter_logits(scaled, top_k, torch.where(top_p < 1, top_p, torch.inf))
    log_probs = torch.log_softmax(scaled, dim=-1)
    cumulative = torch.cumsum(log_probs.double().exp(), dim=-1)
    # scaled by the total, so that rounding never leaves a gap at the end
    target = uniform[:, None] * cumulative[:, -1:]
    sampled = torch.searchsorted(cumulative, target, right=True).squeeze(-1).clamp(max=vocabulary - 1)
    token = torch.where(greedy, scaled.argmax(dim=-1), sampled)
    return token, log_probs.gather(-1, token[:, None]).squeeze(-1)
