"""verl's losses by hand, in plain Python, from the rows that a call of one received."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Call = dict[str, Any]

CLIP = 0.2


@dataclass(frozen=True)
class Terms:
    """The three terms of a call's loss, and their sum with the coefficients."""

    policy: float
    entropy: float
    kl: float
    loss: float


def terms(call: Call) -> Terms:
    """Compute them for the loss mode `vanilla`."""
    weights = call.get("rollout_is_weights") or [[1.0] * len(row) for row in call["response_mask"]]

    def policy(row: int, token: int) -> float:
        return float(weights[row][token]) * _clipped(
            float(call["log_prob"][row][token] - call["old_log_probs"][row][token]),
            float(call["advantages"][row][token]),
            call["clip_ratio_c"],
        )

    def entropy(row: int, token: int) -> float:
        return float(call["entropy"][row][token])

    def kl(row: int, token: int) -> float:  # low_var_kl
        difference = float(call["ref_log_prob"][row][token] - call["log_prob"][row][token])
        return min(max(math.exp(difference) - difference - 1, -10), 10)

    found = [average(call, term) for term in (policy, entropy, kl)]
    loss = found[0] - call["entropy_coeff"] * found[1] + call["kl_loss_coef"] * found[2]
    return Terms(*found, loss)


def _clipped(log_ratio: float, advantage: float, dual_clip: float) -> float:
    ratio = math.exp(log_ratio)
    clipped = min(max(ratio, 1 - CLIP), 1 + CLIP)
    loss = max(-advantage * ratio, -advantage * clipped)
    return min(loss, -advantage * dual_clip) if advantage < 0 else loss


def value_loss(call: Call) -> float:
    """The critic's loss: half the squared error of clipped or unclipped values, whichever is larger."""

    def term(row: int, token: int) -> float:
        predicted, before, wanted = (float(call[name][row][token]) for name in ("predicted", "values", "returns"))
        clipped = min(max(predicted, before - call["cliprange_value"]), before + call["cliprange_value"])
        return 0.5 * max((predicted - wanted) ** 2, (clipped - wanted) ** 2)

    return average(call, term)


def average(call: Call, value: Callable[[int, int], float]) -> float:
    """`agg_loss`: the average of a value of valid tokens, as the call's `loss_agg_mode` says."""
    mode, rows = call["loss_agg_mode"], call["response_mask"]
    valid = [[token for token, counts in enumerate(row) if counts] for row in rows]
    if mode in ("token-mean", "token-sum"):
        total = math.fsum(value(row, token) for row, tokens in enumerate(valid) for token in tokens)
        return total * call["dp_size"] / (call["batch_num_tokens"] if mode == "token-mean" else 1)
    sums = [math.fsum(value(row, token) for token in tokens) for row, tokens in enumerate(valid)]
    if mode == "seq-mean-token-mean":
        sums = [total / len(tokens) if tokens else 0.0 for total, tokens in zip(sums, valid, strict=True)]
    mean = math.fsum(sums) * call["dp_size"] / call["global_batch_size"]
    return mean / (call["loss_scale_factor"] or call["width"]) if mode.endswith("-norm") else mean


def grpo(rewards: Iterable[float]) -> list[float]:
    """Advantages of one group; of a group of one the reward itself, as in verl."""
    rewards = list(rewards)
    if len(rewards) == 1:
        return rewards
    mean = math.fsum(rewards) / len(rewards)
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / (len(rewards) - 1))
    return [(reward - mean) / (std + 1e-6) for reward in rewards]
