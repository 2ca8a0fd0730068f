"""What holds for every built-in component."""

import inspect
from pathlib import Path

import pytest

from dataflex_events import registry
from dataflex_events.components import parameters
from dataflex_events.handlers import builtin

ROOT = Path(__file__).resolve().parents[2]
COMPONENTS = [
    pytest.param(entry, id=f"{kind} {name}")
    for kind in registry.KINDS
    for name, entry in registry.names(kind).items()
    if name == entry.name and entry.component.__module__.startswith("dataflex_events.handlers.")
]


def test_every_file_is_imported_by_builtin():
    files = {path.stem for path in (ROOT / "handlers").glob("*/*.py")}
    assert files == set(builtin.__all__)


@pytest.mark.parametrize("entry", COMPONENTS)
def test_a_component_stands_in_a_file_of_its_name(entry):
    assert entry.component.__module__.rsplit(".", 1)[1] == entry.name


@pytest.mark.parametrize("entry", COMPONENTS)
def test_every_parameter_is_documented(entry):
    attributes = inspect.getdoc(entry.component).partition("Attributes:")[2]
    assert all(f"    {name}: " in attributes for name in parameters(entry.component))


def test_defaults_are_those_of_the_paper_or_its_authors():
    # Changing one changes the runs of everybody who does not set it: that belongs into the change log.
    defaults = {param.values[0].name: dict(parameters(param.values[0].component)) for param in COMPONENTS}
    assert defaults == {
        "reward": {},
        "group_solve_rate": {"success_threshold": 0.5},
        "advantage_magnitude": {"agg": "mean"},
        "softmax": {"temperature": 1.0},
        "threshold_band": {"low": 0.0, "high": 1.0, "inclusive": False},
        "tensorboard": {"histograms_every": 10},
    }
