"""Say whether verl and dataflex-verl are installed so that a run can use them, check by check.

verl hides the errors of its plugins, and then knows nothing of a trainer named `dataflex_sync`. This command imports
everything that a run imports and shows what went wrong. With CONFIG (and overrides) as for `dataflex-events check` it
also says whether the `dataflex:` block of that run would be seen, and if not, why. The exit status is 0 only if all is
well.
"""

from __future__ import annotations

import argparse

HELP = "say whether verl and this plugin are installed as they should be, and why a block has no effect"

_WIDTH = 11


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("config", nargs="*", metavar="CONFIG", help="a file, then Hydra overrides, e.g. data.seed=1")


def run(args: argparse.Namespace) -> int:
    """Print a line for each check and return 0 if none failed."""
    from dataflex_events.adapters.verl.commands._doctor_checks import checks

    failed = 0
    for check in checks(args.config):
        print(f"{check.state:{_WIDTH}}  {check.title}", flush=True)
        for line in check.lines:
            print(f"{'':{_WIDTH}}    {line}", flush=True)
        failed += check.state == "FAILED"
    print("\nAll is well." if not failed else f"\n{failed} failed." if failed > 1 else "\n1 failed.")
    return 1 if failed else 0
