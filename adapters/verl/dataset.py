"""verl's dataset with row numbers, and what its domain column says."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch.utils.data import Dataset

from dataflex_events.errors import ConfigError, ConfigIssue, nearest

# The column in which the row of the dataset travels with each trajectory.
ROW_COLUMN = "dataflex_row_id"
_CHUNK = 100_000
_SAMPLED = 256
_SHOWN = 5


class RowIds(Dataset[dict[str, Any]]):
    """A dataset whose items know their row. What else it has is that of the dataset inside, special methods aside."""

    def __init__(self, inside: Any) -> None:
        self.inside = inside

    def __len__(self) -> int:
        return len(self.inside)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {**self.inside[row], ROW_COLUMN: int(row)}

    def __getattr__(self, name: str) -> Any:
        if name == "inside" or name.startswith("__"):  # copies and pickles ask before there is anything inside
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


def numbers(dataset: Any, column: str, path: str, needed: np.ndarray | None = None) -> np.ndarray:
    """The numbers in a column of a dataset.

    Args:
        dataset: verl's dataset.
        column: The column.
        path: Where the configuration names it.
        needed: `(R,)` bool, rows that must have a number; by default all.

    Returns:
        `(R,)` float64, finite where it is needed.

    Raises:
        ConfigError: There is no such column, or it holds something else; the first such rows are named.
    """
    parts = [np.zeros(0)]
    for values in _column(dataset, column, path):
        try:
            found = values.cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ConfigError([ConfigIssue(path, f"is the column {column!r}, which has no numbers: {error}")]) from None
        parts.append(found.fill_null(np.nan).to_numpy(zero_copy_only=False))
    read = np.concatenate(parts)
    wrong = np.flatnonzero(~np.isfinite(read) if needed is None else needed & ~np.isfinite(read))
    if len(wrong):
        rows = ", ".join(map(str, wrong[:_SHOWN])) + (", ..." if len(wrong) > _SHOWN else "")
        message = (
            f"is the column {column!r}, and {len(wrong)} of {len(read)} rows have no finite number there (row {rows})"
        )
        raise ConfigError([ConfigIssue(path, message)])
    return read


def fingerprint(dataset: Any) -> str:
    """Tells datasets apart whose rows differ in number or order: from the number of rows and a sample of them.

    Nothing is known of the rows of a dataset that is no table.
    """
    digest = hashlib.sha256(str(len(dataset)).encode())
    table = _table(dataset)
    if table is not None and len(table):
        rows = np.linspace(0, len(table) - 1, num=min(_SAMPLED, len(table)), dtype=np.int64)
        # As it is stored: a decoded image, for example, does not look the same twice.
        digest.update(repr(table.with_format("arrow")[rows].to_pylist()).encode())
    return digest.hexdigest()[:32]


def _table(dataset: Any) -> datasets.Dataset | None:
    """The table behind verl's dataset; None for a user's own dataset that has none, or whose rows are not its rows."""
    table = getattr(dataset, "dataframe", None)
    return table if isinstance(table, datasets.Dataset) and len(table) == len(dataset) else None


def _column(dataset: Any, column: str, path: str) -> Iterator[Any]:
    """The values of a column, in pieces."""
    table = _table(dataset)
    if table is not None:
        _require(column, table.column_names, path)
        for part in table.select_columns([column]).with_format("arrow").iter(_CHUNK):
            yield part.column(0).combine_chunks()
        return
    values: list[str | None] = []
    for row in range(len(dataset)):
        item = dataset[row]
        _require(column, list(item), path)
        value = item[column]
        if value is not None and not isinstance(value, str | bool | int | float | np.integer | np.floating):
            raise ConfigError([ConfigIssue(path, f"is the column {column!r}, which has {value!r} in row {row}")])
        values.append(None if value is None or value != value else str(value))
    yield pa.array(values, pa.string())


def _require(column: str, columns: Sequence[str], path: str) -> None:
    if column not in columns:
        listed = ", ".join(columns)
        hint = nearest(column, columns, listing=False)
        raise ConfigError([ConfigIssue(path, f"the data has no column {column!r}{hint} (it has: {listed})")])
