"""What all tests share: the built wheel, and an honest account of what was left out."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from wheelkit import Environment, build, clean_copy

HERE = Path(__file__).parent
NEED_VERL = ("adapters", "cpu", "e2e")
HEAVY = ("ray", "verl", "e2e")
# Files with whole verl runs that share runs with each other, and not with the other files: they run beside those.
SECOND_GROUP = (
    "test_bad_numbers",
    "test_critic",
    "test_mix_far_end",
    "test_mix_resume",
    "test_off",
    "test_policy_losses",
    "test_refusals",
    "test_ways_far_end",
    "test_weights_far_end",
)
HAS_VERL = getattr(find_spec("verl"), "origin", None) is not None  # a mere folder of that name has no origin

_left_out: Counter[str] = Counter()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders whose modules import verl, where it is not installed."""
    folder = next((HERE / name for name in NEED_VERL if collection_path.is_relative_to(HERE / name)), None)
    if HAS_VERL or folder is None:
        return None
    asked = [(config.invocation_params.dir / arg.split("::")[0]).resolve() for arg in config.args]
    if any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in asked):
        files = [collection_path] if collection_path.is_file() else collection_path.rglob("*")
        _left_out[f"test files in tests/{folder.name}"] += sum(file.match("test_*.py") for file in files)
    return True


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under pytest-xdist make whole verl runs in two groups, each on one worker: files of a group share runs.

    Leave out single tests that start Ray or verl, where verl is not installed.
    """
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if item.get_closest_marker("e2e"):
                group = "runs-2" if item.path.stem in SECOND_GROUP else "runs-1"
                item.add_marker(pytest.mark.xdist_group(group))
    if HAS_VERL:
        return
    heavy = [item for item in items if any(item.get_closest_marker(name) for name in HEAVY)]
    if heavy:
        _left_out["tests marked ray, verl or e2e elsewhere"] = len(heavy)
        config.hook.pytest_deselected(items=heavy)
        items[:] = [item for item in items if item not in heavy]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Stop a worker of pytest-xdist that would not keep whole verl runs together: each worker would make its own."""
    loose = [item for item in session.items if item.get_closest_marker("e2e") and "@" not in item.nodeid]
    if loose and getattr(session.config.option, "loadgroup", False):
        raise pytest.UsageError("this pytest-xdist groups no tests under this pytest; use those of constraints.txt")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, so that a green run does not claim more than it checked."""
    if _left_out:
        terminalreporter.section("NOT RUN: verl is not installed", sep="=", yellow=True, bold=True)
        for what, count in _left_out.items():
            terminalreporter.line(f"{count:5} {what}")
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
