"""What the built distributions contain."""

from __future__ import annotations

import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from wheelkit import build, clean_copy

SHIPPED = {".py", ".typed", ".yaml"}


@pytest.fixture(scope="module")
def contents(wheel: Path) -> set[str]:
    """Names of the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """The wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def code_in(source: Path) -> set[str]:
    """Every file of the tree that must be installed, under the name that it is installed as."""
    folders = {"dataflex_events": "", "handlers": "dataflex_events/", "adapters": "dataflex_events/"}
    files = [
        (prefix, path) for folder, prefix in folders.items() for path in (source / folder).rglob("*") if path.is_file()
    ]
    return {prefix + path.relative_to(source).as_posix() for prefix, path in files if path.suffix in SHIPPED}


def test_everything_installs_under_one_import_package(contents: set[str]) -> None:
    tops = {name.split("/")[0] for name in contents}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dataflex_events"}


def test_no_module_of_the_tree_is_forgotten_and_none_is_made_up(contents: set[str], wheel: Path) -> None:
    installed = {name for name in contents if ".dist-info/" not in name}
    expected = code_in(wheel.parents[1] / "source")
    assert len(expected) > 40
    missing = sorted(expected - installed)
    assert not missing, f"not in the wheel; is each folder in `packages` of pyproject.toml? {missing}"
    assert sorted(installed - expected) == []


def test_a_folder_that_is_not_in_packages_is_noticed(tmp_path: Path) -> None:
    """The comparison above can fail: a new folder under handlers/ does not ship by itself."""
    source = clean_copy(tmp_path / "source")
    (source / "handlers" / "novel").mkdir()
    (source / "handlers" / "novel" / "thing.py").write_text("")
    with zipfile.ZipFile(build(source, tmp_path / "dist")) as archive:
        assert code_in(source) - set(archive.namelist()) == {"dataflex_events/handlers/novel/thing.py"}


def test_presets_are_there(contents: set[str]) -> None:
    assert {"dataflex_events/presets/dapo_band.yaml", "dataflex_events/presets/pods.yaml"} <= contents


def test_license_and_type_marker_are_there(contents: set[str]) -> None:
    assert "dataflex_events/py.typed" in contents
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in contents)


def test_metadata(metadata: Message) -> None:
    assert metadata["Name"] == "dataflex-verl"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == "<3.13,>=3.10"
    assert metadata.get_all("Provides-Extra") == ["verl", "dev"]
    assert metadata.get_payload()  # the README


def test_the_core_does_not_require_verl(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist", [])
    assert [line for line in required if line.startswith("verl")] == ['verl<0.10,>=0.9.0; extra == "verl"']


def test_the_sdist_builds_the_same_wheel(wheel: Path, contents: set[str], tmp_path: Path) -> None:
    sdist = build(wheel.parents[1] / "source", tmp_path / "sdist", kind="sdist")
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "/tests/" in name]
        archive.extractall(tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(build(unpacked, tmp_path / "dist")) as archive:
        assert set(archive.namelist()) == contents
