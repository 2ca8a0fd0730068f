"""The batch fields that a handler can declare, and the first event at which each exists.

Names are verl's column names. What exists at `rollout_done` exists at `groups_finished` as well, which comes before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

Moment = Literal["rollout_done", "advantage_computed"]

# One value a response token, (T,).
TOKEN_FIELDS: dict[str, Moment] = {
    "response_mask": "rollout_done",
    "rm_scores": "rollout_done",
    "rollout_log_probs": "rollout_done",
    "old_log_probs": "advantage_computed",
    "ref_log_prob": "advantage_computed",
    "entropy": "advantage_computed",
    "values": "advantage_computed",
    "advantages": "advantage_computed",
    "returns": "advantage_computed",
    "rollout_is_weights": "advantage_computed",
}

# One value a row, (N,). `row_id` is the row of the dataset.
ROW_FIELDS: dict[str, Moment] = {
    "reward": "rollout_done",
    "domain": "rollout_done",
    "row_id": "rollout_done",
}

FIELDS: dict[str, Moment] = TOKEN_FIELDS | ROW_FIELDS

# `outcome/NAME` is the value NAME that the reward function returned beside the score, (N,).
OUTCOME = "outcome/"

# Attributes of every batch; they need no declaration.
ALWAYS = ("last_output", "length", "session", "uid")


def moment(field: str) -> Moment | None:
    """The first event at which a field exists, or None if no run has such a field."""
    return "rollout_done" if is_outcome(field) else FIELDS.get(field)


def is_outcome(field: str) -> bool:
    """True for the name of a value that the reward function returned beside the score."""
    return field.startswith(OUTCOME) and len(field) > len(OUTCOME)


def first_moment(fields: Iterable[str]) -> Moment:
    """The first event at which all of `fields` exist."""
    late = any(moment(name) == "advantage_computed" for name in fields)
    return "advantage_computed" if late else "rollout_done"
