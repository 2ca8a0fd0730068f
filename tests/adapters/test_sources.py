"""Definitions are found in source text: where they are written, inherited or imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataflex_events.adapters.verl.sources import Sources, parameters

FILES = {
    "__init__.py": "from .deep import helper as renamed\n",
    "deep/__init__.py": "from .inner import helper\n",
    "deep/inner.py": "def helper(a, *, b=1): ...\n",
    "base.py": """
class Mixin:
    def mixed(self): ...

class Base:
    declared: int
    def __init__(self, config):
        self.made = 1
        config.other = 2
    def kept(self, batch, metrics, prefix="x", *args, **kwargs): ...
    def changed(self, batch): ...
    @staticmethod
    def free(a, b): ...
""",
    "child.py": """
try:
    from pkg.base import Base, Mixin
except ImportError:
    Base = object

class Child(Mixin, Base):
    async def changed(self, batch, extra): ...

class Loop(Loop): ...
TABLE: dict = {}
TEXT = "a key"
""",
    "broken.py": "def (",
}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return Sources({"pkg": tmp_path})


@pytest.mark.parametrize(
    ("module", "name", "takes"),
    [
        ("pkg.child", "Child.changed", ["batch", "extra"]),
        ("pkg.child", "Child.kept", ["batch", "metrics", "prefix=", "*args", "**kwargs"]),
        ("pkg.child", "Child.mixed", []),
        ("pkg.child", "Child.__init__", ["config"]),
        ("pkg.child", "Child.free", ["a", "b"]),
        ("pkg", "renamed", ["a", "b="]),
        ("pkg.deep", "helper", ["a", "b="]),
    ],
)
def test_parameters(sources: Sources, module: str, name: str, takes: list[str]) -> None:
    found = sources.find(module, name)
    assert found is not None and parameters(found) == takes


@pytest.mark.parametrize("name", ["Child", "Child.made", "Child.declared", "TABLE", "TEXT"])
def test_what_is_no_function_has_no_parameters(sources: Sources, name: str) -> None:
    found = sources.find("pkg.child", name)
    assert found is not None and parameters(found) is None


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("pkg.child", "Child.other"),  # set on another object
        ("pkg.child", "Child.missing"),
        ("pkg.child", "Loop.missing"),  # derives from itself
        ("pkg.child", "TABLE.member"),
        ("pkg.child", "missing"),
        ("pkg.missing", "Child"),
        ("pkg.broken", "Child"),
        ("unknown.child", "Child"),
    ],
)
def test_what_is_not_there_is_not_found(sources: Sources, module: str, name: str) -> None:
    assert sources.find(module, name) is None


def test_texts(sources: Sources) -> None:
    assert sources.has_text("pkg.child", "a key")
    assert not sources.has_text("pkg.child", "key")
    assert not sources.has_text("pkg.missing", "a key")
