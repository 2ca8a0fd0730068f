"""What the configuration of a verl run says about the run."""

from __future__ import annotations

import os
from pathlib import Path

from omegaconf import DictConfig

from dataflex_events.adapters.verl import losses
from dataflex_events.run import RunFacts

# verl's estimators whose baseline is the prompt's own group of rollouts.
GROUP_ESTIMATORS = frozenset(
    {
        "grpo",
        "grpo_vectorized",
        "grpo_passk",
        "gdpo",
        "rloo",
        "rloo_vectorized",
        "reinforce_plus_plus_baseline",
        "opo",
        "gpg",
        "optimal_token_baseline",
        "tir_optimal_token_baseline",
    }
)


def run_facts(config: DictConfig) -> RunFacts:
    """Read the facts that handlers may know."""
    estimator = str(getattr(config.algorithm.adv_estimator, "value", config.algorithm.adv_estimator))
    actor = config.actor_rollout_ref.actor
    by_row = loss_mode(config) in losses.BY_ROW
    return RunFacts(
        trainer_mode=config.trainer.v1.trainer_mode,
        estimator=estimator,
        loss_agg_mode="seq-mean-token-mean" if by_row else actor.loss_agg_mode,
        group_baseline=estimator in GROUP_ESTIMATORS,
        norm_adv_by_std=config.algorithm.get("norm_adv_by_std_in_grpo", True),
        rollouts_per_prompt=config.actor_rollout_ref.rollout.n,
        total_steps=config.trainer.get("total_training_steps"),
        tensorboard_dir=_tensorboard_dir(config),
        output_dir=Path(config.trainer.default_local_dir) if config.trainer.get("default_local_dir") else None,
    )


def loss_mode(config: DictConfig) -> str:
    """Name of the policy loss."""
    return str(config.actor_rollout_ref.actor.policy_loss.get("loss_mode", "vanilla"))


def _tensorboard_dir(config: DictConfig) -> Path | None:
    """The folder to which verl's TensorBoard backend writes, by verl's own rule."""
    loggers = config.trainer.logger
    if "tensorboard" not in ([loggers] if isinstance(loggers, str) else list(loggers)):
        return None
    default = f"tensorboard_log/{config.trainer.project_name}/{config.trainer.experiment_name}"
    return Path(os.environ.get("TENSORBOARD_DIR", default))
