"""The part of our trainer that decides which prompts are drawn, and learns what became of each."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from torchdata.stateful_dataloader import StatefulDataLoader
from transfer_queue.metadata import KVBatchMeta

from dataflex_events.adapters.verl.checkpoint import checkpoint_folder, restore, save
from dataflex_events.adapters.verl.dataset import ROW_COLUMN, RowIds, domain_codes, fingerprint
from dataflex_events.adapters.verl.gates import begin_gate, warn_if_seen_once, whole_dataset
from dataflex_events.adapters.verl.groups import TRAIN, GroupWatch, uid_of
from dataflex_events.adapters.verl.loader import PlannedLoader, PlanSampler
from dataflex_events.adapters.verl.refill import Refilling
from dataflex_events.adapters.verl.rows import read_batch
from dataflex_events.domains import domain_table
from dataflex_events.draw import DrawDecision
from dataflex_events.driver import StepDriver
from dataflex_events.errors import ConfigError, ConfigIssue, VerificationError
from dataflex_events.events import Fate, Groups, StepId
from dataflex_events.plan import Plan
from dataflex_events.pools import DomainTable
from dataflex_events.prompts import PromptDraw

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer as _Trainer
else:
    _Trainer = object  # verl's own comes behind the mixins

logger = logging.getLogger("dataflex")


class DrawnPrompts(_Trainer):
    """Draws what the plan's mix and gate policies want. Without a block it changes nothing."""

    config: DictConfig
    train_dataset: Any
    train_dataloader: Any
    train_dataloader_it: Any
    total_training_steps: int
    _driver: StepDriver | None
    _plan: Plan
    _table: DomainTable | None = None  # of the mix policy
    _draw: PromptDraw | None = None
    _shadow_draw: PromptDraw | None = None  # shows what a gate would do
    _refilling: Refilling | None = None

    def _step_id(self) -> StepId:
        return StepId(self.global_steps, self.local_trigger_step)

    # ------------------------------------------------------------------ the data

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        self._rows: dict[str, int] = {}  # of the prompts that are being generated, by uid
        self._drawn: list[int] = []  # rows that this step has drawn through the gate
        self._drawn_at = -1
        if self._driver is None:
            return
        mix, gate = self._plan.mix, self._plan.gate
        if mix is not None or gate is not None:
            self._require_a_batch()
        if mix is not None:
            found, codes = domain_codes(self.train_dataset, mix.domain_key, f"{mix.path}.domain_key")
            self._table = domain_table(found, codes, mix)
            mix.begin(self._table.names, torch.from_numpy(self._table.shares))
        table = self._table if mix is not None and not mix.shadow else None
        if gate is not None:
            table = table or whole_dataset(len(self.train_dataset))
            begin_gate(gate, self.train_dataset, table)
            warn_if_seen_once(gate, table, self.total_training_steps * self.config.data.train_batch_size)
        self._fingerprint = fingerprint(self.train_dataset)
        if mix is not None or gate is not None or self._driver.knows_rows:
            self._load_by_row(table)

    def _require_a_batch(self) -> None:
        size, batch = len(self.train_dataset), self.config.data.train_batch_size
        if size < batch:
            message = f"is {batch}, and the data has {size} rows: verl cannot make an epoch of that"
            raise ConfigError([ConfigIssue("data.train_batch_size", message)])

    def _load_by_row(self, table: DomainTable | None) -> None:
        """Replace verl's loader by one whose rows know their number, and that follows the plan if there is one."""
        theirs = self.train_dataloader
        self.train_dataset = RowIds(self.train_dataset)
        same = {"batch_size": theirs.batch_size, "collate_fn": theirs.collate_fn, "drop_last": theirs.drop_last}
        self.train_dataloader_it = None
        data = self.config.data
        order: dict[str, Any] = {"seed": data.get("seed") or 0, "shuffle": bool(data.shuffle)}
        gate = self._plan.gate
        if table is not None and gate is not None and gate.shadow:
            self._shadow_draw = PromptDraw(table, **order)
        if table is None or not self._plan.draws:
            self.train_dataloader = StatefulDataLoader(
                self.train_dataset, sampler=theirs.sampler, num_workers=theirs.num_workers, **same
            )
            return
        if theirs.num_workers:
            message = "data.dataloader_num_workers=%d is set to 0: prompts fetched ahead would follow past proportions"
            logger.warning(message, theirs.num_workers)
        self._draw = PromptDraw(table, **order)
        self._sampler = PlanSampler(len(self.train_dataset))
        self.train_dataloader = PlannedLoader(self.train_dataset, sampler=self._sampler, num_workers=0, **same)

    # ------------------------------------------------------------------ buffer_sample: prompts are drawn

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        driver, table = self._driver, self._table
        if driver is None or not (self._draw is not None or driver.draws or driver.knows_rows):
            return super()._next_train_batch(num_prompts)
        count = self.config.data.train_batch_size if num_prompts is None else num_prompts
        decision = DrawDecision()
        if driver.draws and table is None:
            decision = driver.buffer_sample(self._step_id(), count)
        elif driver.draws and table is not None:
            decision = driver.buffer_sample(self._step_id(), count, table.names, torch.from_numpy(table.sizes))
        with driver.timed():
            planned = self._plan_rows(count, decision, refill=num_prompts is not None)
        batch = super()._next_train_batch(num_prompts)
        if not isinstance(self.train_dataset, RowIds):
            return batch
        rows = [int(row) for row in batch[ROW_COLUMN]]
        if self._draw is not None and rows != planned:
            raise VerificationError(f"verl drew the rows {rows} of the data, where {planned} were planned")
        if driver.watches_groups:
            self._rows.update(zip(map(str, batch["uid"]), rows, strict=True))
        return batch

    def _plan_rows(self, count: int, decision: DrawDecision, *, refill: bool) -> list[int]:
        """Plan the next rows and hand them to the sampler; none if verl draws."""
        if self._drawn_at != self.global_steps:
            self._drawn_at, self._drawn = self.global_steps, []
        rows: list[int] = []
        # How many prompts a refill asks for at once is a matter of timing: one by one they are always the same.
        singly = refill and self._refilling is not None and not self._refilling.refill.eager
        for draw, gate in ((self._draw, decision.gate), (self._shadow_draw, decision.shadow_gate)):
            if draw is None:
                continue
            shares = None if decision.proportions is None else decision.proportions.numpy()
            for number in [1] * count if singly else [count]:
                planned = None
                if gate is not None:
                    planned = gate.attempt(functools.partial(draw.plan, number, shares, gate, self._drawn))
                    gate = None if planned is None else gate  # it failed, and the run goes on without it
                if planned is None:
                    planned = draw.plan(number, shares)
                if draw is self._draw:
                    rows.extend(planned.rows.tolist())
                if gate is not None:
                    self._drawn.extend(planned.rows.tolist())
        if self._draw is not None:
            self._sampler.planned.extend(rows)
        return rows

    # ------------------------------------------------------------------ groups_finished: what became of them

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        driver = self._driver
        if driver is None or not driver.watches_groups:
            return buffer
        refill = self._plan.refill
        if refill is not None:
            filters = self.config.algorithm.get("filter_groups") or {}
            self._refilling = Refilling(
                buffer,
                refill,
                filters=bool(filters.get("enable", False)),
                most_in_flight=_positive(filters.get("max_inflight_gen_batches")),
                account=lambda: driver.account,
            )
        evict = None if self._refilling is None else self._refilling.evict
        GroupWatch(buffer, self._groups_finished, evict)
        return buffer

    def _groups_finished(self, fates: Mapping[str, Fate], trajectories: Mapping[str, dict[str, Any]]) -> set[str]:
        """Publish the event. Returns the groups that shall be replaced."""
        driver = self._driver
        assert driver is not None
        with driver.timed():
            keys = sorted(trajectories)
            meta = KVBatchMeta(partition_id=TRAIN, keys=keys, tags=[trajectories[key] for key in keys])
            # A reward function may return a value for some prompts only, and these may be others.
            batch = read_batch(meta, driver.group_fields | {"row_id"}, self._table, partial=True)
            # Groups in the order of their numbers in the batch, then those of which nothing came.
            there = sorted(set(map(uid_of, keys)))
            uids = [*there, *sorted(fates.keys() - set(there))]
            row_id = torch.tensor([self._rows.pop(uid, -1) for uid in uids], dtype=torch.int64)
            came = batch["row_id"]
            drawn = row_id[batch.uid]
            wrong = ((drawn >= 0) & (came != drawn)).nonzero().flatten()
            if len(wrong):
                first = int(wrong[0])
                message = f"a rollout came back for row {came[first]} of the data, its prompt was row {drawn[first]}"
                raise VerificationError(message)
            groups = Groups(row_id, tuple(fates[uid] for uid in uids))
            kept = driver.groups_finished(self._step_id(), batch, groups)
            return set() if kept is None else {uid for uid, stays in zip(uids, kept.tolist(), strict=True) if not stays}

    # ------------------------------------------------------------------ checkpoints

    def _save_checkpoint(self) -> None:
        if self._driver is not None:  # before verl marks the checkpoint as complete
            folder = checkpoint_folder(self.config, self.global_steps, latest=True)
            save(folder, self._plan, self._draw, self._fingerprint, self.global_steps)
        super()._save_checkpoint()

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        if self._driver is not None and self.global_steps > 0:
            folder = checkpoint_folder(self.config, self.global_steps)
            restore(folder, self._plan, self._draw, self._fingerprint, self.global_steps)


def _positive(value: Any) -> int:
    """verl looks at the value only where its own filter is on."""
    return value if isinstance(value, int) and value > 0 else 1
