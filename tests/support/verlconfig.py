"""verl's own configuration with overrides, as its entry point composes it."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

SYNC = "trainer.v1.trainer_mode=dataflex_sync"


@functools.cache
def _folder() -> str:
    spec = find_spec("verl")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent / "trainer" / "config")


def verl_config(*overrides: str) -> DictConfig:
    """Compose `ppo_trainer` for GRPO with 8 rollouts a prompt."""
    with initialize_config_dir(_folder(), version_base=None):
        own = ["algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.n=8"]
        return compose("ppo_trainer", [*own, *overrides])
