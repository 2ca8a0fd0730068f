"""Show the presets: ready-made blocks for the command line of a run, with nothing else to set.

    python -m verl.trainer.main_ppo ... +dataflex=pods
    python -m verl.trainer.main_ppo ... '+dataflex=[dapo_band,advantage_reweight]' +dataflex.shadow=true

`dataflex-events presets NAME` prints the file of one.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

HELP = "Show ready-made blocks, for `+dataflex=NAME` on the command line of a run, or one of them"


def configure(parser: ArgumentParser) -> None:
    """Add the arguments of `dataflex-events presets`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the file of this one")


def run(args: Namespace) -> int:
    """Print names and summaries, or one file."""
    from dataflex_events import presets

    if args.name:
        print(presets.source(args.name), end="")
        return 0
    width = max(map(len, presets.names()))
    for name in presets.names():
        print(f"{name:{width}}  {presets.summary(name)}")
    print("\n`+dataflex=NAME` on verl's command line uses one, `+dataflex=[NAME,NAME]` several.")
    return 0
