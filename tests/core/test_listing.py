"""`dataflex-events list`: every component, and the page of one."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import Field
from torch import Tensor

from dataflex_events import Batch, Scorer, cli, listing, registry


@pytest.fixture
def hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def every_label() -> list[tuple[str, str]]:
    return [(kind, label) for kind in registry.KINDS for label in registry.names(kind)]


@pytest.mark.usefixtures("hundred_columns")
def test_list_shows_every_component_in_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    for _, label in every_label():
        assert label in shown
    assert (
        "  threshold_band(low=0.0, high=1.0, inclusive=False)  also: difficulty_filtering (low=0.2, high=0.8)\n"
        "      Keep rows whose score lies between two bounds.\n"
    ) in shown
    assert "not documented" not in shown


@pytest.mark.usefixtures("hundred_columns")
@pytest.mark.parametrize(("kind", "label"), every_label())
def test_every_name_has_a_page_with_all_its_parameters(kind: str, label: str) -> None:
    entry = registry.find(kind, label)
    shown = listing.page(label)
    assert f"{entry.name} ({kind})" in shown
    assert "not documented" not in shown
    for line in shown.splitlines():
        assert len(line) <= 100 or " " not in line.strip() or "params:" in line
    described = shown.split("Parameters:")[-1].splitlines()
    for name in listing.parameters_of(entry.component):
        position = next(i for i, line in enumerate(described) if line.startswith(f"  {name} ("))
        assert described[position + 1].startswith("      "), f"{label}: parameter {name} has no description"


def test_a_page() -> None:
    assert cli.main(["list", "difficulty_filtering"]) == 0
    assert listing.page("difficulty_filtering") == listing.page("threshold_band")
    shown = listing.page("softmax")
    assert "  temperature (float, > 0), default 1.0\n      Lower is sharper" in shown
    assert "  mechanism: reweight\n  actuator: {name: softmax, params: {temperature: 1.0}}" in shown
    assert "agg ('mean' | 'sum' | 'max'), default 'mean'" in listing.page("advantage_magnitude")
    assert "Reads the batch fields: advantages, response_mask" in listing.page("advantage_magnitude")
    assert "adaptive_k (tuple[int, int, int, int]), default (8, 8, 6, 4)" in listing.page("gfpo")


def test_the_page_of_a_component_whose_fields_depend_on_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Reads the batch fields: reward (with other parameters others)" in listing.page("group_solve_rate")
    module: Any = ModuleType("my_package")
    module.Column = Column
    monkeypatch.setitem(sys.modules, "my_package", module)
    assert "Reads the batch fields: as its parameters say (column)" in listing.page("my_package:Column")


@dataclass
class Undocumented(Scorer):
    fields: ClassVar[tuple[str, ...]] = ()

    column: str
    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    names: tuple[str, ...] = ("a", "yes")

    def score(self, batch: Batch) -> Tensor:
        raise NotImplementedError


@dataclass
class Column(Scorer):
    """Scores by a column."""

    column: str

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        return (f"outcome/{self.column}",)

    def score(self, batch: Batch) -> Tensor:
        raise NotImplementedError


def test_the_page_of_a_component_of_your_own(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("my_package")
    module.Undocumented = Undocumented
    monkeypatch.setitem(sys.modules, "my_package", module)
    shown = listing.page("my_package:Undocumented")
    assert "(not documented)" in shown
    assert "  column (str), required\n  share (float, >= 0, <= 1), default 0.5\n" in shown
    call = "{name: 'my_package:Undocumented', params: {column: <column>, share: 0.5, names: [a, 'yes']}}"
    assert f"  scorer: {call}" in shown


def test_an_unknown_component_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "treshold_band"]) == 1
    message = "dataflex-events: unknown component 'treshold_band' (did you mean 'threshold_band'?)\n"
    assert capsys.readouterr().err == message
