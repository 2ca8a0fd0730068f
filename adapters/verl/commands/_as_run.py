"""Validates a whole configuration with the functions that the run uses."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Iterator

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from dataflex_events.adapters.verl.block import dataflex_block
from dataflex_events.adapters.verl.commands._compose import one_line
from dataflex_events.config import ROOT
from dataflex_events.errors import DataflexError
from dataflex_events.plan import Plan


def block_of(config: DictConfig) -> object:
    """The block as plain values, or None.

    Raises:
        DataflexError: It refers to something that is not there.
    """
    try:
        return dataflex_block(config)
    except OmegaConfBaseException as error:
        first = str(error).splitlines()[0]
        raise DataflexError(f"{ROOT}: {first}") from error


def plan_of(config: DictConfig) -> Plan:
    """What the run would attach.

    Raises:
        ContractError: The installed verl is not one that we know.
        ConfigError: The block is wrong, or does not fit the run.
        DataflexError: There is no block, or verl cannot be imported.
    """
    block = block_of(config)
    if block is None:
        raise DataflexError(f"there is no `{ROOT}:` block")
    with quiet():
        try:
            from dataflex_events.adapters.verl.preflight import plan_for
        except Exception as error:
            raise DataflexError(f"verl cannot be imported: {type(error).__name__}: {error}") from error
        return plan_for(config, block)  # type: ignore[arg-type]


def ask_verl(config: DictConfig) -> None:
    """Have verl's own check look at the configuration.

    Raises:
        DataflexError: It refuses the run, for reasons that have nothing to do with the block.
    """
    with quiet():
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import validate_config

        verls_own = inspect.unwrap(validate_config)  # ours has been called
        try:
            verls_own(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
        except Exception as error:
            raise DataflexError(f"verl refuses this run: {one_line(error) or type(error).__name__}") from error


@contextlib.contextmanager
def quiet(level: int = logging.WARNING) -> Iterator[None]:
    """Without what verl prints, and logs up to a level, when it is imported: this machine need not have a GPU."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
