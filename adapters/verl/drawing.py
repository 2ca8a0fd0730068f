"""The part of our trainer that decides which prompts are drawn, and learns what became of each."""

from __future__ import annotations

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
from dataflex_events.adapters.verl.groups import TRAIN, GroupWatch, uid_of
from dataflex_events.adapters.verl.loader import PlannedLoader, PlanSampler
from dataflex_events.adapters.verl.rows import read_batch
from dataflex_events.domains import domain_table
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
    """Draws what the plan's mix policy wants. Without a block it changes nothing."""

    config: DictConfig
    train_dataset: Any
    train_dataloader: Any
    train_dataloader_it: Any
    _driver: StepDriver | None
    _plan: Plan
    _table: DomainTable | None = None
    _draw: PromptDraw | None = None

    def _step_id(self) -> StepId:
        return StepId(self.global_steps, self.local_trigger_step)

    # ------------------------------------------------------------------ the data

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        self._rows: dict[str, int] = {}  # of the prompts that are being generated, by uid
        if self._driver is None:
            return
        mix = self._plan.mix
        if mix is not None:
            size, batch = len(self.train_dataset), self.config.data.train_batch_size
            if size < batch:
                message = f"is {batch}, and the data has {size} rows: verl cannot make an epoch of that"
                raise ConfigError([ConfigIssue("data.train_batch_size", message)])
            found, codes = domain_codes(self.train_dataset, mix.domain_key, f"{mix.path}.domain_key")
            self._table = domain_table(found, codes, mix)
            mix.begin(self._table.names, torch.from_numpy(self._table.shares))
        self._fingerprint = fingerprint(self.train_dataset)
        if mix is not None or self._driver.knows_rows:
            self._load_by_row()

    def _load_by_row(self) -> None:
        """Replace verl's loader by one whose rows know their number, and that follows the plan if there is one."""
        theirs = self.train_dataloader
        self.train_dataset = RowIds(self.train_dataset)
        same = {"batch_size": theirs.batch_size, "collate_fn": theirs.collate_fn, "drop_last": theirs.drop_last}
        self.train_dataloader_it = None
        if self._table is None or not self._plan.mixes:
            self.train_dataloader = StatefulDataLoader(
                self.train_dataset, sampler=theirs.sampler, num_workers=theirs.num_workers, **same
            )
            return
        if theirs.num_workers:
            message = "data.dataloader_num_workers=%d is set to 0: prompts fetched ahead would follow past proportions"
            logger.warning(message, theirs.num_workers)
        data = self.config.data
        self._draw = PromptDraw(self._table, seed=data.get("seed") or 0, shuffle=bool(data.shuffle))
        self._sampler = PlanSampler(len(self.train_dataset))
        self.train_dataloader = PlannedLoader(self.train_dataset, sampler=self._sampler, num_workers=0, **same)

    # ------------------------------------------------------------------ buffer_sample: prompts are drawn

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        driver, table = self._driver, self._table
        if driver is None or not (self._draw is not None or driver.draws or driver.knows_rows):
            return super()._next_train_batch(num_prompts)
        count = self.config.data.train_batch_size if num_prompts is None else num_prompts
        shares = None
        if driver.draws and table is None:
            driver.buffer_sample(self._step_id(), count)
        elif driver.draws and table is not None:
            shares = driver.buffer_sample(self._step_id(), count, table.names, torch.from_numpy(table.sizes))
        if self._draw is not None:
            with driver.timed():
                planned = self._draw.plan(count, None if shares is None else shares.numpy()).rows.tolist()
                self._sampler.planned.extend(planned)
        batch = super()._next_train_batch(num_prompts)
        if not isinstance(self.train_dataset, RowIds):
            return batch
        rows = [int(row) for row in batch[ROW_COLUMN]]
        if self._draw is not None and rows != planned:
            raise VerificationError(f"verl drew the rows {rows} of the data, where {planned} were planned")
        if driver.watches_groups:
            self._rows.update(zip(map(str, batch["uid"]), rows, strict=True))
        return batch

    # ------------------------------------------------------------------ groups_finished: what became of them

    def _build_replay_buffer(self) -> Any:
        buffer = super()._build_replay_buffer()
        if self._driver is not None and self._driver.watches_groups:
            GroupWatch(buffer, self._groups_finished)
        return buffer

    def _groups_finished(self, fates: Mapping[str, Fate], trajectories: Mapping[str, dict[str, Any]]) -> None:
        driver = self._driver
        assert driver is not None
        with driver.timed():
            keys = sorted(trajectories)
            meta = KVBatchMeta(partition_id=TRAIN, keys=keys, tags=[trajectories[key] for key in keys])
            batch = read_batch(meta, driver.group_fields | {"row_id"}, self._table)
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
            driver.groups_finished(self._step_id(), batch, Groups(row_id, tuple(fates[uid] for uid in uids)))

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
