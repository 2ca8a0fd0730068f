"""A run with a gate or a refill, on the bus and without a trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dataflex_events import Batch, DomainTable, DrawDecision, Groups, PromptHistory, RunFacts, StepDriver, StepId
from dataflex_events.gating import GatePolicy
from dataflex_events.plan import Plan, make_plan
from dataflex_events.prompts import Planned, PromptDraw
from dataflex_events.testing import make_batch

ROLLOUTS = 4


def gate_block(name: str = "learnability", /, **more: Any) -> dict[str, Any]:
    return {"mechanism": "gate", "actuator": {"name": name, "params": more.pop("params", {})}, **more}


def band_block(low: float = 0.0, high: float = 1.0, **more: Any) -> dict[str, Any]:
    actuator = {"name": "threshold_band", "params": {"low": low, "high": high}}
    return {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": actuator, **more}


class GateRun:
    """Steps of a run in the order that a synchronous trainer has.

    Attributes:
        decision: How the latest draw was to be made.
        planned: What it came to.
    """

    decision: DrawDecision
    planned: Planned

    def __init__(
        self, block: Mapping[str, Any], *, sizes: Sequence[int] = (40,), columns: Mapping[str, Any] | None = None
    ) -> None:
        self.plan: Plan = make_plan(block)
        names = tuple(f"d{number}" for number in range(len(sizes)))
        self.table = DomainTable.from_codes(np.repeat(np.arange(len(sizes)), sizes), names)
        if self.plan.mix is not None:
            self.plan.mix.begin(names, torch.from_numpy(self.table.shares))
        if self.plan.gate is not None:
            self.plan.gate.begin(self.table, columns or {})
        self.draw, self.shadow = (PromptDraw(self.table, seed=0) for _ in range(2))
        facts = RunFacts(rollouts_per_prompt=ROLLOUTS)
        shadow, refills = self.plan.settings.shadow, self.plan.refill is not None
        self.driver = StepDriver(self.plan.bus(), facts, shadow=shadow, refills=refills)
        self.driver.start()
        self.step = 1

    @property
    def gate(self) -> GatePolicy:
        assert self.plan.gate is not None
        return self.plan.gate

    def known(self, rows: Sequence[int]) -> PromptHistory:
        return self.gate.stats.look(rows)

    def next_draw(self, prompts: int) -> list[int]:
        sizes = torch.from_numpy(self.table.sizes)
        self.decision = self.driver.buffer_sample(StepId(self.step), prompts, self.table.names, sizes)
        shares = None if self.decision.proportions is None else self.decision.proportions.numpy()
        gate, shown = self.decision.gate, self.decision.shadow_gate
        planned = None if gate is None else gate.attempt(lambda: self.draw.plan(prompts, shares, gate))
        self.planned = planned or self.draw.plan(prompts, shares)
        if shown is not None:
            shown.attempt(lambda: self.shadow.plan(prompts, shares, shown))
        return self.planned.rows.tolist()

    def finish(self, batch: Batch, rows: Sequence[int] | None = None) -> torch.Tensor | None:
        """Groups are generated; `rows` name all of them, those without a rollout last."""
        first = dict(zip(batch.uid.tolist(), batch["row_id"].tolist(), strict=True))
        all_rows = [first[code] for code in range(batch.groups)] if rows is None else rows
        fates = ("finished",) * batch.groups + ("failed",) * (len(all_rows) - batch.groups)
        return self.driver.groups_finished(StepId(self.step), batch, Groups(torch.tensor(all_rows), fates))

    def end(self, batch: Batch) -> dict[str, float]:
        """Train on the batch, all of it or what a selection leaves."""
        at = StepId(self.step)
        keep = self.driver.rollout_done(at, batch).keep
        rows = None if keep is None else keep.nonzero().flatten()
        self.driver.advantage_computed(at, batch if rows is None else batch.take(rows), rows)
        metrics = self.driver.step_end(at)
        self.step += 1
        return metrics

    def take_step(self, rewards: Sequence[Sequence[float]], rows: Sequence[int], **more: Any) -> dict[str, float]:
        batch = make_batch(rewards, row_ids=rows, **more)
        self.finish(batch)
        return self.end(batch)
