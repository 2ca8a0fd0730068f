"""Far-end probe: records what verl's loss really receives, in the worker process where it is computed.

Loaded into every process of a run by `VERL_USE_EXTERNAL_MODULES=farend`. `Context` is its counterpart on our side: an
observer that records what the step context resolved. Both write to `$FAREND_DIR`.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import torch

from dataflex_events import AdvantageComputed, StepEnd, on
from dataflex_events.adapters.verl.post_import import when_imported

_count = itertools.count()
_COLUMNS = ("response_mask", "old_log_probs", "rollout_log_probs", "advantages", "rollout_is_weights", "rm_scores")


def save(name: str, record: dict[str, Any]) -> None:
    """Write one record; the file name keeps records of several processes apart."""
    target = Path(os.environ["FAREND_DIR"]) / f"{name}-{os.getpid()}-{next(_count):04d}.pt"
    torch.save(record, target)


def _probed(ppo_loss: Any) -> Any:
    def probe(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        seen: dict[str, Any] = {"columns": sorted(data.keys()), "rank": int(os.environ.get("RANK", "0"))}
        for name in _COLUMNS:
            if name in data:
                seen[name] = [row.clone() for row in data[name].unbind()]
        if "uid" in data:
            seen["uid"] = [str(uid) for uid in data["uid"]]
        if "session_id" in data:
            seen["session"] = [int(session) for session in data["session_id"]]
        for name in ("batch_num_tokens", "global_batch_size", "dp_size"):
            seen[name] = data[name]
        result = ppo_loss(config, model_output, data, dp_group)
        seen["loss"] = float(result[0])
        save("loss", seen)
        return result

    return probe


def _install(module: Any) -> None:
    module.ppo_loss = _probed(module.ppo_loss)


def _watch_trainer(module: Any) -> None:
    """Record from verl's own trainer class what it is about to train on, and with what it was set up."""
    trainer = module.PPOTrainer
    fit, update_actor = trainer.fit, trainer._update_actor

    def probe_fit(self: Any, *args: Any, **kwargs: Any) -> Any:
        from omegaconf import OmegaConf

        save(
            "trainer",
            {
                "trainer": type(self).__name__,
                "buffer": f"{type(self.replay_buffer).__module__}.{type(self.replay_buffer).__qualname__}",
                "gen_batch_size": self.config.data.get("gen_batch_size"),
                "dataloader_batch_size": self.train_dataloader.batch_size,
                "sampler": type(self.train_dataloader.sampler).__name__,
                "config": OmegaConf.to_container(self.config),
            },
        )
        return fit(self, *args, **kwargs)

    def probe_update(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        padding = [bool(tag.get("is_padding", False)) for tag in batch.tags]
        save("sent", {"step": self.global_steps, "keys": list(batch.keys), "padding": padding})
        return update_actor(self, batch, *args, **kwargs)

    trainer.fit, trainer._update_actor = probe_fit, probe_update


if "VERL_USE_EXTERNAL_MODULES" in os.environ:
    when_imported("verl.workers.utils.losses", _install)
    when_imported("verl.trainer.ppo.v1.trainer_base", _watch_trainer)


class Context:
    """Records what the context resolved. Attach it with `+dataflex.handlers=[farend:Context]`."""

    @on(AdvantageComputed, fields=["response_mask", "old_log_probs", "advantages", "reward"])
    def remember(self, event: AdvantageComputed) -> None:
        self.batch = event.batch

    @on(StepEnd)
    def save(self, event: StepEnd) -> None:
        assert event.update is not None
        save(
            "context",
            {
                "step": event.step.global_step,
                "weights": event.weights,
                "offsets": self.batch.offsets,
                "uid": self.batch.uid,
                **{name: self.batch[name] for name in ("response_mask", "old_log_probs", "advantages", "reward")},
            },
        )
