"""A data loader that loads the rows that were planned, and has no will of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Sampler

from dataflex_events.errors import DataflexError


class PlanSampler(Sampler[int]):
    """Hands out the rows of `planned`, for ever.

    Args:
        rows: What `len` says; verl's epochs are so long.
    """

    def __init__(self, rows: int) -> None:
        self.planned: deque[int] = deque()
        self._rows = rows

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[int]:
        while self.planned:
            yield self.planned.popleft()
        raise DataflexError("verl asked for a prompt that nobody planned to draw")


class PlannedLoader(DataLoader[Any]):
    """Loads in the process of the trainer: what is fetched ahead would follow proportions of the past.

    What is drawn next is saved with the rest of our state. verl's own file holds an empty state, with which verl's
    loader begins anew, so that a run can go on without us.
    """

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Not needed; it may be the state of another loader, of a run without us."""
