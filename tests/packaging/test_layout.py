"""The tree itself: what lets `handlers/` and `adapters/verl/` be folders of the root and part of one import package."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from wheelkit import ROOT, Environment

# Distributions whose import package has another name.
IMPORTED_AS = {"transferqueue": "transfer_queue", "pyyaml": "yaml", "hydra-core": "hydra"}


@pytest.mark.parametrize("folder", ["handlers", "adapters", "adapters/verl"])
def test_root_folders_are_no_packages(folder: str) -> None:
    """With an `__init__.py` a program that starts in the root, or inside `adapters/`, would import these folders as
    top-level packages, in place of AdapterHub's `adapters` and of verl itself."""
    assert (ROOT / folder).is_dir()
    assert not (ROOT / folder / "__init__.py").exists()


def third_party(*folders: str) -> set[str]:
    """Top-level packages that the code imports, the standard library and our own left out."""
    found: set[str] = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found |= {name.split(".")[0] for name in names}
    return found - sys.stdlib_module_names - {"dataflex_events"}


def names(required: list[str], extra: str = "") -> set[str]:
    """Import names of the distributions in a list of requirements."""
    items = [Requirement(line) for line in required]
    kept = {canonicalize_name(item.name) for item in items if not item.marker or item.marker.evaluate({"extra": extra})}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in kept}


@pytest.fixture
def ours(installed: Environment) -> list[str]:
    """What the wheel requires, extras included."""
    (found,) = distributions(name="dataflex-verl", path=[str(installed.site)])
    return found.requires or []


def test_what_the_core_and_the_handlers_import_is_declared(ours: list[str]) -> None:
    imported = third_party("dataflex_events", "handlers")
    assert {"torch", "blinker", "pydantic"} <= imported
    assert sorted(imported - names(ours)) == []


@pytest.mark.verl
def test_what_the_adapter_imports_is_declared_or_comes_with_verl(ours: list[str]) -> None:
    given = names(ours, "verl")
    for distribution in ("verl", "transformers", "accelerate"):
        given |= names(requires(distribution) or [])
    assert sorted(third_party("adapters") - given) == []


PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[\w.]+)( ; python_version (?P<sign><|>=) \"3.11\")?")


def test_constraints_pin_every_direct_dependency_to_an_allowed_version(ours: list[str]) -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins: dict[str, list[str]] = {}
    for line in lines:
        match = PIN.fullmatch(line)
        assert match, f"constraints.txt: {line!r}"
        pins.setdefault(canonicalize_name(match["name"]), []).append(match["version"])
    for line in ours:
        item = Requirement(line)
        assert canonicalize_name(item.name) in pins, f"{item.name} is not pinned"
        for version in pins[canonicalize_name(item.name)]:
            assert item.specifier.contains(version), f"{item.name}=={version} is not {item.specifier}"
