"""Numbers that are not finite, before they reach a loss: what a reward function returned, and what became of it."""

from __future__ import annotations

import logging

from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.segments import segment_reduce

logger = logging.getLogger("dataflex")

_SHOWN = 5


class BadNumbers:
    """Counts them in every step, and warns about each kind once in a run."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def rewards(self, batch: Batch, keys: list[str], metrics: dict[str, float]) -> None:
        """Report rewards of trajectories that are not finite."""
        if "reward" in batch:
            self._report("rewards", ~batch["reward"].isfinite(), keys, metrics, "the reward function returned them")

    def advantages(self, batch: Batch, keys: list[str], advantages: Tensor, metrics: dict[str, float]) -> Tensor | None:
        """Find the advantages `(T,)` of a batch that are not finite. No weight takes these out of a loss, not even 0.

        Returns:
            `(T,)` bool, or None if all are finite.
        """
        bad = ~advantages.isfinite()
        if not bool(bad.any()):
            return None
        rows = segment_reduce(bad, batch.offsets, "sum") > 0
        self._report("advantages", rows, keys, metrics, "they are set to 0, so that these rows train nothing")
        return bad

    def _report(self, what: str, rows: Tensor, keys: list[str], metrics: dict[str, float], note: str) -> None:
        count = int(rows.sum())
        if not count:
            return
        metrics[f"dataflex/nonfinite/{what}"] = float(count)
        if what not in self._warned:
            self._warned.add(what)
            first = ", ".join(keys[row] for row in rows.nonzero().flatten().tolist()[:_SHOWN])
            logger.warning(
                "%d of %d rows have %s that are not finite, e.g. %s; %s", count, len(rows), what, first, note
            )
