"""What the handlers may know about the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a run that hold from its first step to its last.

    Attributes:
        trainer_mode: How rollout and training alternate ("sync", ...).
        estimator: Advantage estimator ("grpo", "gae", ...).
        loss_agg_mode: How the trainer averages token losses ("token-mean", "seq-mean-token-mean", ...).
        group_baseline: True if an advantage is relative to the other rollouts of the same prompt.
        norm_adv_by_std: True if a group-relative advantage is divided by the standard deviation of the group's rewards.
        rollouts_per_prompt: Rollouts generated for each prompt.
        total_steps: Steps that the run is configured to do, if known.
        tensorboard_dir: The trainer's TensorBoard folder, if it logs to TensorBoard.
        output_dir: Where the trainer keeps its checkpoints, if known.
    """

    trainer_mode: str = "sync"
    estimator: str = "grpo"
    loss_agg_mode: str = "token-mean"
    group_baseline: bool = True
    norm_adv_by_std: bool = True
    rollouts_per_prompt: int = 1
    total_steps: int | None = None
    tensorboard_dir: Path | None = None
    output_dir: Path | None = None
