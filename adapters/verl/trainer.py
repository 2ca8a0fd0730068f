"""verl's synchronous trainer with our events in it.

The hooks only translate: verl's batch becomes a `Batch`, `StepDriver` publishes the events and resolves what the
handlers proposed, and the result goes back into verl's batch.
"""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Any, ClassVar

from dataflex_events.adapters.verl import supported  # noqa: F401 - says what is wrong with another verl

# isort: split
import torch
from omegaconf import DictConfig, open_dict
from transfer_queue.metadata import KVBatchMeta
from verl.trainer.ppo.v1.trainer_base import register_trainer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

from dataflex_events.adapters.verl.advantages import over_all, over_kept
from dataflex_events.adapters.verl.apply import apply_decision, quiet_padding
from dataflex_events.adapters.verl.block import TRAINERS, dataflex_block
from dataflex_events.adapters.verl.draw_suitability import drop_upstream_buffer, fetch_singly
from dataflex_events.adapters.verl.drawing import DrawnPrompts
from dataflex_events.adapters.verl.facts import loss_mode, run_facts
from dataflex_events.adapters.verl.losses import channel_of
from dataflex_events.adapters.verl.numbers import BadNumbers
from dataflex_events.adapters.verl.preflight import plan_for
from dataflex_events.adapters.verl.reduced import ReducedSteps, Step, before_dispatch
from dataflex_events.adapters.verl.rows import is_padding, read_batch, remove_rows
from dataflex_events.adapters.verl.shape import largest_divisor
from dataflex_events.adapters.verl.suitability import RECOMPUTABLE, refuse_what_handlers_propose
from dataflex_events.adapters.verl.verify import verify
from dataflex_events.describe import describe
from dataflex_events.driver import StepDriver
from dataflex_events.errors import DataflexError
from dataflex_events.plan import Plan
from dataflex_events.resolve import UpdateDecision
from dataflex_events.upstream import differences

logger = logging.getLogger("dataflex")


class DataflexMixin(DrawnPrompts, ReducedSteps):
    """Goes in front of a verl trainer. Without a `dataflex:` block it changes nothing."""

    base_mode: ClassVar[str]

    def __init__(self, config: DictConfig) -> None:
        block = dataflex_block(config)
        plan = None if block is None else plan_for(config, block)
        # verl compares the mode with its own names in several places; under another name it would take wrong branches.
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.base_mode
        if plan is not None:
            drop_upstream_buffer(config)
            if plan.refill is not None:
                fetch_singly(config)
        self._driver: StepDriver | None = None
        self._now = Step()
        if plan is not None:
            self._use(plan, config)
            names = ", ".join(plan.names) or "none"
            told = describe(plan, run_facts(config), channel_of(loss_mode(config)))
            logger.warning("dataflex-verl %s is active, policies: %s\n%s", version("dataflex-verl"), names, told)
            for difference in differences(plan, block):
                logger.warning("differs from DataFlex-RL: %s", difference)
        super().__init__(config)

    def _use(self, plan: Plan, config: DictConfig) -> None:
        """Set up everything that a block names."""
        run = run_facts(config)
        self._plan = plan
        self._baseline = plan.baseline if run.estimator in RECOMPUTABLE else None
        shadow, refills = plan.settings.shadow, plan.refill is not None
        self._driver = StepDriver(plan.bus(), run, baseline=self._baseline, shadow=shadow, refills=refills)
        self._last_verified: dict[str, int] = {}
        self._bad_numbers = BadNumbers()

    # ------------------------------------------------------------------ the run

    def fit(self, agent_loop_manager: Any) -> None:
        if self._driver is None:
            return super().fit(agent_loop_manager)
        error: BaseException | None = None
        self._driver.start()
        try:
            return super().fit(agent_loop_manager)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._driver.end(self._step_id(), error)

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> KVBatchMeta:
        self._now = Step()
        batch = super()._step_once(metrics, timing_raw, sample_batch_size)
        if self._driver is not None:
            self._now.metrics |= self._driver.step_end(self._step_id())
            if self._refilling is not None:
                self._now.metrics |= self._refilling.metrics
        return batch

    def _compute_metrics(
        self, batch: KVBatchMeta, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        super()._compute_metrics(batch, metrics, timing_raw, global_steps=global_steps, epoch=epoch)
        metrics.update(self._now.metrics)

    # ------------------------------------------------------------------ rollout_done: rows may leave

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> KVBatchMeta:
        if self._driver is None:
            return super()._balance_batch(batch, metrics, *args, **kwargs)
        with self._driver.timed():
            batch = self._select(batch, self._driver)
        batch = super()._balance_batch(batch, metrics, *args, **kwargs)
        padding = is_padding(batch)
        shape = self._now.shape
        if shape is not None:
            batch.reorder(shape.deal(padding).tolist())
        self._now.metrics |= {
            "dataflex/rows": float((~padding).sum()),
            "dataflex/padding_rows": float(padding.sum()),
            "dataflex/optimizer_steps": float(self._optimizer_steps(len(padding))),
        }
        return batch

    def _select(self, batch: KVBatchMeta, driver: StepDriver) -> KVBatchMeta:
        now = self._now
        now.generated = now.kept = list(batch.keys)
        fields = driver.rollout_fields
        if not fields:
            return batch
        if self._baseline == "full":
            fields |= {"rm_scores", "response_mask"}
        now.rollouts = read_batch(batch, fields, self._table)
        self._bad_numbers.rewards(now.rollouts, now.generated, now.metrics)
        keep = driver.rollout_done(self._step_id(), now.rollouts).keep
        if keep is None or bool(keep.all()):
            return batch
        if self.use_critic:  # a policy that drops is refused at start-up; a handler's proposal is known only now
            raise DataflexError("a handler drops rows, but this run trains a critic; propose it at AdvantageComputed")
        batch = remove_rows(batch, keep)
        now.kept = list(batch.keys)
        now.dropped = [key for key, kept in zip(now.generated, keep.tolist(), strict=True) if not kept]
        if self.config.actor_rollout_ref.actor.shuffle:
            batch.reorder(self._permutation(len(batch)).tolist())
        return batch

    # ------------------------------------------------------------------ advantage_computed: weights, masks, baselines

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._compute_advantage(batch, metrics)
        if self._driver is not None:
            with self._driver.timed():
                self._decide(batch, self._driver)
        return batch

    def _decide(self, batch: KVBatchMeta, driver: StepDriver) -> None:
        now, plan = self._now, self._plan
        position = {key: row for row, key in enumerate(now.generated)}
        rows = torch.tensor([position[key] for key in batch.keys if key in position], dtype=torch.int64)
        if now.dropped:
            quiet_padding(batch)
        if now.dropped and self._baseline == "full" and now.rollouts is not None:
            advantages = over_all(self.config, batch, now.rollouts, now.generated, rows)
            now.columns = apply_decision(batch, UpdateDecision(None), advantages=advantages)
        fields = driver.update_fields | ({"advantages"} if plan.may_apply else set())
        view = read_batch(batch, fields, self._table)
        decision = driver.advantage_computed(self._step_id(), view, rows)
        refuse_what_handlers_propose(self.config, decision)
        advantages = {}
        if self._baseline == "subset" and decision.keep is not None and not bool(decision.keep.all()):
            advantages = over_kept(self.config, batch, view, decision.keep)
        muted = None
        if plan.applied or now.dropped or decision.selects or decision.weights is not None:
            keys = [key for key in batch.keys if key in position]
            current = advantages.get("advantages", view["advantages"])
            muted = self._bad_numbers.advantages(view, keys, current, now.metrics)
        if decision.weights is None and decision.mask is None and not advantages and muted is None:
            return
        channel = channel_of(loss_mode(self.config))
        now.columns |= apply_decision(batch, decision, channel=channel, advantages=advantages, muted=muted)
        self._deal(batch, view, decision)

    # ------------------------------------------------------------------ the update

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        if self._driver is None:
            return super()._update_actor(batch, metrics)
        with before_dispatch(self.actor_rollout_wg, "update_actor", self._prepare_update):
            return super()._update_actor(batch, metrics)

    def _prepare_update(self, batch: KVBatchMeta) -> None:
        now, actor = self._now, self.config.actor_rollout_ref.actor
        if now.shape is not None:
            batch.extra_info["mini_batch_size"] = now.shape.mini_batch_size
            batch.extra_info["global_batch_size"] = now.shape.mini_batch_rows
            batch.extra_info["dataloader_kwargs"] = {"shuffle": False}
            if not actor.use_dynamic_bsz:
                micro = largest_divisor(now.shape.cell, actor.ppo_micro_batch_size_per_gpu)
                batch.extra_info["micro_batch_size_per_gpu"] = micro
        effects = {"columns": bool(now.columns), "rows": bool(now.dropped)}
        due = [name for name, applied in effects.items() if applied and self._verification_due(name)]
        if due and self._driver is not None:
            with self._driver.timed():
                verify(batch, self._ranks, now.columns, now.kept, now.dropped)
            now.metrics["dataflex/verified"] = 1.0
            self._last_verified.update((name, self.global_steps) for name in due)

    def _verification_due(self, effect: str) -> bool:
        last, every = self._last_verified.get(effect), self._plan.settings.verify_every
        return last is None or (every > 0 and self.global_steps - last >= every)


class DataflexSync(DataflexMixin, PPOTrainerSync):
    """`dataflex_sync`: verl's trainer mode `sync` with events."""

    base_mode = "sync"


# Here and not in the plugin's callback, which runs in the middle of this module where this module is imported first.
for _name in TRAINERS:
    register_trainer(_name)(DataflexSync)
