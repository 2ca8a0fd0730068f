"""Compares what the loss of a worker received with what it should have received, and computes the latter by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labrun import Run

Weights = dict[str, list[float]]
"""Row key -> one weight for each response token."""


@dataclass
class Row:
    """One row as the loss received it.

    Attributes:
        key: verl's key of the row.
        padding: True if verl made the row up to fill the batch.
        rank: The worker that received it.
        mask: Which tokens count.
        weights: `rollout_is_weights`, or None if the loss received none.
    """

    key: str
    padding: bool
    rank: int
    mask: list[bool]
    old_log_probs: list[float]
    rollout_log_probs: list[float] | None
    advantages: list[float]
    weights: list[float] | None


@dataclass(frozen=True)
class Step:
    """What was sent to the workers in one step, and what they received.

    Attributes:
        calls: What each call of the loss got, over all ranks, mini-batches and micro-batches.
        sent: The batch as the trainer sent it.
        context: What our step context resolved, if `farend:Context` watched it and the step got to its end.
        metrics: What verl logged, if the step got to its end.
    """

    calls: list[dict[str, Any]]
    sent: dict[str, Any]
    context: dict[str, Any] | None
    metrics: dict[str, Any] | None


def step_of(run: Run, step: int) -> Step:
    """A step of a run with `farend`."""

    def own(name: str) -> dict[str, Any] | None:
        return next((record for record in run.records(name) if record["step"] == step), None)

    sent = own("sent")
    assert sent is not None, f"step {step} did not get to its update"
    uids = {key.rsplit("_", 2)[0] for key in sent["keys"]}  # each draw has its own, padding rows too
    calls = [call for call in run.records("loss") if uids & set(call["uid"])]
    metrics = next((metrics for metrics in run.metrics if metrics["training/global_step"] == step), None)
    return Step(calls, sent, own("context"), metrics)


def received_rows(step: Step) -> list[Row]:
    """The rows that the losses of a step received."""
    return [row for call in step.calls for row in rows_of(call)]


def rows_of(call: Mapping[str, Any]) -> list[Row]:
    """The rows of one call of the loss: one micro-batch."""
    columns = {name: [row.tolist() for row in call[name]] for name in _TOKEN_COLUMNS if name in call}

    def column(name: str, row: int) -> list[float] | None:
        return columns[name][row] if name in columns else None

    return [
        Row(
            key=f"{uid}_{session}_0",  # the lab's rollouts have one output
            padding=uid.startswith("pad"),
            rank=call["rank"],
            mask=[bool(valid) for valid in columns["response_mask"][row]],
            old_log_probs=columns["old_log_probs"][row],
            rollout_log_probs=column("rollout_log_probs", row),
            advantages=columns["advantages"][row],
            weights=column("rollout_is_weights", row),
        )
        for row, (uid, session) in enumerate(zip(call["uid"], call["session"], strict=True))
    ]


_TOKEN_COLUMNS = ("response_mask", "old_log_probs", "rollout_log_probs", "advantages", "rollout_is_weights")


def check_received(rows: Sequence[Row], expected: Weights, tolerance: float = 1e-5) -> int:
    """Assert that the loss received exactly the expected rows, each valid token of them with the expected weight.

    Args:
        rows: What the loss received.
        expected: Weights of all rows that are not padding.
        tolerance: Largest difference allowed.

    Returns:
        How many tokens were compared.
    """
    real = [row for row in rows if not row.padding]
    assert sorted(row.key for row in real) == sorted(expected), "other rows arrived than were sent"
    missing = [row.key for row in rows if row.weights is None]
    assert not missing, f"the loss received no weights for {len(missing)} of {len(rows)} rows"
    compared = 0
    for row in real:
        want = expected[row.key]
        assert len(row.weights) == len(want), f"{row.key}: {len(row.weights)} weights for {len(want)} tokens"
        for token in valid_tokens(row):
            difference = abs(row.weights[token] - want[token])
            assert difference <= tolerance, f"{row.key}, token {token}: {row.weights[token]} instead of {want[token]}"
            compared += 1
    return compared


def resolved_weights(step: Step) -> Weights:
    """What our context resolved, by row key: its rows are in the order of the trainer's batch."""
    assert step.context is not None
    keys = [key for key, padding in zip(step.sent["keys"], step.sent["padding"], strict=True) if not padding]
    rows = step.context["weights"].split(step.context["offsets"].diff().tolist())
    return {key: row.tolist() for key, row in zip(keys, rows, strict=True)}


def product(one: Weights, other: Weights) -> Weights:
    """Token by token."""
    return {key: [a * b for a, b in zip(row, other[key], strict=True)] for key, row in one.items()}


def importance_weights(rows: Iterable[Row], threshold: float) -> Weights:
    """verl's `rollout_is=token`: how much likelier a token is for the trainer than for the server, truncated."""
    return {
        row.key: [
            min(math.exp(old - rollout), threshold)
            for old, rollout in zip(row.old_log_probs, row.rollout_log_probs, strict=True)
        ]
        for row in rows
        if not row.padding
    }


def softmax_by_hand(rows: Iterable[Row], temperature: float, mean_over: str) -> Weights:
    """Policy `advantage_magnitude` -> `softmax`, normalised to mean 1 over valid tokens ("token") or rows ("row")."""
    real = [row for row in rows if not row.padding]
    scores = [sum(abs(row.advantages[t]) for t in valid_tokens(row)) / max(len(valid_tokens(row)), 1) for row in real]
    powers = [math.exp((score - max(scores)) / temperature) for score in scores]
    if mean_over == "token":
        counts = [len(valid_tokens(row)) for row in real]
    else:
        counts = [min(len(valid_tokens(row)), 1) for row in real]
    mean = sum(power * count for power, count in zip(powers, counts, strict=True)) / sum(counts)
    return {row.key: [power / mean] * len(row.mask) for row, power in zip(real, powers, strict=True)}


def by_token_by_hand(rows: Iterable[Row]) -> Weights:
    """The handler `weighing:by_token`."""
    return {
        row.key: [0.25 + math.exp(value) + 0.125 * position for position, value in enumerate(row.old_log_probs)]
        for row in rows
        if not row.padding
    }


def policy_loss_by_hand(rows: Iterable[Row], batch_num_tokens: float, *, weighted: bool) -> float:
    """verl's vanilla loss, `token-mean`, one rank, before any optimizer step: ratios are 1, nothing is clipped."""
    total = 0.0
    for row in rows:
        for token in valid_tokens(row):
            weight = row.weights[token] if weighted else 1.0
            total -= row.advantages[token] * weight
    return total / batch_num_tokens


def valid_tokens(row: Row) -> list[int]:
    """Positions of the tokens that count."""
    return [position for position, valid in enumerate(row.mask) if valid]
