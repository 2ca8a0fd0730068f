"""A step in which not all rows count: its shape, at every stage of verl's step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transfer_queue.metadata import KVBatchMeta

from dataflex_events.adapters.verl.rows import is_padding, response_offsets
from dataflex_events.adapters.verl.shape import StepShape, idle_rows, largest_divisor
from dataflex_events.batch import Batch
from dataflex_events.resolve import UpdateDecision
from dataflex_events.segments import take_rows

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer as _Trainer
else:
    _Trainer = object  # verl's own comes behind the mixins


class Step:
    """What the hooks of one step hand on to each other."""

    def __init__(self) -> None:
        self.generated: list[str] = []  # keys of all rows at `rollout_done`, in its order
        self.rollouts: Batch | None = None  # these rows
        self.kept: list[str] = []
        self.dropped: list[str] = []
        self.shape: StepShape | None = None  # only where rows were dropped, or do not count
        self.masked = 0  # rows without a token that is left in the mask
        self.columns: dict[str, Tensor] = {}  # (T_all,) by column, as written
        self.metrics: dict[str, float] = {}


@contextmanager
def before_dispatch(group: Any, method: str, prepare: Callable[[KVBatchMeta], None]) -> Iterator[None]:
    """Have the last word on a batch: verl sets the step's shape right before it calls the workers.

    Args:
        group: verl's group of workers.
        method: The one of its methods that gets the batch.
        prepare: Changes the batch.
    """
    dispatch = getattr(group, method)

    def prepared(batch: KVBatchMeta) -> Any:
        prepare(batch)
        return dispatch(batch)

    setattr(group, method, prepared)
    try:
        yield
    finally:
        setattr(group, method, dispatch)


class ReducedSteps(_Trainer):
    """What of a trainer follows the rows that count."""

    _now: Step

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        now = self._now
        if not now.dropped:
            return super()._get_required_batch_multiple(dp_size)
        actor = self.config.actor_rollout_ref.actor
        mini_batches = -(-self.config.data.train_batch_size // actor.ppo_mini_batch_size)
        micro = None if actor.use_dynamic_bsz else actor.ppo_micro_batch_size_per_gpu
        now.shape = StepShape.fit(len(now.kept), dp_size, mini_batches, micro)
        return now.shape.total

    def _optimizer_steps(self, rows: int) -> int:
        actor, n = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout.n
        shape = self._now.shape
        return actor.ppo_epochs * (shape.mini_batches if shape else rows // (actor.ppo_mini_batch_size * n))

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        rollout = self.config.actor_rollout_ref.rollout
        if not rollout.log_prob_use_dynamic_bsz:
            self._fit_micro_batch(batch, rollout.log_prob_micro_batch_size_per_gpu)
        return super()._compute_old_log_prob(batch, metrics)

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        ref = self.config.actor_rollout_ref.ref
        if not ref.log_prob_use_dynamic_bsz:
            self._fit_micro_batch(batch, ref.log_prob_micro_batch_size_per_gpu)
        return super()._compute_ref_log_prob(batch, metrics)

    def _fit_micro_batch(self, batch: KVBatchMeta, configured: int | None) -> None:
        """verl asserts that the rows of a rank divide into micro-batches of the configured size."""
        shape = self._now.shape
        if shape is not None and configured is not None:
            batch.extra_info["micro_batch_size_per_gpu"] = largest_divisor(shape.total // shape.ranks, configured)

    def _deal(self, batch: KVBatchMeta, view: Batch, decision: UpdateDecision) -> None:
        """Give every mini-batch its share of the rows that count."""
        shape, actor = self._now.shape, self.config.actor_rollout_ref.actor
        ranks = shape.ranks if shape else self._ranks
        mini_batches = shape.mini_batches if shape else self._optimizer_steps(len(batch)) // actor.ppo_epochs
        idle, masked = idle_rows(view, decision)
        if not bool(idle.any()) or (mini_batches == 1 and not masked):
            return
        at_rest = is_padding(batch)
        at_rest[~at_rest] = idle.numpy()
        self._now.masked = masked
        averaged = len(view) - masked if masked else (shape.rows if shape else len(batch))
        self._now.shape = StepShape.refit(len(batch), int((~at_rest).sum()), ranks, mini_batches, averaged)
        order = self._permutation(len(batch)) if actor.shuffle else np.arange(len(batch))
        order = order[self._now.shape.deal(at_rest[order])]
        tokens = take_rows(response_offsets(batch), torch.from_numpy(order))[0]
        self._now.columns = {name: values[tokens] for name, values in self._now.columns.items()}
        batch.reorder(order.tolist())
        self._now.metrics["dataflex/optimizer_steps"] = float(self._optimizer_steps(len(batch)))

    def _update_critic(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        shape = self._now.shape
        if shape is None or not self._now.masked:
            return super()._update_critic(batch, metrics)

        def average_what_is_left(batch: KVBatchMeta) -> None:
            info = batch.extra_info
            if info["mini_batch_size"] % shape.mini_batch_size:  # rows were dealt to the actor's mini-batches
                info["mini_batch_size"] = shape.mini_batch_size
            info["global_batch_size"] = info["mini_batch_size"] * shape.mini_batch_rows / shape.mini_batch_size
            info["dataloader_kwargs"] = {"shuffle": False}

        with before_dispatch(self.critic_wg, "train_mini_batch", average_what_is_left):
            return super()._update_critic(batch, metrics)

    @property
    def _ranks(self) -> int:
        """Data-parallel ranks of the actor."""
        return max(self.actor_rollout_wg._dispatch_info["actor"]) + 1

    def _permutation(self, rows: int) -> np.ndarray:
        """A shuffle to be made here instead of in the worker, which would undo the dealing of rows."""
        seed = self.config.actor_rollout_ref.actor.data_loader_seed or 0
        return np.random.default_rng([seed, self.global_steps]).permutation(rows)
