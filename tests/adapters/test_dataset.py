"""Row numbers and domains of verl's dataset."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest

from dataflex_events import ConfigError
from dataflex_events.adapters.verl import dataset as ours
from dataflex_events.adapters.verl.dataset import ROW_COLUMN, RowIds, domain_codes, fingerprint

PATH = "dataflex.domain_key"


class Items:
    """What verl needs of a dataset."""

    def __init__(self, **columns: list[Any]) -> None:
        self.dataframe = datasets.Dataset.from_dict(columns)

    def __len__(self) -> int:
        return len(self.dataframe)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return dict(self.dataframe[row])


class Own:
    """A dataset of a user's own, without a table."""

    def __init__(self, *domains: Any) -> None:
        self.domains = domains
        self.extra = "mine"

    def __len__(self) -> int:
        return len(self.domains)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"domain": self.domains[row]}

    def state_dict(self) -> dict[str, Any]:
        return {"n": len(self.domains)}


def table(values: Any, kind: pa.DataType | None = None) -> Items:
    """A dataset whose column has this Arrow type."""
    made = Items()
    made.dataframe = datasets.Dataset(pa.table({"domain": pa.array(values, kind)}))
    return made


def test_items_know_their_row_and_the_rest_is_the_dataset_inside():
    rows = RowIds(Own("a", "b"))
    assert len(rows) == 2
    assert rows[1] == {"domain": "b", ROW_COLUMN: 1}
    assert rows[np.int64(0)][ROW_COLUMN] == 0
    assert type(rows[np.int64(0)][ROW_COLUMN]) is int
    assert rows.extra == "mine"


def test_it_has_a_state_where_the_dataset_inside_has_one():
    assert RowIds(Own("a")).state_dict() == {"n": 1}
    assert not hasattr(RowIds(Items(domain=["a"])), "state_dict")


def test_it_can_be_copied_and_sent_to_workers():
    rows = RowIds(Own("a", "b"))
    for made in (pickle.loads(pickle.dumps(rows)), copy.deepcopy(rows)):
        assert made[1] == {"domain": "b", ROW_COLUMN: 1}


@pytest.mark.parametrize(
    ("data", "names", "codes"),
    [
        (Items(domain=["b", "a", "b"]), ("b", "a"), [0, 1, 0]),
        (Items(domain=["b", None, "a", ""]), ("b", "a"), [0, -1, 1, -1]),
        (Items(domain=[3, 1, 3]), ("3", "1"), [0, 1, 0]),
        (Items(domain=[0.5, float("nan"), 0.5]), ("0.5",), [0, -1, 0]),
        (Items(domain=[True, False]), ("true", "false"), [0, 1]),
        (Items(domain=[None, None]), (), [-1, -1]),
        (table(["x", "y", "x"], pa.dictionary(pa.int8(), pa.string())), ("x", "y"), [0, 1, 0]),
        (table(["x", None], pa.large_string()), ("x",), [0, -1]),
        (Own("a", None, "b"), ("a", "b"), [0, -1, 1]),
        (Items(domain=["a/b", "two words", "ümläut 域"]), ("a/b", "two words", "ümläut 域"), [0, 1, 2]),
    ],
)
def test_domains_in_the_order_of_their_first_row(data: Any, names: tuple[str, ...], codes: list[int]):
    found, coded = domain_codes(data, "domain", PATH)
    assert found == names
    assert coded.dtype == np.int32
    assert coded.tolist() == codes


def test_a_table_that_was_filtered_and_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ours, "_CHUNK", 3)
    data = Items(domain=[f"d{row % 4}" for row in range(20)])
    data.dataframe = data.dataframe.filter(lambda row: row["domain"] != "d1").shuffle(seed=0)
    found, coded = domain_codes(data, "domain", PATH)
    assert [found[code] for code in coded] == data.dataframe["domain"][:]
    assert list(found) == list(dict.fromkeys(data.dataframe["domain"][:]))


def test_a_missing_column_is_an_error_that_lists_the_columns():
    with pytest.raises(ConfigError) as refused:
        domain_codes(Items(domian=["a"], prompt=["b"]), "domain", PATH)
    assert (
        "dataflex.domain_key: the data has no column 'domain' (did you mean 'domian'?) (it has: domian, prompt)"
        in str(refused.value)
    )


def test_a_column_of_lists_is_refused():
    with pytest.raises(
        ConfigError, match=r"dataflex.domain_key: is the column 'domain', whose values are list<.*not text"
    ):
        domain_codes(Items(domain=[["a"], ["b"]]), "domain", PATH)


class Repeated(Items):
    """Has each row of its table twice."""

    def __len__(self) -> int:
        return 2 * len(self.dataframe)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return dict(self.dataframe[row % len(self.dataframe)])


def test_a_table_whose_rows_are_not_those_of_the_dataset_is_not_asked():
    assert domain_codes(Repeated(domain=["a", "b"]), "domain", PATH)[1].tolist() == [0, 1, 0, 1]


def test_a_dataset_of_mixed_values():
    assert domain_codes(Own("a", float("nan"), 3, None), "domain", PATH)[0] == ("a", "3")
    with pytest.raises(ConfigError, match=r"is the column 'domain', which has \['a'\] in row 1"):
        domain_codes(Own("a", ["a"]), "domain", PATH)


def test_images_look_the_same_in_every_process():
    """A decoded one is shown with its place in memory."""
    from PIL import Image

    images = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    prints = set()
    for _ in range(2):
        data = Items()
        columns = datasets.Features({"domain": datasets.Value("string"), "image": datasets.Image()})
        data.dataframe = datasets.Dataset.from_dict({"domain": ["a", "b"], "image": images}, features=columns)
        assert data[0]["image"].size == (4, 4), "it is decoded where it is read"
        prints.add(fingerprint(data))
    assert len(prints) == 1


def test_other_data_have_another_fingerprint():
    one = Items(domain=["a", "b", "c"])
    assert fingerprint(one) == fingerprint(Items(domain=["a", "b", "c"]))
    assert fingerprint(RowIds(one)) == fingerprint(one)
    others = [Items(domain=["a", "b"]), Items(domain=["b", "a", "c"]), Items(domain=["a", "b", "c"], more=[1, 2, 3])]
    assert len({fingerprint(one), *map(fingerprint, others)}) == 4
