"""Checks before anything starts: in the process that the user launched, before Ray and before any worker."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from dataflex_events.adapters.verl import contract
from dataflex_events.adapters.verl.block import TRAINERS, dataflex_block, mode_issues, mode_of, strays
from dataflex_events.adapters.verl.suitability import run_issues
from dataflex_events.config import ROOT
from dataflex_events.errors import ConfigError
from dataflex_events.plan import Plan, examine

logger = logging.getLogger("dataflex")


def checking(validate_config: Callable[..., None]) -> Callable[..., None]:
    """verl's own configuration check, followed by ours."""

    @functools.wraps(validate_config)
    def check(config: DictConfig, *args: Any, **kwargs: Any) -> None:
        validate_config(config, *args, **kwargs)
        block = dataflex_block(config)
        if block is not None:
            plan_for(config, block)
        elif mode_of(config) in TRAINERS:
            _missing_block(config)

    return check


def _missing_block(config: DictConfig) -> None:
    """Our trainer without a block trains as verl's own does, which may not be what the user meant."""
    issues = strays(config)
    if issues:
        raise ConfigError(issues)
    logger.warning("trainer_mode=%s without a `%s:` block: this is verl's own training", mode_of(config), ROOT)


def plan_for(config: DictConfig, block: Mapping[str, Any]) -> Plan:
    """Make what the block names, for the run that `config` describes.

    Raises:
        ContractError: The installed verl is not one that we know.
        ConfigError: Lists every mistake in the block and every setting of the run that the block cannot work with.
    """
    contract.require()
    plan, issues = examine(block)
    issues = [*mode_issues(config), *issues, *run_issues(config, plan)]
    if issues:
        raise ConfigError(issues)
    return plan
