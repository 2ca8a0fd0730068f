"""For tests of handlers: a batch from a few lists, and a recorder of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.bus import Attachment, EventBus
from dataflex_events.events import (
    AdvantageComputed,
    BufferSample,
    Event,
    GroupsFinished,
    RolloutDone,
    RunEnd,
    RunStart,
    ScoreReady,
    StepEnd,
)
from dataflex_events.fields import OUTCOME, TOKEN_FIELDS
from dataflex_events.segments import offsets_of, spread

ALL_EVENTS: tuple[type[Event], ...] = (
    RunStart,
    BufferSample,
    GroupsFinished,
    RolloutDone,
    ScoreReady,
    AdvantageComputed,
    StepEnd,
    RunEnd,
)


def make_batch(
    rewards: Sequence[Sequence[float]],
    *,
    lengths: Sequence[int] | None = None,
    mask: Sequence[Sequence[int]] | None = None,
    domains: Sequence[str] | None = None,
    tokens: Mapping[str, Sequence[Sequence[float]]] | None = None,
    sessions: Sequence[int] | None = None,
    outcomes: Mapping[str, Sequence[Sequence[float]]] | None = None,
    row_ids: Sequence[int] | None = None,
) -> Batch:
    """Make a batch from the rewards of its groups.

    Args:
        rewards: One list a group, one reward a rollout. Each reward sits on its rollout's last token.
        lengths: Tokens of each rollout, in order; 3 each by default. A rollout without tokens must have reward 0.
        mask: `response_mask` of each rollout; all 1 by default.
        domains: The domain of each group.
        tokens: Further token fields, one list of values a rollout. A field `advantages` is made if there is none: the
            rollout's reward minus the mean of its group.
        sessions: Session number of each rollout within its group; all different by default. Rollouts of one session
            are its outputs in order.
        outcomes: Values that the reward function returned beside the score, in the form of `rewards`; the batch has
            them as `outcome/NAME`.
        row_ids: The row of the dataset of each group; by default groups are rows 0, 1, 2, ...

    Raises:
        ValueError: The lists do not fit together.

    Example:
        >>> make_batch([[1, 0], [1, 1]])["reward"].tolist()
        [1.0, 0.0, 1.0, 1.0]
    """
    flat = torch.tensor([value for group in rewards for value in group], dtype=torch.float32)
    rows = len(flat)
    uid = torch.tensor([code for code, group in enumerate(rewards) for _ in group], dtype=torch.int64)
    length = torch.full((rows,), 3) if lengths is None else torch.tensor(lengths, dtype=torch.int64)
    offsets = offsets_of(length)
    session, output = _sessions(uid, sessions)
    scores = torch.zeros(int(offsets[-1]))
    filled = length > 0
    if flat[~filled].any():
        raise ValueError("a rollout without tokens has nowhere to carry a reward other than 0")
    scores[offsets[1:][filled] - 1] = flat[filled]
    fields: dict[str, Tensor] = {
        "rm_scores": scores,
        "response_mask": torch.ones(len(scores), dtype=torch.int64),
    }
    if mask is not None:
        fields["response_mask"] = _flat("mask", mask, length).to(torch.int64)
    for name, values in (tokens or {}).items():
        fields[name] = _flat(name, values, length)
    if "advantages" not in fields:
        means = torch.stack([flat[uid == code].mean() for code in range(len(rewards))]) if rows else flat
        fields["advantages"] = spread(flat - means[uid], offsets) * fields["response_mask"]
    unknown = fields.keys() - TOKEN_FIELDS.keys()
    if unknown:
        raise ValueError(f"not token fields: {', '.join(sorted(unknown))}")
    if domains is not None and len(domains) != len(rewards):
        raise ValueError(f"{len(domains)} domains for {len(rewards)} groups")
    outcome_fields = {
        f"{OUTCOME}{name}": torch.tensor([value for group in groups for value in group], dtype=torch.float32)
        for name, groups in (outcomes or {}).items()
    }
    row_of = torch.arange(len(rewards)) if row_ids is None else torch.tensor(row_ids, dtype=torch.int64)
    if len(row_of) != len(rewards):
        raise ValueError(f"{len(row_of)} dataset rows for {len(rewards)} groups")
    names = tuple(dict.fromkeys(domains or ()))
    codes = torch.tensor([names.index(name) for name in domains or ()], dtype=torch.int64)
    return Batch.build(
        offsets=offsets,
        uid=uid,
        session=session,
        output=output,
        token_fields=fields,
        row_fields={"row_id": row_of[uid], **({"domain": codes[uid]} if domains else {}), **outcome_fields},
        domains=names,
    )


class Recorder:
    """Remembers every event of the given classes.

    Attributes:
        events: What was published, in order.
    """

    def __init__(self, bus: EventBus, *event_types: type[Event]) -> None:
        self.events: list[Event] = []
        owner = Attachment()
        for event_type in event_types or ALL_EVENTS:
            bus.subscribe(event_type, self.events.append, name="recorder", owner=owner)

    @property
    def names(self) -> list[str]:
        """Class names of the events, in order."""
        return [type(event).__name__ for event in self.events]


def _flat(name: str, rows: Sequence[Sequence[float]], lengths: Tensor) -> Tensor:
    given = [len(row) for row in rows]
    if given != lengths.tolist():
        raise ValueError(f"{name!r} has rows of {given} tokens, the rollouts have {lengths.tolist()}")
    return torch.tensor([value for row in rows for value in row], dtype=torch.float32)


def _sessions(uid: Tensor, sessions: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    if sessions is None:
        return torch.arange(len(uid)), torch.zeros(len(uid), dtype=torch.int64)
    seen: dict[tuple[int, int], int] = {}
    codes: dict[tuple[int, int], int] = {}
    session, output = [], []
    for key in zip(uid.tolist(), sessions, strict=True):
        session.append(codes.setdefault(key, len(codes)))
        output.append(seen.get(key, 0))
        seen[key] = output[-1] + 1
    return torch.tensor(session, dtype=torch.int64), torch.tensor(output, dtype=torch.int64)
