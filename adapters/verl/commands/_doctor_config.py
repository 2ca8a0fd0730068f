"""The checks of `dataflex-events doctor CONFIG`: does a trainer of ours see the block, and is it right?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omegaconf import DictConfig

from dataflex_events.adapters.verl.block import mode_issues, mode_of, strays
from dataflex_events.adapters.verl.commands._as_run import ask_verl, block_of, plan_of
from dataflex_events.adapters.verl.commands._compose import load
from dataflex_events.adapters.verl.commands._report import Check, failed, not_checked, ok
from dataflex_events.config import ROOT
from dataflex_events.errors import ConfigError, ConfigIssue, ContractError, DataflexError
from dataflex_events.plan import make_plan

_RIGHT = "block: right, and fits the run"


def config_checks(arguments: Sequence[str], *, importable: bool) -> Iterator[Check]:
    """Look at a configuration.

    Args:
        arguments: A file and Hydra overrides.
        importable: Whether verl can be imported.
    """
    try:
        loaded = load(arguments)
        block = block_of(loaded.config)
    except DataflexError as error:
        yield failed("configuration: can be read", str(error).splitlines())
        return
    yield ok("configuration: can be read")
    seen = f"block: seen by trainer_mode {mode_of(loaded.config)!r}"
    if not loaded.whole:
        yield not_checked("block: seen by a trainer", "this file has only the block; give the file of the run")
        yield _mere_block(block)
        return
    unseen = mode_issues(loaded.config)
    if block is None:
        meant = [str(issue) for issue in strays(loaded.config)]
        yield failed("block: there", meant or [f"there is no `{ROOT}:` block, so verl trains as it does without us"])
        return
    yield failed("block: seen by a trainer of ours", map(str, unseen)) if unseen else ok(seen)
    if not importable:
        yield not_checked(_RIGHT, "verl cannot be imported")
        return
    yield _right(loaded.config, unseen)
    yield _verls_own(loaded.config)


def _mere_block(block: object) -> Check:
    try:
        make_plan(block)  # type: ignore[arg-type]
    except ConfigError as error:
        return failed("block: right", map(str, error.issues))
    return ok("block: right")


def _right(config: DictConfig, known: Sequence[ConfigIssue]) -> Check:
    try:
        plan_of(config)
    except ConfigError as error:
        new = [str(issue) for issue in error.issues if issue not in known]
        return failed(_RIGHT, new) if new else ok(_RIGHT)
    except ContractError:
        return not_checked(_RIGHT, "the installed verl does not fit, see above")
    except DataflexError as error:
        return failed(_RIGHT, str(error).splitlines())
    return ok(_RIGHT)


def _verls_own(config: DictConfig) -> Check:
    title = "run: accepted by verl's own check"
    try:
        ask_verl(config)
    except DataflexError as error:
        return failed(title, [str(error)])
    return ok(title)
