"""Train a tiny model on this machine's CPU: verl's own entry point, GRPO, and some YAML that schedules its data.

Select drops the prompts whose rollouts all succeed or all fail, before any compute is spent on them.
Reweight lets rollouts with a large advantage count more.
Mix draws more prompts of the domains with large advantages.
Gate draws prompts whose rollouts had different outcomes when they were last seen.
The first call builds the model and its data, which takes about a minute.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dataflex_events.adapters.verl.commands._demo_blocks import DEFAULT, as_overrides, data_overrides, demo_block

HELP = "train a tiny model with verl on this machine's CPU, with Select, Reweight, Mix or Gate, and say what happened"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--mechanism",
        action="append",
        choices=(*DEFAULT, "mix", "gate", "all"),
        help=f"what schedules the data; may be given several times (default: {' and '.join(DEFAULT)})",
    )
    parser.add_argument("--steps", type=_count, default=24, help="training steps (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), help="folder for logs (default: %(default)s)")
    parser.add_argument("overrides", nargs="*", help="further Hydra overrides for verl, e.g. data.seed=1")


def run(args: argparse.Namespace) -> int:
    """Build the lab, train, and print a summary."""
    from dataflex_events.adapters.verl.contract import require_version

    require_version()
    from dataflex_events.adapters.verl.commands import _demo_report as report
    from dataflex_events.adapters.verl.commands._demo_run import prepare, train
    from dataflex_events.adapters.verl.cpu.lab import build_lab

    out = args.out.resolve()
    prepare(out)
    lab = build_lab()
    mechanisms = args.mechanism or DEFAULT
    block = demo_block(mechanisms)
    print(report.introduction(lab, block, args.steps), flush=True)
    overrides = [*as_overrides(block), *data_overrides(mechanisms), *args.overrides]
    code = train(lab, out, args.steps, overrides, on_step=report.print_step)
    if code:
        print(report.failure(out, code), file=sys.stderr)
        return code
    print(report.summary(out))
    return 0


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of steps")
    return count
