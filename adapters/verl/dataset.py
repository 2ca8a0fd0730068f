"""verl's dataset with row numbers, and what its domain column says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch.utils.data import Dataset

from dataflex_events.errors import ConfigError, ConfigIssue, nearest

# The column in which the row of the dataset travels with each trajectory.
ROW_COLUMN = "dataflex_row_id"
_CHUNK = 100_000
_SAMPLED = 256


class RowIds(Dataset[dict[str, Any]]):
    """A dataset whose items know their row. In everything else it is the dataset inside."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def __len__(self) -> int:
        return len(self.inside)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self.inside[row], ROW_COLUMN: int(row)}

    def __getattr__(self, name: str) -> Any:
        # verl's loader would save and restore a dataset that has a state, and copies are made without `inside`.
        if name in ("inside", "state_dict", "load_state_dict") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inside, name)


def domain_codes(dataset: Any, column: str, path: str) -> tuple[tuple[str, ...], np.ndarray]:
    """The domains of a dataset, in the order in which they first appear.

    Args:
        dataset: verl's dataset.
        column: The column with the domain: text, or numbers, which are read as text.
        path: Where the configuration names the column.

    Returns:
        Names, and `(R,)` int32 the place of each row's domain among them; -1 where it is None, NaN or empty.

    Raises:
        ConfigError: There is no such column, or it holds neither text nor numbers.
    """
    names: dict[str, int] = {}
    parts = [np.zeros(0, dtype=np.int32)]
    for values in _column(dataset, column, path):
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if pa.types.is_floating(values.type):
            values = pc.if_else(pc.is_nan(values), None, values)
        if pa.types.is_null(values.type) or pa.types.is_primitive(values.type):
            values = values.cast(pa.string())
        if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
            message = f"is the column {column!r}, whose values are {values.type} and not text"
            raise ConfigError([ConfigIssue(path, message)])
        encoded = pc.dictionary_encode(values)
        found = [-1 if not name else names.setdefault(name, len(names)) for name in encoded.dictionary.to_pylist()]
        lookup = np.array([*found, -1], dtype=np.int32)
        parts.append(lookup[pc.fill_null(encoded.indices, len(found)).to_numpy(zero_copy_only=False)])
    return tuple(names), np.concatenate(parts)


def fingerprint(dataset: Any) -> str:
    """Tells datasets apart whose rows differ in number or order: from the number of rows and a sample of them."""
    digest = hashlib.sha256(str(len(dataset)).encode())
    frame = getattr(dataset, "dataframe", None)
    if frame is not None:
        for row in np.linspace(0, len(frame) - 1, num=min(_SAMPLED, len(frame)), dtype=np.int64):
            digest.update(repr(frame[int(row)]).encode())
    return digest.hexdigest()[:32]


def _column(dataset: Any, column: str, path: str) -> Iterator[Any]:
    """The values of a column, in pieces."""
    frame = getattr(dataset, "dataframe", None)
    if frame is None:  # a dataset of the user's own
        first = dataset[0] if len(dataset) else {}
        _require(column, list(first), path)
        yield pa.array([dataset[row][column] for row in range(len(dataset))])
        return
    _require(column, frame.column_names, path)
    for table in frame.select_columns([column]).with_format("arrow").iter(_CHUNK):
        yield table.column(0).combine_chunks()


def _require(column: str, columns: Sequence[str], path: str) -> None:
    if column not in columns:
        listed = ", ".join(columns)
        hint = nearest(column, columns, listing=False)
        raise ConfigError([ConfigIssue(path, f"the data has no column {column!r}{hint} (it has: {listed})")])
