"""verl's own configuration with overrides, as its entry point composes it."""

from __future__ import annotations

import copy
import functools
from importlib.util import find_spec
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf, open_dict

SYNC = "trainer.v1.trainer_mode=dataflex_sync"


@functools.cache
def _composed() -> DictConfig:
    spec = find_spec("verl")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "trainer" / "config"
    with initialize_config_dir(str(folder), version_base=None):
        return compose("ppo_trainer", ["algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.n=8"])


def verl_config(*overrides: str) -> DictConfig:
    """`ppo_trainer` for GRPO with 8 rollouts a prompt, and overrides in Hydra's form.

    It is composed once, which takes seconds; overrides that choose other files are not for this.
    """
    config = copy.deepcopy(_composed())
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        with open_dict(config):
            OmegaConf.update(config, override.key_or_group, override.value())
    return config
