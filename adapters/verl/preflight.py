"""Checks before anything starts: in the process that the user launched, before Ray and before any worker."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig

from dataflex_events.adapters.verl import contract
from dataflex_events.adapters.verl.block import TRAINERS, dataflex_block, mode_issues, mode_of, strays
from dataflex_events.config import ROOT
from dataflex_events.errors import ConfigError, ConfigIssue
from dataflex_events.plan import Plan, examine

logger = logging.getLogger("dataflex")

# Policy losses that do not read the column through which weights reach the loss, or read it differently.
UNWEIGHTED_LOSSES = ("bypass_mode", "geo_mean")
# Those that multiply it in, token by token.
WEIGHTED_LOSSES = ("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "cispo", "dro")


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
    issues = [*mode_issues(config), *issues, *_loss_issues(config, plan), *_drop_issues(config, plan)]
    if issues:
        raise ConfigError(issues)
    return plan


def _loss_issues(config: DictConfig, plan: Plan) -> list[ConfigIssue]:
    loss = config.actor_rollout_ref.actor.policy_loss.get("loss_mode", "vanilla")
    if plan.weighs and loss in UNWEIGHTED_LOSSES:
        path = "actor_rollout_ref.actor.policy_loss.loss_mode"
        return [ConfigIssue(path, f"{loss!r} does not apply weights token by token; use another loss, e.g. 'vanilla'")]
    if plan.weighs and loss not in WEIGHTED_LOSSES:
        logger.warning("the policy loss %r is not one of verl's: nobody knows whether it applies weights", loss)
    return []


def _drop_issues(config: DictConfig, plan: Plan) -> list[ConfigIssue]:
    from verl.trainer.ppo.utils import need_critic  # needs the module whose import brought us here

    if not plan.drops:
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says once more what verl has just said
        critic = need_critic(config)
    if critic:
        message = "this run trains a critic, so rows cannot be dropped; give the policy `apply: weight`"
        return [ConfigIssue("algorithm.adv_estimator", message)]
    return []
