"""What is known about each prompt of the dataset: what became of the groups of rollouts that it was generated for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from dataflex_events.pools import read_tensor

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LONGEST_STREAK = 127
"""Streaks are counted up to here, in one byte."""

# Arrays of the statistics, and the type in which each is saved (torch has no arithmetic for larger unsigned ones).
_TOTALS = {"visits": np.uint32, "rollouts": np.uint32, "successes": np.uint32, "latest": np.float32, "streak": np.int8}
_EVIDENCE = {"won": np.float32, "lost": np.float32}
_SAVED = {np.uint32: torch.int64, np.float32: torch.float32, np.int8: torch.int8}


@dataclass(frozen=True, slots=True, eq=False)
class PromptHistory:
    """What is known about C prompts.

    Attributes:
        rows: `(C,)` int64 rows of the dataset.
        domains: `(C,)` int64 domain of each.
        visits: `(C,)` int64 groups that were generated.
        rollouts: `(C,)` int64 rollouts in these groups with a known outcome.
        successes: `(C,)` int64 how many of them succeeded.
        latest: `(C,)` float64 pass rate of the latest group, in [0, 1]; NaN for a prompt that was never generated.
        streak: `(C,)` int64. Of the latest groups, how many in a row had equal outcomes and taught nothing: +z if all
            rollouts of them succeeded, -z if none did, 0 if the latest group taught something.
        alpha: `(C,)` float64, > 0. With `beta` the posterior of the success rate, Beta(alpha, beta), from the prior
            Beta(1, 1).
        beta: `(C,)` float64, > 0.
    """

    rows: Ints
    domains: Ints
    visits: Ints
    rollouts: Ints
    successes: Ints
    latest: Floats
    streak: Ints
    alpha: Floats
    beta: Floats

    def __len__(self) -> int:
        """Number of prompts C."""
        return len(self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class StepGroups:
    """The G groups that a step generated, in an order that does not depend on which finished first.

    Attributes:
        rows: `(G,)` int64 rows of the dataset.
        rollouts: `(G,)` int64 rollouts with a known outcome, at least 1.
        successes: `(G,)` int64 how many of them succeeded.
        kind: `(G,)` int64: +1 if all rollouts had the same outcome and succeeded, -1 if none did, 0 if outcomes differ,
            or if there is only one rollout to compare.
        known: `(G,)` bool, true if the prompt had been generated in an earlier step.
    """

    rows: Ints
    rollouts: Ints
    successes: Ints
    kind: Ints
    known: NDArray[np.bool_]

    def __len__(self) -> int:
        """Number of groups G."""
        return len(self.rows)

    @property
    def pass_rate(self) -> float:
        """Share of successes among all rollouts, NaN without any."""
        return float(self.successes.sum() / self.rollouts.sum()) if len(self) else float("nan")


class PromptStats:
    """Outcomes by row of the dataset. A group counts once, whatever later happens to it.

    Groups are collected while a step runs (`add`) and take effect at its end (`commit`), in an order that does not
    depend on who finished first. Takes 17 bytes a row, 25 with a decay, of which the operating system provides only
    what is used; what is saved grows with the rows that were generated.

    Args:
        rows: Number of rows of the dataset.
        decay: What of the evidence for a prompt's success rate is left when it is generated again, in [0, 1]; 1 forgets
            nothing.
    """

    def __init__(self, rows: int, *, decay: float = 1.0) -> None:
        if not 0 <= decay <= 1:
            raise ValueError(f"decay {decay} is not in [0, 1]")
        self.decay = decay
        self._dtypes: Mapping[str, Any] = _TOTALS | (_EVIDENCE if decay < 1 else {})
        self._arrays: dict[str, NDArray[Any]] = {name: np.zeros(rows, dtype) for name, dtype in self._dtypes.items()}
        self._pending: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        """Number of rows of the dataset."""
        return len(self._arrays["visits"])

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def look(self, rows: ArrayLike, domains: ArrayLike | None = None) -> PromptHistory:
        """What is known about these rows.

        Args:
            rows: `(C,)` row numbers.
            domains: `(C,)` domain of each; 0 by default.
        """
        at = np.asarray(rows, dtype=np.int64)
        found = {name: array[at] for name, array in self._arrays.items()}
        visits, rollouts, successes, streak = (
            found[name].astype(np.int64) for name in ("visits", "rollouts", "successes", "streak")
        )
        won, lost = (found["won"], found["lost"]) if self.decay < 1 else (successes, rollouts - successes)
        return PromptHistory(
            rows=at,
            domains=np.zeros_like(at) if domains is None else np.asarray(domains, dtype=np.int64),
            visits=visits,
            rollouts=rollouts,
            successes=successes,
            latest=np.where(visits > 0, found["latest"].astype(np.float64), np.nan),
            streak=streak,
            alpha=1.0 + won.astype(np.float64),
            beta=1.0 + lost.astype(np.float64),
        )

    def add(self, rows: ArrayLike, rollouts: ArrayLike, successes: ArrayLike, equal: ArrayLike) -> None:
        """Collect groups of the step that is running. One without a known outcome does not count.

        Args:
            rows: `(G,)` row of the dataset of each group; negative: unknown, does not count.
            rollouts: `(G,)` rollouts with a known outcome.
            successes: `(G,)` how many of them succeeded.
            equal: `(G,)` bool, true if the outcomes do not differ.
        """
        columns = np.stack([np.asarray(column).astype(np.int64) for column in (rows, rollouts, successes, equal)])
        counted = (columns[0] >= 0) & (columns[1] > 0)
        self._pending.append(columns[:, counted])

    def commit(self) -> StepGroups:
        """Let what was collected take effect."""
        pending, self._pending = self._pending, []
        columns = np.concatenate([np.zeros((4, 0), np.int64), *pending], axis=1)
        columns = columns[:, np.lexsort(columns[::-1])]
        rows, rollouts, successes, equal = columns
        unanimous = (equal > 0) & (rollouts > 1)
        kind = np.where(unanimous & (successes == rollouts), 1, np.where(unanimous & (successes == 0), -1, 0))
        known = self._arrays["visits"][rows] > 0
        first = np.searchsorted(rows, rows)
        turn = np.arange(len(rows)) - first  # a row can be there several times; its groups count one after the other
        for number in range(int(turn.max(initial=-1)) + 1):
            now = turn == number
            self._count(rows[now], rollouts[now], successes[now], kind[now])
        return StepGroups(rows, rollouts, successes, kind, known)

    def _count(self, rows: Ints, rollouts: Ints, successes: Ints, kind: Ints) -> None:
        """Count one group for each of these rows, all different."""
        arrays = self._arrays
        arrays["visits"][rows] += 1
        arrays["rollouts"][rows] += rollouts.astype(np.uint32)
        arrays["successes"][rows] += successes.astype(np.uint32)
        arrays["latest"][rows] = successes / rollouts
        streak = arrays["streak"][rows].astype(np.int64)
        longer = np.clip(streak + kind, -LONGEST_STREAK, LONGEST_STREAK)
        streak = np.where(streak * kind > 0, longer, kind)
        # One rollout has nothing to differ from.
        arrays["streak"][rows] = np.where(rollouts > 1, streak, arrays["streak"][rows])
        if self.decay < 1:
            for name, more in (("won", successes), ("lost", rollouts - successes)):
                arrays[name][rows] = self.decay * arrays[name][rows].astype(np.float64) + more

    def state_dict(self) -> dict[str, Any]:
        """Everything about the rows that were generated, but what is collected for a step that has not ended."""
        seen = np.flatnonzero(self._arrays["visits"])
        state: dict[str, Any] = {"size": len(self), "rows": torch.from_numpy(seen)}
        for name, dtype in self._dtypes.items():
            state[name] = torch.from_numpy(self._arrays[name][seen].astype(_numpy(dtype)))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            ValueError: It is not such a state, or one of another number of rows. Nothing has changed then.
        """
        if state.get("size") != len(self):
            raise ValueError(f"it is about {state.get('size')} rows, and the data has {len(self)}")
        seen = read_tensor(state, "rows", torch.int64, None)
        if len(seen) and (seen[0] < 0 or seen[-1] >= len(self) or (np.diff(seen) <= 0).any()):
            raise ValueError("its 'rows' are not rows of the data in ascending order")
        read = {name: read_tensor(state, name, _SAVED[dtype], seen.shape) for name, dtype in self._dtypes.items()}
        if (read["visits"] < 1).any() or (read["successes"] > read["rollouts"]).any() or (read["successes"] < 0).any():
            raise ValueError("it has rows without visits, or with more successes than rollouts")
        evidence = [read[name] for name in _EVIDENCE if name in read]
        shares = (read["latest"] >= 0) & (read["latest"] <= 1)
        if not shares.all() or not all((np.isfinite(values) & (values >= 0)).all() for values in evidence):
            raise ValueError("its 'latest' are no shares, or its evidence is negative or not finite")
        for name, dtype in self._dtypes.items():
            array = np.zeros(len(self), dtype)
            array[seen] = read[name].astype(dtype)
            self._arrays[name] = array
        self._pending = []


def _numpy(dtype: Any) -> Any:
    return np.int64 if dtype is np.uint32 else dtype
