"""A read-only, ragged view of one set of trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dataflex_events.errors import FieldError, nearest
from dataflex_events.fields import ALWAYS, FIELDS
from dataflex_events.segments import segment_reduce, take_rows


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """N trajectories (rows) with T response tokens in all. Padding rows are never part of it.

    Read fields by name: `batch["advantages"]` is `(T,)`, `batch["reward"]` is `(N,)`.

    Attributes:
        offsets: `(N+1,)` int64; row `i` owns the tokens `offsets[i]:offsets[i+1]`.
        uid: `(N,)` int64 code of the row's group: the rollouts of one prompt share it. Codes are `0..G-1`.
        session: `(N,)` int64 code of the row's session. A session with several outputs has several rows.
        last_output: `(N,)` bool, true for the row that holds its session's final output. Count a reward there only.
        domains: Names behind the codes in `batch["domain"]`.
    """

    offsets: Tensor
    uid: Tensor
    session: Tensor
    last_output: Tensor
    domains: tuple[str, ...]
    _tokens: Mapping[str, Tensor]
    _rows: Mapping[str, Tensor]
    _declared: frozenset[str] | None = None
    _reader: str = ""

    @classmethod
    def build(
        cls,
        *,
        offsets: Tensor,
        uid: Tensor,
        session: Tensor,
        output: Tensor,
        token_fields: Mapping[str, Tensor],
        row_fields: Mapping[str, Tensor] | None = None,
        domains: Iterable[str] = (),
    ) -> Batch:
        """Make a batch and derive `reward` from `rm_scores`.

        Args:
            offsets: `(N+1,)` int64.
            uid: `(N,)` int64 group codes, `0..G-1`.
            session: `(N,)` int64 session codes, `0..S-1`, unique over the batch.
            output: `(N,)` int64 position of the row among its session's outputs; the highest is the final one.
            token_fields: Field name to `(T,)` tensor. With `rm_scores` given, the row field `reward` is added: the sum
                over all tokens of the final output of the row's session (a reward on a masked token counts).
            row_fields: Field name to `(N,)` tensor.
            domains: Names behind the codes of the row field `domain`.

        Raises:
            FieldError: A field has the wrong length.
        """
        rows = dict(row_fields or {})
        count = len(offsets) - 1
        _check_length(int(offsets[-1]), token_fields)
        _check_length(count, {"uid": uid, "session": session, "output": output, **rows})
        last = _last_of_session(session, output)
        if "rm_scores" in token_fields:
            own = segment_reduce(token_fields["rm_scores"], offsets, "sum")
            rows["reward"] = _final_of_session(own, session, last)
        return cls(offsets, uid, session, last, tuple(domains), dict(token_fields), rows)

    def __len__(self) -> int:
        """Number of rows N."""
        return len(self.uid)

    @property
    def tokens(self) -> int:
        """Number of response tokens T."""
        return int(self.offsets[-1])

    @property
    def groups(self) -> int:
        """Number of groups G."""
        return int(self.uid.max()) + 1 if len(self) else 0

    @property
    def length(self) -> Tensor:
        """`(N,)` int64 response length in tokens."""
        return self.offsets.diff()

    @property
    def available(self) -> frozenset[str]:
        """Names of the fields that this batch holds and this reader may read."""
        names = self._rows.keys() | self._tokens.keys()
        return frozenset(names if self._declared is None else names & self._declared)

    def __contains__(self, name: str) -> bool:
        return name in self.available

    def __getitem__(self, name: str) -> Tensor:
        """The field as `(T,)` or `(N,)` tensor. Do not write into it.

        Raises:
            FieldError: The reader did not declare the field, or this run does not have it.
        """
        reader = f"handler {self._reader!r}" if self._reader else "the reader"
        if name in ALWAYS:
            raise FieldError(f"{reader} reads {name!r} as a field; it is an attribute, `batch.{name}`")
        if self._declared is not None and name not in self._declared:
            declared = ", ".join(sorted(self._declared)) or "none"
            raise FieldError(
                f"{reader} reads the field {name!r} without declaring it (declared: {declared})"
                f"{nearest(name, FIELDS) if name not in FIELDS else ''}"
            )
        column = self._rows.get(name, self._tokens.get(name))
        if column is None:
            held = ", ".join(sorted(self._rows.keys() | self._tokens.keys())) or "none"
            raise FieldError(f"{reader} needs the field {name!r}, which this run does not have here (it has: {held})")
        return column

    def only(self, fields: Iterable[str], reader: str) -> Batch:
        """The same batch for a reader that declared `fields`; reading another one is an error that names both."""
        return replace(self, _declared=frozenset(fields), _reader=reader)

    def take(self, rows: Tensor) -> Batch:
        """The batch of the given rows `(M,)` int64, in that order. Group and session codes are made dense again."""
        tokens, offsets = take_rows(self.offsets, rows)
        return replace(
            self,
            offsets=offsets,
            uid=_dense(self.uid[rows]),
            session=_dense(self.session[rows]),
            last_output=self.last_output[rows],
            _tokens={name: column[tokens] for name, column in self._tokens.items()},
            _rows={name: column[rows] for name, column in self._rows.items()},
        )


def _dense(codes: Tensor) -> Tensor:
    dense: Tensor = torch.unique(codes, return_inverse=True)[1]
    return dense


def _check_length(length: int, columns: Mapping[str, Tensor]) -> None:
    for name, column in columns.items():
        if column.shape != (length,):
            raise FieldError(f"field {name!r} has shape {tuple(column.shape)}, expected ({length},)")


def _last_of_session(session: Tensor, output: Tensor) -> Tensor:
    if not len(session):
        return torch.zeros(0, dtype=torch.bool, device=session.device)
    final = output.new_full((int(session.max()) + 1,), -1).scatter_reduce(0, session, output, "amax")
    return output == final[session]


def _final_of_session(rows: Tensor, session: Tensor, last: Tensor) -> Tensor:
    """Give every output of a session the value of its final output."""
    if not len(rows):
        return rows
    by_session = rows.new_zeros(int(session.max()) + 1)
    by_session[session[last]] = rows[last]
    return by_session[session]
