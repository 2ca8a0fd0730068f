"""Stand-ins for a verl that is not the one we know."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakeverl import FakeVerl

from dataflex_events.adapters.verl import contract
from dataflex_events.adapters.verl.installed import Package, find_package

# How verl's own `__init__` ends: it loads plugins and hides their errors.
LOADS_PLUGINS = """
from importlib.metadata import entry_points
for point in entry_points(group="verl.plugins"):
    try:
        point.load()
    except Exception:
        pass
"""


@pytest.fixture
def fake_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeVerl]:
    """Makes a package `verl` that is imported in place of the real one until the end of the test."""

    def make(version: str, init: str = "", **files: str) -> Path:
        folder = tmp_path / "site" / "verl"
        (folder / "version").mkdir(parents=True)
        (folder / "__init__.py").write_text(init)
        (folder / "version" / "version").write_text(f"{version}\n")
        for name, text in files.items():
            (folder / f"{name}.py").write_text(text)
        for name in [name for name in sys.modules if name.split(".")[0] == "verl"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(str(folder.parent))
        return folder

    yield make
    # monkeypatch puts the real modules back, and knows nothing of those that only the stand-in has
    for name in [name for name in sys.modules if name.split(".")[0] == "verl"]:
        del sys.modules[name]


@pytest.fixture
def changed_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    """Makes the contract check see a copy of verl's source with a text replaced."""
    real, folder = find_package("verl"), tmp_path / "verl"
    assert real is not None
    shutil.copytree(real.folder, folder, ignore=shutil.ignore_patterns("__pycache__", "*.yaml", "*.json"))
    monkeypatch.setattr(
        contract,
        "find_package",
        lambda name: Package(folder, real.version) if name == "verl" else find_package(name),
    )

    def change(file: str, before: str, after: str) -> None:
        text = (folder / file).read_text()
        assert text.count(before) == 1
        (folder / file).write_text(text.replace(before, after))
        contract._findings.cache_clear()

    yield change
    contract._findings.cache_clear()
