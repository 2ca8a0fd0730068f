"""The `dataflex-events` command: dispatch, messages, exit status."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, version
from types import ModuleType
from typing import Any

import pytest

from dataflex_events import DataflexError, cli, listing

Run = Callable[[argparse.Namespace], int]
HEAVY = ("torch", "verl", "ray", "transfer_queue", "tensorboard", "hydra", "omegaconf", "pydantic", "blinker")


@pytest.fixture
def add_command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes a command module and its entry point."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(cli, "entry_points", lambda group: points if group == cli.ENTRY_POINTS else [])

    def add(name: str, run: Run, configure: Callable[[argparse.ArgumentParser], None] = lambda parser: None) -> None:
        module: Any = ModuleType(f"fake_{name}", "What it does.\n\n    as written")
        module.HELP, module.configure, module.run = f"Help of {name}", configure, run
        monkeypatch.setitem(sys.modules, module.__name__, module)
        points.append(EntryPoint(name, module.__name__, cli.ENTRY_POINTS))

    return add


def fails(error: BaseException) -> Run:
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


def test_help_names_every_command_with_its_line(add_command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    add_command("greet", lambda args: 0)
    assert cli.main(["--help"]) == cli.main(["-h"]) == 0
    shown = capsys.readouterr().out
    assert "  greet    Help of greet" in shown
    assert f"  list     {listing.HELP}" in shown


def test_without_a_command_the_help_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "commands:" in captured.err


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["list", "--help"], ["nonsense"]])
def test_these_import_nothing_slow(argv: list[str]) -> None:
    code = (
        "import contextlib, sys\n"
        "from dataflex_events.cli import main\n"
        f"with contextlib.suppress(SystemExit): main({argv!r})\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_listing_does_import_torch_so_that_the_check_above_can_fail() -> None:
    code = "import sys\nfrom dataflex_events.cli import main\nmain(['list'])\nassert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dataflex-verl {version('dataflex-verl')}\n"


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lits"]) == 2
    assert capsys.readouterr().err == "dataflex-events: unknown command 'lits' (did you mean 'list'?)\n"


def test_a_command_gets_its_arguments_in_any_order_and_returns_its_status(add_command: Any) -> None:
    seen: list[argparse.Namespace] = []

    def configure(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--steps", type=int, default=1)
        parser.add_argument("overrides", nargs="*")

    def run(args: argparse.Namespace) -> int:
        seen.append(args)
        return 7

    add_command("demo", run, configure)
    assert cli.main(["demo", "+a.b=1", "--steps", "3", "~c", "d=[x]"]) == 7
    assert cli.main(["demo"]) == 7
    assert vars(seen[0]) == {"steps": 3, "overrides": ["+a.b=1", "~c", "d=[x]"]}
    assert vars(seen[1]) == {"steps": 1, "overrides": []}


def test_a_commands_own_help_is_its_docstring_as_written(add_command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    add_command("demo", lambda args: 0)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo", "--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: dataflex-events demo") and "What it does.\n\n    as written" in shown


def test_a_wrong_argument_exits_with_2(add_command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    add_command("demo", lambda args: 0)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo", "--stepps", "1"])
    assert stopped.value.code == 2
    assert "dataflex-events demo: error: unrecognized arguments: --stepps" in capsys.readouterr().err


def test_a_users_mistake_is_a_message_without_traceback(add_command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    add_command("demo", fails(DataflexError("no such folder")))
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "dataflex-events: no such folder\n"


@pytest.mark.parametrize("error", [ValueError("bug"), SystemExit(3)])
def test_anything_else_passes_through(add_command: Any, error: BaseException) -> None:
    add_command("demo", fails(error))
    with pytest.raises(type(error)) as raised:
        cli.main(["demo"])
    assert raised.value is error


def test_ctrl_c_is_130(add_command: Any) -> None:
    add_command("demo", fails(KeyboardInterrupt()))
    assert cli.main(["demo"]) == 130


def test_a_broken_command_is_listed_with_the_reason_and_harms_no_other(
    add_command: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = EntryPoint("broken", "no_such_module_xyz", cli.ENTRY_POINTS)
    monkeypatch.setattr(cli, "entry_points", lambda group: [broken])
    assert cli.main(["--help"]) == 0
    reason = "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module_xyz'"
    assert f"  broken   ({reason})" in capsys.readouterr().out
    assert cli.main(["list"]) == 0
    capsys.readouterr()
    assert cli.main(["broken"]) == 1
    assert capsys.readouterr().err == f"dataflex-events: the command 'broken' (no_such_module_xyz) {reason}\n"


def test_a_reader_that_stops_early_is_no_error() -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "dataflex_events.cli", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None and running.stderr is not None
    running.stdout.close()
    assert running.stderr.read() == b""
    running.stderr.close()
    running.wait()
