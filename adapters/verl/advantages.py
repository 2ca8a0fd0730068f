"""Advantages of a group over other rows than those that verl had in the batch, by verl's own estimator."""

from __future__ import annotations

import numpy as np
import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from torch import Tensor
from transfer_queue.metadata import KVBatchMeta
from verl import DataProto
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from dataflex_events.adapters.verl.columns import read_columns
from dataflex_events.adapters.verl.rows import is_padding, response_offsets
from dataflex_events.batch import Batch
from dataflex_events.segments import take_rows


def estimate(config: DictConfig, keys: list[str], offsets: Tensor, rewards: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Advantages and returns of some trajectories, as if they were the whole batch.

    Args:
        config: The run's configuration.
        keys: Of M trajectories, `{uid}_{session}_{output}`.
        offsets: `(M+1,)` int64.
        rewards: `(T,)`, token by token.
        mask: `(T,)`, the response mask.

    Returns:
        "advantages" and "returns", each `(T,)` float32.
    """
    ragged = {"token_level_rewards": rewards, "response_mask": mask}
    padded = {
        name: torch.nested.nested_tensor_from_jagged(values, offsets).to_padded_tensor(0)
        for name, values in ragged.items()
    }
    data = DataProto(batch=TensorDict(padded, batch_size=len(keys)))
    data.non_tensor_batch["uid"] = np.array([key.rsplit("_", 2)[0] for key in keys], dtype=object)
    data = compute_advantage_for_multi_trajectories(
        data,
        batch_keys=keys,
        adv_estimator=config.algorithm.adv_estimator,
        gamma=config.algorithm.gamma,
        lam=config.algorithm.lam,
        num_repeat=config.actor_rollout_ref.rollout.n,
        norm_adv_by_std_in_grpo=config.algorithm.get("norm_adv_by_std_in_grpo", True),
        config=config.algorithm,
    )
    inside = torch.arange(padded["response_mask"].shape[1]) < offsets.diff().unsqueeze(1)
    return {name: data.batch[name][inside].to(torch.float32) for name in ("advantages", "returns")}


def over_kept(config: DictConfig, meta: KVBatchMeta, batch: Batch, keep: Tensor) -> dict[str, Tensor]:
    """Advantages and returns of the kept rows among themselves, 0 for the others; each `(T,)`.

    Args:
        config: The run's configuration.
        meta: The rows, padding included.
        batch: Those that are not padding, with `response_mask`.
        keep: `(N,)` bool.
    """
    name = "token_level_rewards" if config.algorithm.use_kl_in_reward else "rm_scores"
    real = np.flatnonzero(~is_padding(meta))
    own = take_rows(response_offsets(meta), torch.from_numpy(real))[0]
    rewards = read_columns(meta, [name])[name][own]
    rows = keep.nonzero().flatten()
    tokens, offsets = take_rows(batch.offsets, rows)
    keys = [meta.keys[real[row]] for row in rows.tolist()]
    result = {}
    for name, values in estimate(config, keys, offsets, rewards[tokens], batch["response_mask"][tokens]).items():
        result[name] = torch.zeros(batch.tokens)
        result[name][tokens] = values
    return result


def over_all(
    config: DictConfig, meta: KVBatchMeta, rollouts: Batch, keys: list[str], rows: Tensor
) -> dict[str, Tensor]:
    """Advantages and returns of the rows that are left, with the baselines of everything that was generated.

    Args:
        config: The run's configuration.
        meta: The rows that are left, padding included.
        rollouts: Everything that was generated, with `rm_scores` and `response_mask`.
        keys: Its keys.
        rows: `(M,)` int64, where in `rollouts` the rows are that are left and not padding.

    Returns:
        "advantages" and "returns", each with one value for a token of these rows.
    """
    found = estimate(config, keys, rollouts.offsets, rollouts["rm_scores"], rollouts["response_mask"])
    tokens = take_rows(rollouts.offsets, rows)[0]
    real = torch.from_numpy(np.flatnonzero(~is_padding(meta)))
    own = take_rows(response_offsets(meta), real)[0]
    mask = read_columns(meta, ["response_mask"])["response_mask"][own]  # verl may have rejected tokens since
    return {name: values[tokens] * mask for name, values in found.items()}
