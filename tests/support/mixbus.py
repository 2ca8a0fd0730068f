"""A run that draws, on the bus and without a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from mixlearner import Learner
from torch import Tensor

from dataflex_events import Batch, Groups, RunFacts, StepDriver, StepId
from dataflex_events.plan import Plan, make_plan
from dataflex_events.pools import DomainTable
from dataflex_events.prompts import PromptDraw
from dataflex_events.testing import make_batch


class Run:
    """Steps of a run that draws from its domains, in the order that a synchronous trainer has."""

    def __init__(self, block: Mapping[str, Any], names: Sequence[str], *, rows: int = 40) -> None:
        self.plan: Plan = make_plan(block)
        assert self.plan.mix is not None
        self.mix = self.plan.mix
        codes = np.repeat(np.arange(len(names)), rows)
        self.table = DomainTable.from_codes(codes, names)
        self.mix.begin(self.table.names, torch.from_numpy(self.table.shares))
        self.draw = PromptDraw(self.table, seed=0)
        self.driver = StepDriver(self.plan.bus(), RunFacts(), shadow=self.plan.settings.shadow)
        self.step = 0

    def next_draw(self, prompts: int) -> tuple[list[str], Tensor | None]:
        sizes = torch.from_numpy(self.table.sizes)
        shares = self.driver.buffer_sample(StepId(self.step), prompts, self.table.names, sizes).proportions
        self.planned = self.draw.plan(prompts, None if shares is None else shares.numpy())
        return [self.table.names[code] for code in self.planned.domains], shares

    def finish(self, batch: Batch) -> None:
        groups = Groups(torch.from_numpy(self.planned.rows), ("finished",) * batch.groups)
        self.driver.groups_finished(StepId(self.step), batch, groups)

    def end(self, batch: Batch) -> dict[str, float]:
        self.driver.rollout_done(StepId(self.step), batch)
        self.driver.advantage_computed(StepId(self.step), batch)
        return self.driver.step_end(StepId(self.step))

    def take_step(self, learner: Learner, prompts: int = 16, rollouts: int = 8) -> dict[str, float]:
        self.step += 1
        domains, _ = self.next_draw(prompts)
        batch = named(learner.answer(domains, rollouts), self.table.names)
        self.finish(batch)
        return self.end(batch)


def named(batch: Batch, names: Sequence[str], rows: Sequence[int] | None = None) -> Batch:
    """The batch with the codes of the run's domains, and a dataset row for each group."""
    code = torch.tensor([names.index(name) for name in batch.domains], dtype=torch.int64)[batch["domain"]]
    row_id = batch.uid if rows is None else torch.tensor(rows)[batch.uid]
    fields = {name: batch[name] for name in ("rm_scores", "response_mask", "advantages")}
    return Batch.build(
        offsets=batch.offsets,
        uid=batch.uid,
        session=batch.session,
        output=torch.zeros(len(batch), dtype=torch.int64),
        token_fields=fields,
        row_fields={"domain": code, "row_id": row_id},
        domains=names,
    )


def block(name: str, scorer: str | None = None, /, **more: Any) -> dict[str, Any]:
    params = more.pop("params", {})
    if scorer is not None:
        more.setdefault("scorer", {"name": scorer})
    return {"mechanism": "mix", "actuator": {"name": name, "params": params}, **more}


REWARDS = [[1, 0], [1, 1]]  # a group of domain a, a group of domain b


def step(run: Run, rewards: Sequence[Sequence[float]] = REWARDS, rows: Sequence[int] = (0, 40)) -> dict[str, float]:
    run.step += 1
    run.next_draw(2)
    batch = named(make_batch(rewards, domains=["a", "b"]), ("a", "b"), rows)
    run.finish(batch)
    return run.end(batch)
