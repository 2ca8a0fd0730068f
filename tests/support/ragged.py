"""Random ragged data for property tests, with a plain-Python copy for slow references to work on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from hypothesis import strategies as st

from dataflex_events import Batch
from dataflex_events.segments import offsets_of

# Few and exact in float32: ties are frequent, and sums of them do not depend on the order of addition.
NUMBERS = st.sampled_from([-1.5, -1.0, 0.0, 0.25, 0.5, 1.0, 2.0])
NUMBERS_AND_WORSE = st.one_of(NUMBERS, st.sampled_from([math.nan, math.inf, -math.inf]))


@dataclass(frozen=True)
class Row:
    """One trajectory in plain Python."""

    uid: int
    session: int
    output: int
    rm_scores: list[float]
    mask: list[int]
    advantages: list[float]


@dataclass(frozen=True)
class Sample:
    """A batch and the same in plain Python."""

    batch: Batch
    rows: list[Row]

    def finals(self, uid: int) -> list[Row]:
        """The final outputs of all sessions of a group."""
        sessions: dict[int, Row] = {}
        for row in self.rows:
            if row.uid == uid and (row.session not in sessions or row.output > sessions[row.session].output):
                sessions[row.session] = row
        return list(sessions.values())

    def groups(self) -> list[list[Row]]:
        """The final outputs of all sessions by group, as they stand in the batch."""
        finals = [self.finals(uid) for uid in sorted({row.uid for row in self.rows})]
        return [[row for row in self.rows if any(row is final for final in group)] for group in finals]

    def whole(self, chosen: list[Row]) -> list[bool]:
        """For each row, whether its session is among those of the chosen ones."""
        sessions = {row.session for row in chosen}
        return [row.session in sessions for row in self.rows]

    def reward(self, row: Row) -> float:
        """Reward of a row: all tokens of its session's final output, masked ones included."""
        (final,) = [other for other in self.finals(row.uid) if other.session == row.session]
        return sum(final.rm_scores, start=0.0)


def ragged_lists(values: st.SearchStrategy[float] = NUMBERS_AND_WORSE) -> st.SearchStrategy[list[list[float]]]:
    """Rows of 0 to 4 values, 0 to 6 rows."""
    return st.lists(st.lists(values, max_size=4), max_size=6)


def flatten(rows: list[list[float]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Values `(T,)` float32 and offsets `(N+1,)`."""
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
    return torch.tensor([value for row in rows for value in row], dtype=torch.float32), offsets_of(lengths)


@st.composite
def samples(draw: st.DrawFn, values: st.SearchStrategy[float] = NUMBERS_AND_WORSE, *, most: int = 3) -> Sample:
    """Batches with one-member groups, several outputs a session, empty responses, masks and rows in any order.

    A group has up to `most` sessions.
    """
    keys, session = [], 0
    for uid in range(draw(st.integers(0, 3))):
        for _ in range(draw(st.integers(1, most))):
            keys += [(uid, session, output) for output in range(draw(st.integers(1, 2)))]
            session += 1
    rows = []
    for key in draw(st.permutations(keys)):
        length = draw(st.integers(0, 3))
        tokens = st.lists(values, min_size=length, max_size=length)
        mask = st.lists(st.integers(0, 1), min_size=length, max_size=length)
        rows.append(Row(*key, draw(tokens), draw(mask), draw(tokens)))
    return Sample(to_batch(rows), rows)


def to_batch(rows: list[Row]) -> Batch:
    """The batch of plain rows."""
    scores, offsets = flatten([row.rm_scores for row in rows])
    return Batch.build(
        offsets=offsets,
        uid=torch.tensor([row.uid for row in rows], dtype=torch.int64),
        session=torch.tensor([row.session for row in rows], dtype=torch.int64),
        output=torch.tensor([row.output for row in rows], dtype=torch.int64),
        token_fields={
            "rm_scores": scores,
            "response_mask": torch.tensor([value for row in rows for value in row.mask], dtype=torch.int64),
            "advantages": flatten([row.advantages for row in rows])[0],
        },
    )
