"""The shape of a step whose rows were reduced: padding, mini-batches and micro-batches.

verl pads a batch up to its configured mini-batch size with 128-token rows and appends them at the end. A reduced batch
would so cost as much as a full one, its last mini-batches could hold nothing but padding, and sequence means would be
divided by rows that are not there. Here the padding is as small as divisibility allows and dealt evenly, and the
mini-batch size follows the kept rows. The number of optimizer steps stays as configured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.resolve import UpdateDecision
from dataflex_events.segments import segment_reduce


@dataclass(frozen=True, slots=True)
class StepShape:
    """How the kept rows are cut into cells, one cell for each data-parallel rank and mini-batch.

    Attributes:
        rows: Kept rows, or rows that count.
        ranks: Data-parallel ranks.
        mini_batches: Mini-batches (optimizer steps of one epoch).
        cell: Rows of a cell, padding included.
        averaged: Rows over which sequence means are taken, if these are not `rows`.
    """

    rows: int
    ranks: int
    mini_batches: int
    cell: int
    averaged: int | None = None

    @classmethod
    def fit(cls, rows: int, ranks: int, mini_batches: int, micro_batch: int | None) -> StepShape:
        """Choose the smallest shape.

        Args:
            rows: Kept rows, at least 1.
            ranks: Data-parallel ranks.
            mini_batches: Mini-batches of a full step; fewer are made if there is not one row for each cell.
            micro_batch: Largest micro-batch of a rank, or None if micro-batches are made by length.
        """
        mini_batches = max(1, min(mini_batches, rows // ranks))
        cell = -(-rows // (ranks * mini_batches))
        if micro_batch is not None:
            micro_batches = -(-cell // micro_batch)
            cell = micro_batches * -(-cell // micro_batches)  # equal micro-batches, as few as possible
        return cls(rows, ranks, mini_batches, cell)

    @classmethod
    def refit(cls, total: int, rows: int, ranks: int, mini_batches: int, averaged: int) -> StepShape:
        """Cut a batch whose size is given, because some of its rows do not count.

        Args:
            total: Rows of the step.
            rows: Those that count, at least 1.
            ranks: Data-parallel ranks.
            mini_batches: Mini-batches so far; fewer are made if there is not one row for each cell.
            averaged: Rows over which sequence means are taken; a row of weight 0 is one of them.
        """
        mini_batches = largest_divisor(total // ranks, max(1, min(mini_batches, rows // ranks)))
        return cls(rows, ranks, mini_batches, total // (ranks * mini_batches), averaged)

    @property
    def total(self) -> int:
        """Rows of the step, padding included."""
        return self.ranks * self.mini_batches * self.cell

    @property
    def padding(self) -> int:
        """Padding rows of the step."""
        return self.total - self.rows

    @property
    def mini_batch_size(self) -> int:
        """Rows of a mini-batch over all ranks, padding included."""
        return self.total // self.mini_batches

    @property
    def mini_batch_rows(self) -> float:
        """Kept rows of a mini-batch on average: what sequence means are divided by."""
        return (self.rows if self.averaged is None else self.averaged) / self.mini_batches

    def deal(self, padding: np.ndarray) -> np.ndarray:
        """Order the rows so that every cell holds its even share of padding, or of rows that do not count, at its end.

        Args:
            padding: `(total,)` bool in the present order, which is by rank. The other rows stay in that order.

        Returns:
            `(total,)` int64 permutation.
        """
        cells = self.ranks * self.mini_batches
        real = np.full(cells, self.rows // cells)
        real[: self.rows % cells] += 1
        cell_of_real = np.repeat(np.arange(cells), real)
        cell_of_padding = np.repeat(np.arange(cells), self.cell - real)
        order = np.concatenate([np.flatnonzero(~padding), np.flatnonzero(padding)])
        return order[np.argsort(np.concatenate([cell_of_real, cell_of_padding]), kind="stable")]


def idle_rows(batch: Batch, decision: UpdateDecision) -> tuple[Tensor, int]:
    """Rows that are left in the batch without a token that counts.

    Returns:
        `(N,)` bool, and how many of them are masked; the others have weight 0.
    """

    def filled(tokens: Tensor) -> Tensor:
        return segment_reduce(tokens, batch.offsets, "sum") > 0

    mask = batch["response_mask"].to(torch.bool)
    valid, left = filled(mask), mask if decision.mask is None else decision.mask
    counting = left if decision.weights is None else left & (decision.weights > 0)
    return valid & ~filled(counting), int((valid & ~filled(left)).sum())


def largest_divisor(rows: int, limit: int) -> int:
    """The largest divisor of `rows` that is not above `limit`: verl wants micro-batches of equal size."""
    candidates = np.arange(1, min(rows, limit) + 1)
    return int(candidates[rows % candidates == 0][-1])
