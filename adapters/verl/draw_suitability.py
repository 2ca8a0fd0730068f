"""What a plan asks of the draw, or of finished groups, and the run that verl's configuration describes cannot do."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from omegaconf import DictConfig, OmegaConf, open_dict

from dataflex_events.driver import StepDriver
from dataflex_events.errors import ConfigIssue
from dataflex_events.fields import is_outcome
from dataflex_events.plan import Plan
from dataflex_events.run import RunFacts

logger = logging.getLogger("dataflex")

COMPARES = "compares the rollouts of a prompt with each other"
_BUFFER = "trainer.v1.sampler.custom_sampler"


def draw_issues(config: DictConfig, plan: Plan, absent: Mapping[str, str], no_groups: str) -> list[ConfigIssue]:
    """Everything that does not fit.

    Args:
        config: Of the run.
        plan: What the block asks for.
        absent: Batch fields that the run will not have, and why.
        no_groups: Why the run has no groups of rollouts, or nothing.
    """
    driver = StepDriver(plan.bus(), RunFacts())
    issues: list[ConfigIssue] = []
    path = "dataflex.handlers"
    if plan.mix is not None:
        path = f"{plan.mix.path}.scorer.name"
        for field in plan.mix.scorer.fields:
            if field in absent:
                issues.append(ConfigIssue(path, f"reads {field!r}, which this run does not have: it {absent[field]}"))
        if plan.mix.scorer.needs_groups and no_groups:
            issues.append(ConfigIssue(path, f"{COMPARES}, and {no_groups}"))
    if plan.gate is not None:
        path = plan.gate.path
        if plan.gate.gate.needs_groups and no_groups:
            issues.append(ConfigIssue(f"{path}.actuator.name", f"{COMPARES}, and {no_groups}"))
    if plan.refill is not None:
        path = next(policy.path for policy in plan.applied if policy.refills) + ".refill"
        steps = OmegaConf.select(config, "trainer.v1.sync.parameter_sync_step", default=1)
        if steps != 1:
            message = f"is {steps}: a refill throws away what the first of these updates does not need"
            issues.append(ConfigIssue("trainer.v1.sync.parameter_sync_step", message))
    if not driver.watches_groups:
        return issues
    buffer = _custom_buffer(config)
    if buffer is not None and not _is_upstream(buffer):
        message = f"is {buffer.path}: nothing can be learnt from finished groups, which only verl's own buffer shows"
        issues.append(ConfigIssue(f"{_BUFFER}.path", message))
    if OmegaConf.select(config, "skip.rollout_tq.enable", default=False):
        message = "is true: rollouts of earlier runs come back for other prompts, so nothing can be learnt from them"
        issues.append(ConfigIssue("skip.rollout_tq.enable", message))
    data = config.data
    if plan.draws and data.get("train_max_samples", -1) > 0 and data.shuffle and data.get("seed") is None:
        logger.warning("data.train_max_samples without data.seed: every start has other data, and none can be resumed")
    reward = config.reward.reward_model
    # What the reward function returns beside the score comes with the score.
    early = any(field in ("reward", "rm_scores") or is_outcome(field) for field in driver.group_fields)
    if reward.enable and not reward.enable_resource_pool and early:
        message = (
            "needs the reward of each group when it is finished, and a reward model that shares its devices with the "
            "trainer gives it later; set reward.reward_model.enable_resource_pool=true"
        )
        issues.append(ConfigIssue(path, message))
    return issues


def drop_upstream_buffer(config: DictConfig) -> None:
    """Leave out the replay buffer of DataFlex-RL, which is not installed and which Mix does not need."""
    buffer = _custom_buffer(config)
    if buffer is not None and _is_upstream(buffer):
        logger.warning("%s.path=%s is left out: verl's own replay buffer does", _BUFFER, buffer.path)
        with open_dict(config):
            buffer.path = buffer.name = None


def fetch_singly(config: DictConfig) -> None:
    """Let verl fetch prompt by prompt, as it does for its own filter: a refill asks for any number of them."""
    given = config.data.get("gen_batch_size")
    if given not in (None, 1):
        logger.warning("data.gen_batch_size=%s is set to 1: a refill asks for any number of prompts", given)
    with open_dict(config):
        config.data.gen_batch_size = 1


def _custom_buffer(config: DictConfig) -> DictConfig | None:
    """Where a replay buffer of the user's own is named, or None."""
    buffer = config.trainer.v1.sampler.get("custom_sampler")
    return buffer if buffer is not None and buffer.get("path") else None


def _is_upstream(buffer: DictConfig) -> bool:
    return str(buffer.path).removeprefix("pkg://").split(".")[0] == "dataflex_verl"
