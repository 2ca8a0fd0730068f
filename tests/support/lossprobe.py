"""Far-end probe of the loss and of all its terms, in the worker, and of what the trainer sent there.

Loaded into every process of a run by `VERL_USE_EXTERNAL_MODULES=lossprobe`; writes what it sees to `$FAREND_DIR`.
"""

from __future__ import annotations

import os
from typing import Any

from farend import save

from dataflex_events.adapters.verl.post_import import when_imported

_COLUMNS = (
    "response_mask",
    "loss_mask",
    "old_log_probs",
    "rollout_log_probs",
    "advantages",
    "returns",
    "ref_log_prob",
    "rollout_is_weights",
)
# Values of the loss's configuration with which it was called.
_SETTINGS = ("loss_agg_mode", "entropy_coeff", "kl_loss_coef", "clip_ratio_c", "loss_scale_factor")


def _watch_loss(module: Any) -> None:
    ppo_loss, padded = module.ppo_loss, module.no_padding_2_padding

    def probe(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        from verl.utils.tensordict_utils import get_non_tensor_data

        seen: dict[str, Any] = {name: [row.clone() for row in data[name].unbind()] for name in _COLUMNS if name in data}
        lengths = [len(row) for row in seen["response_mask"]]
        for name, key in (("log_probs", "log_prob"), ("entropy", "entropy")):
            if model_output.get(name) is not None:
                rows = padded(model_output[name], data).detach()
                seen[key] = [row[:length].clone() for row, length in zip(rows, lengths, strict=True)]
        seen["keys"] = [f"{uid}_{session}_0" for uid, session in zip(data["uid"], data["session_id"], strict=True)]
        seen["step"] = int(get_non_tensor_data(data=data, key="probed_step", default=0))
        seen["width"] = max(lengths)
        for name in ("batch_num_tokens", "global_batch_size", "dp_size"):
            seen[name] = data[name]
        loss, metrics = ppo_loss(config, model_output, data, dp_group)
        seen |= {name: getattr(config, name) for name in _SETTINGS}
        seen |= {"loss_mode": config.policy_loss.loss_mode, "loss": float(loss)}
        for name in ("actor/pg_loss", "actor/entropy_loss", "kl_loss"):
            if name in metrics:
                seen[name.removeprefix("actor/")] = float(metrics[name].values[0])
        save("call", seen)
        return loss, metrics

    module.ppo_loss = probe


def _watch_values(module: Any) -> None:
    value_loss, padded = module.value_loss, module.no_padding_2_padding

    def probe(config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        seen = {name: [row.clone() for row in data[name].unbind()] for name in ("response_mask", "values", "returns")}
        lengths = [len(row) for row in seen["response_mask"]]
        rows = padded(model_output["values"], data).detach()
        seen["predicted"] = [row[:length].clone() for row, length in zip(rows, lengths, strict=True)]
        seen["keys"] = [f"{uid}_{session}_0" for uid, session in zip(data["uid"], data["session_id"], strict=True)]
        seen["width"] = max(lengths)
        for name in ("batch_num_tokens", "global_batch_size", "dp_size"):
            seen[name] = data[name]
        for name in ("loss_agg_mode", "loss_scale_factor", "cliprange_value"):
            seen[name] = getattr(config, name)
        loss, metrics = value_loss(config, model_output, data, dp_group)
        save("value", seen | {"loss": float(loss)})
        return loss, metrics

    module.value_loss = probe


def _watch_trainer(module: Any) -> None:
    trainer = module.PPOTrainer
    update_actor = trainer._update_actor

    def probe(self: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        batch.extra_info["probed_step"] = self.global_steps
        padding = [bool(tag.get("is_padding", False)) for tag in batch.tags]
        save("sent", {"step": self.global_steps, "keys": list(batch.keys), "padding": padding})
        return update_actor(self, batch, *args, **kwargs)

    trainer._update_actor = probe


if "VERL_USE_EXTERNAL_MODULES" in os.environ:
    when_imported("verl.workers.utils.losses", _watch_loss)
    when_imported("verl.workers.utils.losses", _watch_values)
    when_imported("verl.trainer.ppo.v1.trainer_base", _watch_trainer)
