"""Checks before anything starts: in the process that the user launched, before Ray and before any worker."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dataflex_events.adapters.verl.plugin import TRAINERS
from dataflex_events.config import ROOT
from dataflex_events.errors import ConfigError, ConfigIssue, nearest
from dataflex_events.plan import Plan, examine

# Policy losses that do not read the column through which weights reach the loss, or read it differently.
UNWEIGHTED_LOSSES = ("bypass_mode", "geo_mean")


def checking(validate_config: Callable[..., None]) -> Callable[..., None]:
    """verl's own configuration check, followed by ours."""

    @functools.wraps(validate_config)
    def check(config: DictConfig, *args: Any, **kwargs: Any) -> None:
        validate_config(config, *args, **kwargs)
        block = dataflex_block(config)
        if block is not None:
            plan_for(config, block)

    return check


def dataflex_block(config: DictConfig) -> Mapping[str, Any] | None:
    """The `dataflex:` block as plain values, or None if there is none."""
    block = config.get(ROOT)
    if block is None:
        return None
    plain: Any = OmegaConf.to_container(block, resolve=True) if OmegaConf.is_config(block) else block
    return plain if isinstance(plain, Mapping) else {ROOT: plain}


def plan_for(config: DictConfig, block: Mapping[str, Any]) -> Plan:
    """Make what the block names, for the run that `config` describes.

    Raises:
        ConfigError: Lists every mistake in the block and every setting of the run that the block cannot work with.
    """
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
    return []


def _drop_issues(config: DictConfig, plan: Plan) -> list[ConfigIssue]:
    from verl.trainer.ppo.utils import need_critic  # needs the module whose import brought us here

    if plan.drops and need_critic(config):
        message = "this run trains a critic, for which rows cannot be dropped; give the policy `apply: weight`"
        return [ConfigIssue(f"{ROOT}.apply", message)]
    return []
