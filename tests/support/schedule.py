"""Other settings in each step of one run. Starting verl takes most of a minute, a further step a few seconds.

    run_verl(folder, *overrides, steps=2, schedule=[
        {"actor_rollout_ref.actor.loss_agg_mode": "token-mean"},
        {"actor_rollout_ref.actor.policy_loss.loss_mode": "gspo", "dataflex": {"policies": [...]}},
    ])

A schedule has one mapping for each step: Hydra path -> value, as the path would be given on the command line. A step
starts from the settings with which the run was started, not from those of the step before it. In step k

* the trainer's configuration holds the values, from before prompts are drawn. verl's trainer and ours read it anew in
  each step;
* `dataflex` is the whole block of the step, `{}` for one that does nothing. Where it is another one than in the step
  before, it is checked and set up as at the start of a run, with new handlers: the old ones get `RunEnd`, the new ones
  `RunStart`;
* values of `actor_rollout_ref.actor` travel to the workers with the batch, as JSON. There the loss is called with a
  copy of its configuration that holds them, and the optimizer makes its steps at `optim.lr`;
* how micro-batches are cut travels with each of the three calls of a worker. verl's worker prefers it to what it was
  started with.

Only what is read in each step can change (`CHANGEABLE`); everything else is fixed when the workers start, and
`check` refuses it. A reference policy must be there from the start (`use_kl_loss=True` as an override) for a step to
use one.

The module is loaded into every process of the run by `VERL_USE_EXTERNAL_MODULES`, in front of probes of the loss, so
that these see what is really used.
"""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict

from dataflex_events.adapters.verl.post_import import when_imported

Settings = Mapping[str, Any]

FILE = "SCHEDULE_FILE"
ACTOR = "actor_rollout_ref.actor."
BLOCK = "dataflex"

CHANGEABLE = (
    r"dataflex",
    # trainer, advantages
    r"algorithm\.(adv_estimator|gamma|lam|norm_adv_by_std_in_grpo|rollout_correction\..+)",
    # update
    r"actor_rollout_ref\.actor\.(ppo_mini_batch_size|ppo_epochs|shuffle|data_loader_seed|calculate_entropy|optim\.lr)",
    r"actor_rollout_ref\.(actor\.ppo|(rollout|ref)\.log_prob)_(micro_batch_size|max_token_len)_per_gpu",
    r"actor_rollout_ref\.(actor\.|(rollout|ref)\.log_prob_)use_dynamic_bsz",
    # loss
    r"actor_rollout_ref\.actor\.(loss_agg_mode|loss_scale_factor|policy_loss\..+|clip_.+|tau_.+|entropy_coeff)",
    r"actor_rollout_ref\.actor\.(use_kl_loss|kl_loss_coef|kl_loss_type)",
)
"""Settings that are read in each step."""


def check(schedule: Sequence[Settings]) -> None:
    """Refuse settings that a step cannot change: they would be ignored."""
    for number, settings in enumerate(schedule, start=1):
        for path in settings:
            if not any(re.fullmatch(pattern, path) for pattern in CHANGEABLE):
                raise ValueError(f"step {number}: {path} is fixed when the run starts")


def environment(file: Path, schedule: Sequence[Settings]) -> dict[str, str]:
    """Write the schedule to a file. Returns what has to be in the environment of the run for it to be found."""
    check(schedule)
    file.write_text(json.dumps([dict(settings) for settings in schedule]))
    return {FILE: str(file)}


def read(environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """The schedule of the run that has these environment variables."""
    schedule: list[dict[str, Any]] = json.loads(Path(environ[FILE]).read_text())
    return schedule


# ---------------------------------------------------------------- in the trainer's process


class _Conductor:
    """Brings the settings of a step to the trainer.

    Args:
        trainer: Ours.
        schedule: The settings, by step.
    """

    def __init__(self, trainer: Any, schedule: Sequence[Settings]) -> None:
        self._trainer = trainer
        self._schedule = schedule
        self._start = copy.deepcopy(trainer.config)
        self._changed: set[str] = set()

    def settings(self) -> Settings:
        """The settings of the present step."""
        return self._schedule[self._trainer.global_steps - 1]

    def apply(self) -> None:
        """Change the trainer's configuration in place, and what was made from it."""
        config, settings = self._trainer.config, self.settings()
        before = copy.deepcopy(config.get(BLOCK))
        with open_dict(config):
            for path in self._changed - settings.keys():
                OmegaConf.update(config, path, OmegaConf.select(self._start, path), merge=False)
            for path, value in settings.items():
                OmegaConf.update(config, path, value, merge=False)
        self._changed = set(settings)
        self._set_up(anew=config.get(BLOCK) != before)

    def _set_up(self, anew: bool) -> None:
        from dataflex_events.adapters.verl.facts import run_facts
        from dataflex_events.adapters.verl.preflight import dataflex_block, plan_for

        trainer = self._trainer
        if not anew:
            trainer._driver.run = run_facts(trainer.config)
            return
        given = copy.deepcopy(trainer.config)
        given.trainer.v1.trainer_mode = "dataflex_sync"  # the trainer has put verl's own name there
        trainer._driver.end(trainer._step_id())
        trainer._use(plan_for(given, dataflex_block(given)), trainer.config)
        trainer._driver.start()


def _conduct(module: Any) -> None:
    trainer, schedule = module.PPOTrainer, read(os.environ)
    on_step_begin, update_actor = trainer.on_step_begin, trainer._update_actor

    def begin(self: Any) -> None:
        if not hasattr(self, "_conductor"):
            self._conductor = _Conductor(self, schedule)
        self._conductor.apply()
        on_step_begin(self)

    def update(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        settings = self._conductor.settings()
        own = {path.removeprefix(ACTOR): value for path, value in settings.items() if path.startswith(ACTOR)}
        batch.extra_info["schedule"] = json.dumps(own)
        return update_actor(self, batch, *args, **kwargs)

    trainer.on_step_begin, trainer._update_actor = begin, update
    for method, prefix in _STAGES.items():
        setattr(trainer, method, _with_micro_batches(getattr(trainer, method), prefix))


_STAGES = {
    "_compute_old_log_prob": "actor_rollout_ref.rollout.log_prob_",
    "_compute_ref_log_prob": "actor_rollout_ref.ref.log_prob_",
    "_update_actor": "actor_rollout_ref.actor.ppo_",
}


def _with_micro_batches(stage: Any, prefix: str) -> Any:
    dynamic = prefix.replace("ppo_", "") + "use_dynamic_bsz"
    paths = {name: prefix + name for name in ("micro_batch_size_per_gpu", "max_token_len_per_gpu")}

    def scheduled(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        settings = self._conductor.settings()
        for name, path in {**paths, "use_dynamic_bsz": dynamic}.items():
            if path in settings:
                batch.extra_info.setdefault(name, settings[path])  # our trainer may have had to take another size
        return stage(self, batch, *args, **kwargs)

    return scheduled


# ---------------------------------------------------------------- in the workers

_now: dict[str, Any] = {}  # what the loss was last called with


def with_settings(config: Any, settings: Settings) -> Any:
    """A copy of verl's frozen configuration object with other values. Raises `AttributeError` for an unknown one."""
    changed = copy.copy(config)
    inner: dict[str, dict[str, Any]] = {}
    for path, value in settings.items():
        name, _, rest = path.partition(".")
        getattr(config, name)
        if rest:
            inner.setdefault(name, {})[rest] = value
        else:
            object.__setattr__(changed, name, value)
    for name, values in inner.items():
        object.__setattr__(changed, name, with_settings(getattr(config, name), values))
    return changed


def _set_loss(module: Any) -> None:
    ppo_loss = module.ppo_loss

    def scheduled(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        from verl.utils.tensordict_utils import get_non_tensor_data

        global _now
        _now = json.loads(get_non_tensor_data(data=data, key="schedule", default="{}"))
        return ppo_loss(with_settings(config, _now), model_output, data, dp_group)

    module.ppo_loss = scheduled


def _set_rate(module: Any) -> None:
    engine = module.FSDPEngine
    optimizer_step = engine.optimizer_step

    def scheduled(self: Any) -> Any:
        groups = self.optimizer.param_groups
        before = [group["lr"] for group in groups]
        for group in groups:
            group["lr"] = _now.get("optim.lr", group["lr"])
        try:
            return optimizer_step(self)
        finally:
            for group, rate in zip(groups, before, strict=True):
                group["lr"] = rate

    engine.optimizer_step = scheduled


if FILE in os.environ and "VERL_USE_EXTERNAL_MODULES" in os.environ:
    when_imported("verl.trainer.ppo.v1.trainer_base", _conduct)
    when_imported("verl.workers.utils.losses", _set_loss)
    when_imported("verl.workers.engine.fsdp.transformer_impl", _set_rate)
