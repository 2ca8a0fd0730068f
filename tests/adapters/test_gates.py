"""What a gate needs of verl's dataset, and what is said where it has none or cannot act."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pytest
from drawtrainer import Data

from dataflex_events import ConfigError
from dataflex_events.adapters.verl import dataset as ours
from dataflex_events.adapters.verl.dataset import RowIds, numbers
from dataflex_events.adapters.verl.gates import begin_gate, warn_if_seen_once, whole_dataset
from dataflex_events.gating import GatePolicy
from dataflex_events.plan import make_plan

NAN, INF = float("nan"), float("inf")
PATH = "dataflex.actuator.params.column"


class Own:
    """A dataset of a user's own, without a table."""

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"difficulty": self.values[row]}


def stored(values: Any) -> Data:
    """A dataset whose column has this Arrow type."""
    data = Data()
    data.dataframe = datasets.Dataset(pa.table({"difficulty": values}))
    return data


def policy(name: str, **params: Any) -> GatePolicy:
    made = make_plan({"mechanism": "gate", "actuator": {"name": name, "params": params}}).gate
    assert made is not None
    return made


def refusal(data: Any, column: str = "difficulty") -> str:
    with pytest.raises(ConfigError) as refused:
        numbers(data, column, PATH)
    (issue,) = refused.value.issues
    assert issue.path == PATH
    return issue.message


# ------------------------------------------------------------------ columns


@pytest.mark.parametrize(
    "data",
    [
        Data(difficulty=[3, 1, 2]),
        Data(difficulty=[3.0, 1.0, 2.0]),
        Data(difficulty=["3", "1.0", "2e0"]),
        stored(pa.array([3, 1, 2], pa.int8())),
        stored(pa.array([3, 1, 2], pa.float32())),
        stored(pa.array(["3", "1", "2"]).dictionary_encode()),
        Own(3, 1.0, "2"),
        Own(np.int64(3), np.float32(1), np.float64(2)),
        RowIds(Data(difficulty=[3, 1, 2])),
    ],
)
def test_numbers_are_read_as_they_are_in_the_order_of_the_rows(data: Any):
    read = numbers(data, "difficulty", PATH)
    assert read.dtype == np.float64
    assert read.tolist() == [3.0, 1.0, 2.0]


def test_a_long_table_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ours, "_CHUNK", 3)
    assert numbers(Data(difficulty=list(range(10))), "difficulty", PATH).tolist() == list(map(float, range(10)))


def test_a_missing_column_lists_those_that_there_are():
    assert refusal(Data(dificulty=[1], prompt=["a"])) == (
        "the data has no column 'difficulty' (did you mean 'dificulty'?) (it has: dificulty, prompt)"
    )
    assert refusal(Own(1), "level") == "the data has no column 'level' (it has: difficulty)"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (Data(difficulty=[1.0, None, 2.0, NAN, INF]), "3 of 5 rows have no finite number there (row 1, 3, 4)"),
        (Data(difficulty=[1, None]), "1 of 2 rows have no finite number there (row 1)"),
        (Data(difficulty=[None, None]), "2 of 2 rows have no finite number there (row 0, 1)"),
        (Data(difficulty=[None] * 7 + [1]), "7 of 8 rows have no finite number there (row 0, 1, 2, 3, 4, ...)"),
        (Own(None, 1, -INF, NAN), "3 of 4 rows have no finite number there (row 0, 2, 3)"),
    ],
)
def test_rows_without_a_finite_number_are_named(data: Any, said: str):
    assert refusal(data) == f"is the column 'difficulty', and {said}"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (Data(difficulty=["1", "easy"]), "which has no numbers: Failed to parse string: 'easy'"),
        (Data(difficulty=[[1], [2]]), "which has no numbers: Unsupported cast from list"),
        (Data(difficulty=[{"level": 1}]), "which has no numbers: Unsupported cast from struct"),
        (Own(1, "hard"), "which has no numbers: Failed to parse string: 'hard'"),
        (Own(1, [2]), "which has [2] in row 1"),
    ],
)
def test_what_is_no_number_is_refused(data: Any, said: str):
    assert refusal(data).startswith(f"is the column 'difficulty', {said}")


# ------------------------------------------------------------------ the gate


def test_all_rows_are_one_domain():
    table = whole_dataset(5)
    assert table.names == ("all",)
    assert table.rows.tolist() == [0, 1, 2, 3, 4]
    assert table.sizes.tolist() == [5]
    assert table.codes.tolist() == [0] * 5


def test_a_gate_learns_the_rows_and_its_column():
    adarft = policy("adarft", column="difficulty", start=30)
    begin_gate(adarft, Data(difficulty=[10, 20, 25, 5]), whole_dataset(4))
    assert len(adarft.stats) == 4
    assert adarft.gate.difficulty == 25.0, "the highest there is"


def test_a_gate_without_columns_does_not_look_at_the_data():
    mopps = policy("mopps")
    begin_gate(mopps, object(), whole_dataset(4))
    assert mopps.stats.look([3]).visits.tolist() == [0]


@pytest.mark.parametrize("many", [False, True])
def test_mistakes_have_the_path_of_the_policy(many: bool):
    block = {"mechanism": "gate", "actuator": {"name": "adarft", "params": {"column": "level"}}}
    band = {"mechanism": "select", "scorer": {"name": "reward"}, "actuator": {"name": "threshold_band"}}
    adarft = make_plan({"policies": [band, block]} if many else block).gate
    assert adarft is not None
    with pytest.raises(ConfigError) as refused:
        begin_gate(adarft, Data(difficulty=[1]), whole_dataset(1))
    where = "dataflex.policies[1]" if many else "dataflex"
    assert [issue.path for issue in refused.value.issues] == [f"{where}.actuator.params.column"]


def test_what_the_gate_itself_refuses_is_about_its_parameters(monkeypatch: pytest.MonkeyPatch):
    greso = policy("greso")

    def refuse(*_: Any) -> None:
        raise ValueError("it was a Tuesday")

    monkeypatch.setattr(type(greso.gate), "begin", refuse)
    with pytest.raises(ConfigError, match=r"dataflex.actuator.params: it was a Tuesday"):
        begin_gate(greso, Data(difficulty=[1]), whole_dataset(1))


# ------------------------------------------------------------------ data that are seen once


@pytest.mark.parametrize(
    ("name", "params", "prompts", "warned"),
    [
        ("greso", {}, 100, True),
        ("greso", {}, 101, False),
        ("mopps", {}, 12, True),  # 8 candidates for each: 96
        ("mopps", {}, 13, False),  # 104
        ("mopps", {"candidates": 1}, 100, True),
        ("mopps", {"candidates": 1}, 101, False),
        ("learnability", {}, 100, True),
        ("difficulty_pools", {}, 101, False),
        ("adarft", {"column": "difficulty"}, 1, False),
    ],
)
def test_only_a_run_that_meets_no_prompt_twice_is_warned(
    name: str, params: dict[str, Any], prompts: int, warned: bool, caplog: pytest.LogCaptureFixture
):
    made, table = policy(name, **params), whole_dataset(100)
    begin_gate(made, Data(difficulty=[float(row) for row in range(100)]), table)
    warn_if_seen_once(made, table, prompts)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * warned
    if warned:
        looks = " and looks at 8 for each" if name == "mopps" and not params else ""
        said = (
            f"cannot act: the run draws {prompts} prompts{looks}, and the data has 100, so hardly any comes up twice; "
        )
        assert caplog.records[0].getMessage().startswith(f"the gate {name!r} {said}")
