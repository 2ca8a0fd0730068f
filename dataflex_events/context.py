"""The shared step context: what handlers propose for one batch, kept per handler until it is resolved.

A handler proposes, the context resolves (`resolve.py`). Proposals are kept under the name of the handler that made them
(a second one replaces its first) and combined in the order of those names, so the result does not depend on who ran
first, to the last bit, and each effect can be logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from dataflex_events._current import current_handler
from dataflex_events.batch import Batch
from dataflex_events.errors import HandlerOutputError
from dataflex_events.segments import take_rows

Normalize = Literal["auto", "token", "row", "none"]
Unit = Literal["row", "token"]
Scope = Literal["group", "row", "token"]
SelectorScope = Literal["score", "within_group", "batch", "token"]
Baseline = Literal["subset", "full"]
Apply = Literal["weight", "mask"]


@dataclass(frozen=True, slots=True)
class ScorerKey:
    """Identity of a scorer: two policies that name the same scorer with the same parameters share one.

    Attributes:
        name: The scorer's name.
        params: Its parameters as text.
        per: What it scores.
    """

    name: str
    params: str = ""
    per: Scope = "row"

    def __str__(self) -> str:
        return f"{self.name}({self.params})"


@dataclass(frozen=True, slots=True, eq=False)
class WeightProposal:
    """Weights of one handler, `(N,)` or `(T,)` as `per` says, and how to normalise them before they are multiplied."""

    weights: Tensor
    normalize: Normalize
    per: Unit


@dataclass(frozen=True, slots=True, eq=False)
class KeepProposal:
    """What one handler wants to keep: rows `(N,)` or tokens `(T,)` as `per` says, and what happens to the rest."""

    mask: Tensor
    per: Unit = "row"
    apply: Apply = "weight"
    normalize: Normalize = "auto"


@dataclass(slots=True, eq=False, kw_only=True)
class Context:
    """What handlers may write at every event.

    Attributes:
        metrics: Scalars to log with this step.
    """

    metrics: dict[str, float] = field(default_factory=dict)
    _metric_by: dict[str, str] = field(default_factory=dict, repr=False)

    def metric(self, name: str, value: float) -> None:
        """Log a scalar with this step, through verl's metrics (so that every tracking backend has it).

        Raises:
            HandlerOutputError: The value is not a number.
        """
        try:
            self.metrics[name] = float(value)
        except (TypeError, ValueError) as error:
            raise HandlerOutputError(f"metric {name!r} is not a number: {value!r}") from error
        self._metric_by[name] = current_handler()

    def discard(self, by: str) -> None:
        """Forget what a handler proposed, and the scalars that it wrote with `metric`."""
        for name in [name for name, writer in self._metric_by.items() if writer == by]:
            self.metrics.pop(name, None)
            del self._metric_by[name]


@dataclass(frozen=True, slots=True, eq=False)
class GroupProposal:
    """Rows `(N,)` of the groups that one handler wants to keep, and the scores `(N,)` by which, if it has any."""

    mask: Tensor
    scores: Tensor | None = None


@dataclass(slots=True, eq=False)
class ScoreContext(Context):
    """What handlers may write at every event with a batch: scores.

    Attributes:
        batch: The batch that was scored.
        scores: Scores by scorer, `(N,)` or `(T,)`.
    """

    batch: Batch
    scores: dict[ScorerKey, Tensor] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class GroupContext(ScoreContext):
    """What handlers may write at `GroupsFinished`: scores and, in a run with `refill`, which groups to keep.

    Attributes:
        refills: True if groups that are not kept are replaced by fresh ones.
        keeps: Proposals by handler.
    """

    refills: bool = False
    keeps: dict[str, GroupProposal] = field(default_factory=dict)

    def keep(self, mask: Tensor, *, scores: Tensor | None = None, by: str | None = None) -> None:
        """Propose which groups to keep; a group is kept if all handlers keep all of its rows.

        Args:
            mask: `(N,)` bool.
            scores: `(N,)`, why; shown if the run cannot find enough groups.
            by: Whose proposal it is; by default the handler that is running.

        Raises:
            HandlerOutputError: Wrong shape or type, or the run has no policy with `refill`.
        """
        name = by or current_handler()
        if not self.refills:
            raise HandlerOutputError(f"{name!r} proposed groups to keep, but no policy of this run has `refill`")
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (len(self.batch),):
            raise HandlerOutputError(
                f"{name!r} proposed to keep {_describe(mask)}, expected a bool tensor of shape ({len(self.batch)},)"
            )
        self.keeps[name] = GroupProposal(mask, scores)

    def discard(self, by: str) -> None:
        """Forget what a handler proposed, and the scalars that it wrote with `metric`."""
        Context.discard(self, by)
        self.keeps.pop(by, None)


@dataclass(slots=True, eq=False)
class BatchContext(ScoreContext):
    """What handlers may write at `RolloutDone`: scores, and which rows to keep. Rows not kept leave the batch.

    Attributes:
        keeps: Keep proposals by handler.
        shadows: By policy, the proposals of those that only show what they would do.
    """

    keeps: dict[str, KeepProposal] = field(default_factory=dict)
    shadows: dict[str, BatchContext] = field(default_factory=dict)

    def keep(self, mask: Tensor, *, by: str | None = None) -> None:
        """Propose which rows to keep; the proposals of all handlers are combined with AND.

        Args:
            mask: `(N,)` bool.
            by: Whose proposal it is; by default the handler that is running.

        Raises:
            HandlerOutputError: Wrong shape or type.
        """
        name = by or current_handler()
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != (len(self.batch),):
            raise HandlerOutputError(
                f"{name!r} proposed to keep {_describe(mask)}, expected a bool tensor of shape ({len(self.batch)},)"
            )
        self.keeps[name] = KeepProposal(mask)

    def discard(self, by: str) -> None:
        """Forget what a handler proposed, and the scalars that it wrote with `metric`."""
        ScoreContext.discard(self, by)  # `super()` does not know a class that got slots
        self.keeps.pop(by, None)
        self.shadows.pop(by, None)


@dataclass(slots=True, eq=False)
class UpdateContext(BatchContext):
    """What handlers may write at `AdvantageComputed`: weights too. Rows and tokens not kept get weight 0 here.

    Attributes:
        weights: Weight proposals by handler.
    """

    weights: dict[str, WeightProposal] = field(default_factory=dict)

    def keep(
        self,
        mask: Tensor,
        *,
        apply: Apply = "weight",
        normalize: Normalize = "auto",
        per: Unit | None = None,
        by: str | None = None,
    ) -> None:
        """Propose which rows or tokens to keep; the proposals of all handlers are combined with AND.

        Args:
            mask: `(N,)` or `(T,)` bool.
            apply: What the others get: weight 0 in the policy loss ("weight"), or 0 in the response mask, which takes
                them out of KL, entropy and value loss as well ("mask").
            normalize: With "weight", what is kept is scaled up: to mean 1 over valid tokens ("token"), over rows
                ("row"), as the run's `loss_agg_mode` asks ("auto"), or not at all ("none").
            per: What the mask has one value for; needed as in `weigh`.
            by: Whose proposal it is; by default the handler that is running.

        Raises:
            HandlerOutputError: Wrong shape or type.
        """
        name = by or current_handler()
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            raise HandlerOutputError(f"{name!r} proposed to keep {_describe(mask)}, expected a bool tensor")
        unit = self._unit(mask, per, f"{name!r} proposed to keep")
        self.keeps[name] = KeepProposal(mask, unit, apply, normalize)

    def weigh(
        self,
        weights: Tensor,
        *,
        normalize: Normalize = "none",
        per: Unit | None = None,
        by: str | None = None,
    ) -> None:
        """Propose how much each row or token counts in the policy loss; proposals multiply.

        Args:
            weights: `(N,)` or `(T,)`, finite and >= 0.
            normalize: Scale to mean 1 over kept valid tokens ("token"), over kept rows ("row"), as the run's
                `loss_agg_mode` asks ("auto"), or leave as is ("none").
            per: What there is one weight for; by default what their number says. Needed in a batch that has as many
                rows as tokens, some of them without a token.
            by: Whose proposal it is; by default the handler that is running.

        Raises:
            HandlerOutputError: Wrong shape or type, negative or not finite.
        """
        name = by or current_handler()
        unit = self._unit(weights, per, f"{name!r} proposed the weights")
        weights = weights.to(torch.float32)
        bad = int((~weights.isfinite() | (weights < 0)).sum())
        if bad:
            raise HandlerOutputError(f"{name!r} proposed {bad} weights that are negative or not finite")
        self.weights[name] = WeightProposal(weights, normalize, unit)

    def _unit(self, values: Tensor, per: Unit | None, what: str) -> Unit:
        """What there is one value for."""
        rows, tokens = len(self.batch), self.batch.tokens
        expected: dict[Unit, int] = {"row": rows, "token": tokens}
        if per is not None:
            expected = {per: expected[per]}
        shape = values.shape if isinstance(values, Tensor) else None
        fitting: list[Unit] = [unit for unit, length in expected.items() if shape == (length,)]
        if not fitting:
            shapes = " or ".join(f"({length},)" for length in expected.values())
            raise HandlerOutputError(f"{what} {_describe(values)}, expected shape {shapes}")
        if len(fitting) > 1 and not bool((self.batch.length == 1).all()):
            raise HandlerOutputError(
                f"{what} {_describe(values)} for a batch of {rows} rows and {rows} tokens: "
                "say which with `per='row'` or `per='token'`"
            )
        return fitting[0]

    def discard(self, by: str) -> None:
        """Forget what a handler proposed, and the scalars that it wrote with `metric`."""
        BatchContext.discard(self, by)
        self.weights.pop(by, None)


def carry_scores(scores: Mapping[ScorerKey, Tensor], batch: Batch, rows: Tensor) -> dict[ScorerKey, Tensor]:
    """Bring scores of `batch` to the rows `(M,)` that are still there, in their new order.

    A score of a whole group must not change because some of the group's rows were dropped in between.
    """
    tokens, _ = take_rows(batch.offsets, rows)
    return {key: value[rows if is_per_row(value, key, batch) else tokens] for key, value in scores.items()}


def is_per_row(scores: Tensor, key: ScorerKey, batch: Batch) -> bool:
    """True if there is one score a row. The shape tells, unless the batch has as many rows as tokens."""
    if len(batch) == batch.tokens:
        return key.per != "token"
    return scores.shape == (len(batch),)


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} tensor of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}"[:80]
