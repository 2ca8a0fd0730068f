"""Checks before anything starts: in the process that the user launched, before Ray and before any worker."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dataflex_events.adapters.verl import contract
from dataflex_events.adapters.verl.plugin import TRAINERS
from dataflex_events.config import ROOT
from dataflex_events.errors import ConfigError, ConfigIssue, nearest
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


def dataflex_block(config: DictConfig) -> Any:
    """The `dataflex:` block as plain values, or None if there is none."""
    block = config.get(ROOT)
    return OmegaConf.to_container(block, resolve=True) if OmegaConf.is_config(block) else block


def mode_of(config: DictConfig) -> str | None:
    """The trainer mode, or None in a verl that has none."""
    return OmegaConf.select(config, "trainer.v1.trainer_mode")


def strays(config: DictConfig) -> list[ConfigIssue]:
    """What may have been meant as a `dataflex:` block: misplaced or misspelt ones."""
    parents = [str(key) for key, child in config.items_ex(resolve=False) if OmegaConf.is_dict(child) and ROOT in child]
    misspelt = get_close_matches(ROOT, [str(key) for key in config], n=1, cutoff=0.8)
    issues = [ConfigIssue(f"{key}.{ROOT}", f"the block belongs at the top level, as `{ROOT}`") for key in parents]
    issues += [ConfigIssue(key, f"unknown key (did you mean {ROOT!r}?)") for key in misspelt]
    return issues


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
    issues = [*_mode_issues(config), *issues, *_loss_issues(config, plan), *_drop_issues(config, plan)]
    if issues:
        raise ConfigError(issues)
    return plan


def _mode_issues(config: DictConfig) -> list[ConfigIssue]:
    """A block that no trainer of ours would see must not do nothing in silence."""
    mode = config.trainer.v1.trainer_mode
    issues = []
    if not config.trainer.get("use_v1", True):
        issues.append(ConfigIssue("trainer.use_v1", "is false: the legacy trainer would ignore the dataflex block"))
    if mode not in TRAINERS:
        message = f"{mode!r} would ignore the dataflex block; use {TRAINERS[0]!r}"
        hint = nearest(mode, TRAINERS) if mode.startswith("data") else ""
        issues.append(ConfigIssue("trainer.v1.trainer_mode", message + hint))
    return issues


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
