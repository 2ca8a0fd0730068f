"""What all tests share: the built wheel, and an honest account of what was left out."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from wheelkit import Environment, build, clean_copy

HERE = Path(__file__).parent
NEED_VERL = ("adapters", "cpu", "e2e")
HEAVY = ("ray", "verl", "e2e")
HAS_VERL = find_spec("verl") is not None

_left_out: dict[str, int] = {}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the folders whose modules import verl, where it is not installed."""
    if HAS_VERL or collection_path.parent != HERE or collection_path.name not in NEED_VERL:
        return None
    files = len(list(collection_path.rglob("test_*.py")))
    if files:
        _left_out[f"tests/{collection_path.name} ({files} files)"] = files
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out single tests that start Ray or verl, where verl is not installed."""
    if HAS_VERL:
        return
    heavy = [item for item in items if any(item.get_closest_marker(name) for name in HEAVY)]
    if heavy:
        _left_out[f"{len(heavy)} tests marked ray, verl or e2e elsewhere"] = len(heavy)
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item not in heavy]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, so that a green run does not claim more than it checked."""
    if _left_out:
        terminalreporter.section("NOT RUN: verl is not installed", sep="=", yellow=True, bold=True)
        for what in _left_out:
            terminalreporter.line(f"  {what}")
        terminalreporter.line("To run everything: pip install -c constraints.txt '.[verl,dev]' && pytest")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a clean copy of the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    return build(clean_copy(folder / "source"), folder / "dist")


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A virtual environment with the wheel installed."""
    return Environment(tmp_path_factory.mktemp("installed") / "venv", wheel)
