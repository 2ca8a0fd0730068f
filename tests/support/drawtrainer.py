"""Our hooks around verl's draw, on a stand-in for its trainer that loads, fetches and saves as verl does."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from omegaconf import OmegaConf
from tensordict import NonTensorStack, TensorDict
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from dataflex_events import RunFacts, StepDriver
from dataflex_events.adapters.verl.dataset import ROW_COLUMN
from dataflex_events.adapters.verl.drawing import DrawnPrompts
from dataflex_events.plan import make_plan


class Data:
    """A dataset with a table, as verl's."""

    def __init__(self, **columns: Sequence[Any]) -> None:
        self.dataframe = datasets.Dataset.from_dict(columns)

    def __len__(self) -> int:
        return len(self.dataframe)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return dict(self.dataframe[row])


def collate(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.array([item[name] for item in items], dtype=object) for name in items[0]}


class VerlsTrainer:
    """Of verl's trainer what is about data."""

    global_steps, local_trigger_step = 1, 0
    config: Any

    def _init_dataloader(self) -> None:
        self.train_dataset = Data(**self.columns)
        self.train_dataloader = StatefulDataLoader(
            dataset=self.train_dataset,
            batch_size=self.config.data.gen_batch_size or self.config.data.train_batch_size,
            num_workers=self.config.data.dataloader_num_workers,
            drop_last=True,
            collate_fn=collate,
            sampler=RandomSampler(self.train_dataset),
        )
        self.train_dataloader_it = None
        self.total_training_steps = self.config.trainer.total_training_steps
        self._uids = itertools.count()

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        size = self.train_dataloader.batch_size
        self.train_dataloader_it = self.train_dataloader_it or iter(self.train_dataloader)
        count = num_prompts or self.config.data.train_batch_size
        chunks = [self._fetch() for _ in range(count // size)]
        columns = {name: [value for chunk in chunks for value in chunk[name]] for name in chunks[0]}
        columns["uid"] = [f"uid{next(self._uids)}" for _ in columns["domain"]]
        stacks = {name: NonTensorStack(*values) for name, values in columns.items()}
        return TensorDict(stacks, batch_size=[len(columns["uid"])])

    def _fetch(self) -> dict[str, Any]:
        try:
            return next(self.train_dataloader_it)
        except StopIteration:
            self.train_dataloader_it = iter(self.train_dataloader)
            return next(self.train_dataloader_it)

    def _build_replay_buffer(self) -> ReplayBuffer:
        options = {"refill_fn": self._next_train_batch, "train_batch_size": 4, "gen_batch_size": 1}
        return ReplayBuffer("sync", {}, None, "drop", {}, **options)

    def _save_checkpoint(self) -> None:
        pass

    def _load_checkpoint(self) -> None:
        self.global_steps = self.config.resumed_at


class DrawTrainer(DrawnPrompts, VerlsTrainer):
    """A run that has loaded its data.

    Args:
        block: The `dataflex:` block, or None.
        domains: The domain of each row of the data.
        columns: Other columns of the data.
        steps: How many steps the run takes.
        folder: Where its checkpoints are.
        resumed_at: The step of the checkpoint with which it goes on.
        data: Settings of verl's `data`.
    """

    def __init__(
        self,
        block: dict[str, Any] | None,
        domains: Sequence[str],
        *,
        columns: dict[str, Sequence[Any]] | None = None,
        steps: int = 100,
        folder: Path | None = None,
        resumed_at: int = 0,
        **data: Any,
    ) -> None:
        settings = {"train_batch_size": 4, "gen_batch_size": None, "dataloader_num_workers": 0}
        settings |= {"shuffle": True, "seed": 1}
        self.config = OmegaConf.create(
            {
                "data": {**settings, **data},
                "algorithm": {},
                "trainer": {
                    "total_training_steps": steps,
                    "default_local_dir": str(folder),
                    "resume_mode": "auto",
                },
                "resumed_at": resumed_at,
            }
        )
        self.columns = {"domain": list(domains), **(columns or {})}
        self._driver = None
        if block is not None:
            self._plan = make_plan(block)
            shadow, refills = self._plan.settings.shadow, self._plan.refill is not None
            self._driver = StepDriver(self._plan.bus(), RunFacts(), shadow=shadow, refills=refills)
            self._driver.start()
        self._build_replay_buffer()
        self._init_dataloader()

    def draw(self, count: int | None = None) -> list[str]:
        """The domains of the prompts of the next step."""
        self.global_steps += 1
        return [str(domain) for domain in self._next_train_batch(count)["domain"]]

    def rows(self, count: int | None = None) -> list[int]:
        """The rows of the prompts of the next step."""
        self.global_steps += 1
        return self.more(count)

    def more(self, count: int | None) -> list[int]:
        """The rows of further prompts of the step."""
        return [int(row) for row in self._next_train_batch(count)[ROW_COLUMN]]
