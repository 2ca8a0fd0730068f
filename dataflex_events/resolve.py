"""Turn the proposals in a step context into one decision: what stays, and how much each token counts."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.context import BatchContext, KeepProposal, Normalize, UpdateContext, WeightProposal
from dataflex_events.errors import HandlerOutputError
from dataflex_events.segments import group_reduce, segment_reduce, spread

logger = logging.getLogger("dataflex")


@dataclass(frozen=True, slots=True, eq=False)
class KeepDecision:
    """Which rows of a batch are kept.

    Attributes:
        keep: `(N,)` bool, or None if nobody proposed anything about rows.
        lonely_groups: Groups that were dropped because a single session of theirs would have been left.
        kept_whole: True if the proposals would have emptied the batch, so that everything was kept.
    """

    keep: Tensor | None
    lonely_groups: int = 0
    kept_whole: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class UpdateDecision(KeepDecision):
    """What of a batch counts in the update, and how much.

    Attributes:
        mask: `(T,)` bool, the response tokens that stay valid, or None if nobody asked to mask any.
        weights: `(T,)` float32, finite and >= 0, or None if nobody proposed any.
        counting: `(T,)` bool, valid tokens that were neither masked nor given weight 0 by a selection.
        selects: True if anybody proposed to keep less than everything.
    """

    mask: Tensor | None = None
    weights: Tensor | None = None
    counting: Tensor | None = None
    selects: bool = False


def resolve_keep(context: BatchContext, *, regroup: bool) -> KeepDecision:
    """Combine all proposals about rows with AND.

    A session is kept or dropped whole, as its final output says. A selection that would leave nothing keeps everything,
    warns and is counted: an empty batch has no gradient, and a run must not end on it.

    Args:
        context: The proposals.
        regroup: The group baseline will be recomputed over the kept rows. A group is then never left with one session
            (its baseline would be its own reward): it is dropped instead.
    """
    proposals = [proposal.mask for proposal in context.keeps.values() if proposal.per == "row"]
    if not proposals:
        return KeepDecision(None)
    batch = context.batch
    keep = _whole_sessions(_all(proposals), batch)
    lonely_groups = 0
    if regroup and len(batch):
        counted = keep & batch.last_output
        before = group_reduce(batch.last_output, batch.uid, "sum")
        left = group_reduce(counted, batch.uid, "sum")
        lonely = (left == 1) & (before > 1)
        lonely_groups = int((lonely & counted).sum())
        keep = keep & ~lonely
    nonempty = batch.length > 0
    if len(batch) and not (keep & nonempty if nonempty.any() else keep).any():
        _warn_empty(context)
        return KeepDecision(torch.ones_like(keep), kept_whole=True)
    return KeepDecision(keep, lonely_groups)


def resolve_update(
    context: UpdateContext, mask: Tensor, loss_agg_mode: str, *, regroup: bool = False
) -> UpdateDecision:
    """Combine all proposals for the update.

    What is masked does not count at all: a trainer's loss denominators follow. What gets weight 0 leaves the
    denominators as they are, whether these count tokens (token-mean) or rows (seq-mean-*), so the kept share is scaled
    up, as each proposal asks. Weights are normalised over what is kept, and multiplied.

    Args:
        context: The proposals.
        mask: `(T,)` bool, the valid response tokens.
        loss_agg_mode: How the trainer averages token losses.
        regroup: As in `resolve_keep`.

    Raises:
        HandlerOutputError: The product of all weights is too large for float32.
    """
    batch, valid = context.batch, mask.to(torch.bool)
    rows = resolve_keep(context, regroup=regroup)
    keeps = _token_masks(context, rows, loss_agg_mode)
    if valid.any() and not _all([valid, *keeps.values()]).any():
        if not rows.kept_whole:
            _warn_empty(context)
        rows = KeepDecision(None if rows.keep is None else torch.ones_like(rows.keep), kept_whole=True)
        keeps = {how: torch.ones_like(keep) for how, keep in keeps.items()}
    masked = None if "mask" not in keeps else valid & keeps["mask"]
    counting = valid if masked is None else masked
    weights = torch.ones(batch.tokens, dtype=torch.float64, device=batch.offsets.device)
    for how, keep in sorted(keeps.items()):
        if how == "mask":
            continue
        weights = weights * keep / _mean(keep.to(torch.float64), counting, batch, how)
        counting = counting & keep
    for _, proposal in sorted(context.weights.items()):
        own = _per_token(proposal, batch)
        weights = weights * own / _mean(own, counting, batch, _unit(proposal.normalize, loss_agg_mode))
    weights = weights.to(torch.float32)
    if not bool(weights.isfinite().all()):
        raise HandlerOutputError(f"the product of the weights of {', '.join(context.weights)} is not finite")
    weighted = bool(context.weights) or any(how != "mask" for how in keeps)
    return UpdateDecision(
        keep=rows.keep,
        lonely_groups=rows.lonely_groups,
        kept_whole=rows.kept_whole,
        mask=masked,
        weights=weights if weighted else None,
        counting=counting,
        selects=bool(keeps),
    )


def _token_masks(context: UpdateContext, rows: KeepDecision, loss_agg_mode: str) -> dict[str, Tensor]:
    """The keep proposals as `(T,)` bool: those that mask under "mask", the others by how they are normalised."""
    batch = context.batch
    grouped: dict[str, list[Tensor]] = {}
    for _, proposal in sorted(context.keeps.items()):
        grouped.setdefault(_way(proposal, loss_agg_mode), []).append(_keep_tokens(proposal, batch, rows))
    masks = {how: _all(found) for how, found in grouped.items()}
    if rows.lonely_groups and rows.keep is not None:
        by_rows = {_way(proposal, loss_agg_mode) for proposal in context.keeps.values() if proposal.per == "row"}
        how = "mask" if "mask" in by_rows else min(by_rows)  # lonely groups go the way of the rows beside them
        others = _whole_sessions(_all(p.mask for p in context.keeps.values() if p.per == "row"), batch)
        masks[how] = masks[how] & spread(rows.keep | ~others, batch.offsets)
    return masks


def _way(proposal: KeepProposal, loss_agg_mode: str) -> str:
    return "mask" if proposal.apply == "mask" else _unit(proposal.normalize, loss_agg_mode)


def _keep_tokens(proposal: KeepProposal, batch: Batch, rows: KeepDecision) -> Tensor:
    if proposal.per == "token":
        return proposal.mask
    keep = torch.ones_like(proposal.mask) if rows.kept_whole else _whole_sessions(proposal.mask, batch)
    return spread(keep, batch.offsets)


def _unit(normalize: Normalize, loss_agg_mode: str) -> Normalize:
    if normalize != "auto":
        return normalize
    return "row" if loss_agg_mode.startswith("seq-") else "token"


def _per_token(proposal: WeightProposal, batch: Batch) -> Tensor:
    weights = proposal.weights.to(torch.float64)
    return spread(weights, batch.offsets) if proposal.per == "row" else weights


def _mean(values: Tensor, counting: Tensor, batch: Batch, how: str) -> float:
    """Mean over the counting tokens, or over the rows that have one; 1 where that is 0 or undefined."""
    if how == "none":
        return 1.0
    if how == "token":
        counted = values[counting]
    else:
        rows = segment_reduce(values, batch.offsets, "mean", counting).to(torch.float64)
        counted = rows[segment_reduce(counting, batch.offsets, "sum") > 0]
    mean = float(counted.mean()) if len(counted) else 1.0
    return mean if mean > 0 else 1.0


def _all(masks: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(masks)).all(0)


def _whole_sessions(keep: Tensor, batch: Batch) -> Tensor:
    final = keep.new_zeros(int(batch.session.max()) + 1 if len(batch) else 0)
    final[batch.session[batch.last_output]] = keep[batch.last_output]
    return final[batch.session]


def _warn_empty(context: BatchContext) -> None:
    logger.warning("the selection of %s would empty the batch; all rows are kept", ", ".join(context.keeps))
