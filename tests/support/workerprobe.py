"""Far-end probe of whole updates: which rows each loss call got, and gradients and parameters of each optimizer step.

Loaded into every process of a run by `VERL_USE_EXTERNAL_MODULES=workerprobe`; writes what it sees to `$FAREND_DIR`.
"""

from __future__ import annotations

import os
from typing import Any

from farend import save

from dataflex_events.adapters.verl.post_import import when_imported

_COLUMNS = (
    "input_ids",
    "responses",
    "response_mask",
    "old_log_probs",
    "advantages",
    "ref_log_prob",
    "rollout_is_weights",
)
_updates = 0  # optimizer steps that this process has made


def _watch_loss(module: Any) -> None:
    ppo_loss = module.ppo_loss

    def probe(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        seen: dict[str, Any] = {name: [row.clone() for row in data[name].unbind()] for name in _COLUMNS if name in data}
        seen["uid"] = [str(uid) for uid in data["uid"]]
        seen["session"] = [int(session) for session in data["session_id"]]
        for name in ("batch_num_tokens", "global_batch_size", "dp_size"):
            seen[name] = data[name]
        result = ppo_loss(config, model_output, data, dp_group)
        seen |= {"update": _updates, "rank": _rank(), "loss": float(result[0]), "loss_agg_mode": config.loss_agg_mode}
        save("micro", seen)
        return result

    module.ppo_loss = probe


def _watch_optimizer(module: Any) -> None:
    engine = module.FSDPEngine
    optimizer_step = engine.optimizer_step

    def probe(self: Any) -> Any:
        global _updates
        before = {name: _full(value) for name, value in self.module.named_parameters()}
        gradients = {name: _full(value.grad) for name, value in self.module.named_parameters()}
        norm = optimizer_step(self)
        after = {name: _full(value) for name, value in self.module.named_parameters()}
        if _rank() == 0:
            save(
                "update",
                {"update": _updates, "before": before, "gradients": gradients, "after": after, "norm": norm},
            )
        _updates += 1
        return norm

    engine.optimizer_step = probe


def _full(value: Any) -> Any:
    """A copy of a parameter or gradient that may be sharded. All ranks have to ask."""
    value = value.detach()
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).clone()


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


if "VERL_USE_EXTERNAL_MODULES" in os.environ:
    when_imported("verl.workers.utils.losses", _watch_loss)
    when_imported("verl.workers.engine.fsdp.transformer_impl", _watch_optimizer)
