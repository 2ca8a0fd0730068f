"""Check a configuration as the run would, and say in plain words what it will do.

CONFIG is a file that `verl.trainer.main_ppo` would be given (it begins with `defaults: [ppo_trainer, _self_]`), or one
with just a `dataflex:` block, or with just the block's content. Overrides are Hydra's, as on verl's command line;
without CONFIG they go to verl's own configuration. A mere block is checked without verl.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from dataflex_events.plan import Plan

HELP = "check a configuration as the run would, and say what it will do"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("config", nargs="+", metavar="CONFIG", help="a file, then Hydra overrides, e.g. data.seed=1")


def run(args: argparse.Namespace) -> int:
    """Print what the configuration does.

    Raises:
        DataflexError: What the run would raise, or what is wrong with the file.
    """
    from dataflex_events.adapters.verl.commands._as_run import ask_verl, block_of, plan_of
    from dataflex_events.adapters.verl.commands._compose import load
    from dataflex_events.describe import describe
    from dataflex_events.plan import make_plan

    loaded = load(args.config)
    if loaded.whole:
        from dataflex_events.adapters.verl.facts import loss_mode, run_facts
        from dataflex_events.adapters.verl.losses import channel_of

        plan = plan_of(loaded.config)
        print(describe(plan, run_facts(loaded.config), channel_of(loss_mode(loaded.config))))
        print(end=_differences(plan, loaded.config), flush=True)
        ask_verl(loaded.config)
    else:
        plan = make_plan(block_of(loaded.config))  # type: ignore[arg-type]
        print(describe(plan))
        print(end=_differences(plan, loaded.config))
        print("\nThe block is right. Whether it fits a run is checked with the file of the run.")
    return 0


def _differences(plan: Plan, config: DictConfig) -> str:
    """What a block in DataFlex-RL's form does differently here, if there is anything."""
    from dataflex_events.adapters.verl.commands._as_run import block_of
    from dataflex_events.upstream import differences

    lines = differences(plan, block_of(config))  # type: ignore[arg-type]
    return "\n".join(["", "different from DataFlex-RL", *(f"  {line}" for line in lines), ""]) if lines else ""
