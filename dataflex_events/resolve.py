"""Turn the proposals in a step context into one decision: which rows stay, and how much each token counts."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.context import BatchContext, Normalize, UpdateContext, WeightProposal
from dataflex_events.errors import HandlerOutputError
from dataflex_events.segments import group_reduce, segment_reduce, spread

logger = logging.getLogger("dataflex")


@dataclass(frozen=True, slots=True, eq=False)
class KeepDecision:
    """Which rows of a batch are kept.

    Attributes:
        keep: `(N,)` bool, or None if nobody proposed anything.
        lonely_groups: Groups that were dropped because a single session of theirs would have been left.
        kept_whole: True if the proposals would have emptied the batch, so that all rows were kept.
    """

    keep: Tensor | None
    lonely_groups: int = 0
    kept_whole: bool = False


def resolve_keep(context: BatchContext, *, regroup: bool) -> KeepDecision:
    """Combine all keep proposals with AND.

    A session is kept or dropped whole, as its final output says. A selection that would leave nothing keeps everything,
    warns and is counted: an empty batch has no gradient, and a run must not end on it.

    Args:
        context: The proposals.
        regroup: The group baseline will be recomputed over the kept rows. A group is then never left with one session
            (its baseline would be its own reward): it is dropped instead.
    """
    if not context.keeps:
        return KeepDecision(None)
    batch = context.batch
    keep = torch.stack(list(context.keeps.values())).all(0)
    keep = _whole_sessions(keep, batch)
    lonely_groups = 0
    if regroup and len(batch):
        counted = keep & batch.last_output
        before = group_reduce(batch.last_output, batch.uid, "sum")
        left = group_reduce(counted, batch.uid, "sum")
        lonely = (left == 1) & (before > 1)
        lonely_groups = int((lonely & counted).sum())
        keep = keep & ~lonely
    if len(batch) and not keep.any():
        logger.warning("the selection of %s would empty the batch; all rows are kept", ", ".join(context.keeps))
        return KeepDecision(torch.ones_like(keep), kept_whole=True)
    return KeepDecision(keep, lonely_groups)


def resolve_weights(context: UpdateContext, decision: KeepDecision, mask: Tensor, loss_agg_mode: str) -> Tensor | None:
    """Multiply all weight proposals, normalised as each asks, and give dropped rows weight 0.

    The kept share is scaled up so that the step does not shrink: the loss denominators of a trainer count all tokens
    (token-mean) or all rows (seq-mean-*), whatever their weight.

    Args:
        context: The proposals.
        decision: Which rows are kept.
        mask: `(T,)` bool, the valid response tokens.
        loss_agg_mode: How the trainer averages token losses.

    Returns:
        `(T,)` float32, finite and >= 0, or None if nobody proposed anything.

    Raises:
        HandlerOutputError: The product of all weights is too large for float32.
    """
    if not context.weights and decision.keep is None:
        return None
    batch = context.batch
    device = batch.offsets.device
    keep = torch.ones(len(batch), dtype=torch.bool, device=device) if decision.keep is None else decision.keep
    weights = torch.ones(batch.tokens, dtype=torch.float64, device=device)
    for _, proposal in sorted(context.weights.items()):
        how = _unit(proposal.normalize, loss_agg_mode)
        own = _per_token(proposal, batch)
        weights = weights * own / _mean(own, keep, mask, batch, how)
    if not bool(keep.all()):
        every = torch.ones_like(keep)
        how = _unit("auto", loss_agg_mode)
        share = _mean(spread(keep.to(torch.float64), batch.offsets), every, mask, batch, how)
        weights = weights * spread(keep.to(torch.float64), batch.offsets) / share
    weights = weights.to(torch.float32)
    if not bool(weights.isfinite().all()):
        raise HandlerOutputError(f"the product of the weights of {', '.join(context.weights)} is not finite")
    return weights


def _unit(normalize: Normalize, loss_agg_mode: str) -> Normalize:
    if normalize != "auto":
        return normalize
    return "token" if loss_agg_mode == "token-mean" else "row"


def _per_token(proposal: WeightProposal, batch: Batch) -> Tensor:
    weights = proposal.weights.to(torch.float64)
    return spread(weights, batch.offsets) if proposal.per == "row" else weights


def _mean(weights: Tensor, keep: Tensor, mask: Tensor, batch: Batch, how: Normalize) -> float:
    """Mean weight over kept valid tokens, or over kept rows that have a valid token; 1 where that is 0 or undefined."""
    if how == "none":
        return 1.0
    mask = mask.to(torch.bool)
    if how == "token":
        counted = weights[mask & spread(keep, batch.offsets)]
    else:
        rows = segment_reduce(weights, batch.offsets, "mean", mask).to(torch.float64)
        counted = rows[keep & (segment_reduce(mask, batch.offsets, "sum") > 0)]
    mean = float(counted.mean()) if len(counted) else 1.0
    return mean if mean > 0 else 1.0


def _whole_sessions(keep: Tensor, batch: Batch) -> Tensor:
    final = keep.new_zeros(int(batch.session.max()) + 1 if len(batch) else 0)
    final[batch.session[batch.last_output]] = keep[batch.last_output]
    return final[batch.session]
