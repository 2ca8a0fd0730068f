"""Scalars about one resolved step, under the names that every tracking backend sees."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.context import BatchContext
from dataflex_events.errors import HandlerOutputError
from dataflex_events.resolve import KeepDecision, UpdateDecision


def reward_metrics(batch: Batch) -> dict[str, float]:
    """Mean reward of everything that was generated, before any selection. A session counts once."""
    if "reward" not in batch:
        return {}
    rewards = batch["reward"][batch.last_output].to(torch.float64)
    rewards = rewards[rewards.isfinite()]
    return {"dataflex/reward_before_select": rewards.mean().item()} if len(rewards) else {}


def keep_metrics(decision: KeepDecision, generated: int, *, earlier: BatchContext | None = None) -> dict[str, float]:
    """What a selection left.

    Args:
        decision: The selection.
        generated: Rows before any selection of the step.
        earlier: The context of a selection that the step made before; its counts are added.
    """
    if decision.keep is None or not generated:
        return {}
    kept = int(decision.keep.sum())
    counts = {"dataflex/lonely_groups": decision.lonely_groups, "dataflex/kept_whole": decision.kept_whole}
    before = earlier.metrics if earlier is not None else {}
    return {
        "dataflex/kept_frac": kept / generated,
        "dataflex/kept_rows": float(kept),
        **{name: count + before.get(name, 0.0) for name, count in counts.items()},
    }


def token_metrics(decision: UpdateDecision, mask: Tensor) -> dict[str, float]:
    """The share of the valid tokens `mask (T,)` that a selection leaves, where one leaves less than all."""
    valid = int(mask.sum())
    if decision.counting is None or not valid or not decision.selects:
        return {}
    return {"dataflex/kept_token_frac": int(decision.counting.sum()) / valid}


def weight_metrics(weights: Tensor) -> dict[str, float]:
    """Distribution of the weights `(K,)` of all valid tokens.

    `ess_frac` is Kish's effective sample size over K, `(sum w)^2 / (K sum w^2)`: 1 for equal weights.
    """
    if not len(weights):
        return {}
    weights = weights.to(torch.float64).sort().values
    count, total, squares = len(weights), weights.sum().item(), weights.square().sum().item()
    return {
        "dataflex/weight_mean": total / count,
        "dataflex/weight_std": weights.std(correction=0).item(),
        "dataflex/weight_min": weights[0].item(),
        "dataflex/weight_max": weights[-1].item(),
        "dataflex/weight_p05": _quantile(weights, 0.05),
        "dataflex/weight_p95": _quantile(weights, 0.95),
        "dataflex/weight_ess_frac": total * total / (count * squares) if squares else 0.0,
    }


def loggable(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics as floats, without those that are not finite, which some backends cannot store; they are counted instead.

    Raises:
        HandlerOutputError: One is not a number. Most backends would fail on it later, without its name.
    """
    finite: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise HandlerOutputError(f"metric {name!r} is not a number: {value!r}") from error
        if math.isfinite(number):
            finite[name] = number
    if len(finite) < len(metrics):
        finite["dataflex/nonfinite/metrics"] = float(len(metrics) - len(finite))
    return finite


def _quantile(values: Tensor, q: float) -> float:
    """Linear interpolation between the two nearest of sorted values. torch.quantile refuses more than 2^24 of them."""
    position = q * (len(values) - 1)
    low = int(position)
    high = min(low + 1, len(values) - 1)
    return values[low].item() + (position - low) * (values[high] - values[low]).item()
