"""Pick tokens from logits: temperature, top-k, top-p, and one given random number per row."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dataflex_events.adapters.verl.cpu.generation import SamplingParams

GREEDY_BELOW = 1e-6
"""Temperatures below this mean: take the most probable token (verl passes 0)."""


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


def pick(
    logits: torch.Tensor, params: Sequence[SamplingParams], uniform: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick one token per row.

    Args:
        logits: `(rows, vocabulary)`.
        params: One per row.
        uniform: `(rows,)` float64 in [0, 1).

    Returns:
        Tokens `(rows,)` int64 and their log-probabilities `(rows,)` float32 under the distribution that was
        sampled from (a greedy row: under the model at temperature 1, as inference engines report it).
    """
    greedy = torch.tensor([p.temperature < GREEDY_BELOW for p in params])
    temperature = torch.tensor([1.0 if p.temperature < GREEDY_BELOW else p.temperature for p in params])
    scaled = logits.float() / temperature[:, None]
    vocabulary = logits.shape[-1]
    if any((0 < p.top_k < vocabulary or p.top_p < 1) and p.temperature >= GREEDY_BELOW for p in params):
        top_k = torch.tensor([p.top_k if p.top_k > 0 and p.temperature >= GREEDY_BELOW else vocabulary for p in params])
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
