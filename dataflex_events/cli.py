"""The `dataflex-events` command.

A subcommand is a module, named in the entry-point group `dataflex_events.commands` and loaded when it is called. It has

    HELP: str                                        one line for `dataflex-events --help`
    configure(parser: argparse.ArgumentParser)       adds its arguments
    run(args: argparse.Namespace) -> int             does the work and returns the exit status

and its docstring is the description in its own help. It imports nothing slow at its top: `--help` loads every command.
It raises `DataflexError` for what the user can put right; anything else is a bug and shows its traceback.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points, version
from typing import Protocol, cast

from dataflex_events.errors import DataflexError, nearest

ENTRY_POINTS = "dataflex_events.commands"
PROG = "dataflex-events"

_OWN = {"list": "dataflex_events.listing", "presets": "dataflex_events.presets_command"}


class Command(Protocol):
    """What a command module offers."""

    HELP: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def commands() -> Mapping[str, str]:
    """Names of all commands and the modules behind them."""
    return {point.name: point.value for point in entry_points(group=ENTRY_POINTS)} | _OWN


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; by default the process's own.

    Returns:
        The exit status: the command's own, 1 for a `DataflexError`, 2 for wrong arguments, 130 for Ctrl-C.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(argv)
    except DataflexError as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader, for example `head`, has seen enough; the interpreter would complain when it flushes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _dispatch(argv: list[str]) -> int:
    if not argv:
        print(_overview(), file=sys.stderr)
        return 2
    name, rest = argv[0], argv[1:]
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"dataflex-verl {version('dataflex-verl')}")
        return 0
    known = commands()
    if name not in known:
        print(f"{PROG}: unknown command {name!r}{nearest(name, known)}", file=sys.stderr)
        return 2
    command = _load(name, known[name])
    parser = argparse.ArgumentParser(
        prog=f"{PROG} {name}",
        description=(getattr(command, "__doc__", None) or command.HELP).strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.configure(parser)
    status = command.run(parser.parse_intermixed_args(rest))
    sys.stdout.flush()
    return status


def _load(name: str, module: str) -> Command:
    try:
        return cast("Command", importlib.import_module(module))
    except Exception as error:
        raise DataflexError(f"the command {name!r} ({module}) cannot be loaded: {_reason(error)}") from error


def _overview() -> str:
    known = commands()
    width = max(map(len, known))
    lines = [f"usage: {PROG} [-h] [--version] COMMAND ...", "", "commands:"]
    for name, module in sorted(known.items()):
        try:
            text = _load(name, module).HELP
        except DataflexError as error:
            text = f"(cannot be loaded: {_reason(error.__cause__)})"
        lines.append(f"  {name:{width}}  {text}")
    return "\n".join([*lines, "", f"`{PROG} COMMAND --help` says more about a command."])


def _reason(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    sys.exit(main())
