"""Handlers of the run that `test_gate_far_end.py` looks at, and what its prompts are called.

Loaded into every process of the run by `VERL_USE_EXTERNAL_MODULES=gateprobe`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from farend import save

from dataflex_events import BufferSample, GroupsFinished, Observer, on
from dataflex_events.adapters.verl.post_import import when_imported
from dataflex_events.handlers.gates.learnability import Learnability

FILE = "rows.jsonl"


@on(GroupsFinished, fields=["reward", "row_id"])
def outcomes(event: GroupsFinished) -> None:
    """Save the rewards of each group, by the prompt's row."""
    batch = event.batch
    rows, rewards = (batch[name].tolist() for name in ("row_id", "reward"))
    record = {"step": event.step.global_step, "rows": rows, "rewards": rewards, "fate": event.groups.fate}
    save("groups", record)


def rewards_by_step(folder: Path, records: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, list[float]]]:
    """By question and step, the rewards of its rollouts.

    Args:
        folder: Of the run.
        records: What `outcomes` saved.
    """
    lines = (folder / "farend" / FILE).read_text().splitlines()
    questions = {row: text for row, text in map(json.loads, lines)}
    found: dict[str, dict[int, list[float]]] = {}
    for record in records:
        for row, reward in zip(record["rows"], record["rewards"], strict=True):
            found.setdefault(questions[row], {}).setdefault(record["step"], []).append(reward)
    return found


def _name_rows(module: Any) -> None:
    getitem = module.RowIds.__getitem__

    def named(self: Any, row: int) -> Any:
        item = getitem(self, row)
        with open(Path(os.environ["FAREND_DIR"]) / FILE, "a") as out:
            print(json.dumps([row, item["raw_prompt"][-1]["content"]]), file=out)
        return item

    module.RowIds.__getitem__ = named


@dataclass
class Blind(Observer):
    """From a step on the gate is blind to pass rates: what the tests must not let pass."""

    step: int

    @on(BufferSample)
    def cut(self, event: BufferSample) -> None:
        if event.step.global_step >= self.step:
            Learnability.chance = lambda gate, prompts: np.ones(len(prompts))  # type: ignore[method-assign]


@dataclass
class Refuse(Observer):
    """From a step on no group is good enough."""

    step: int

    @on(GroupsFinished)
    def refuse(self, event: GroupsFinished) -> None:
        if event.step.global_step >= self.step:
            event.context.keep(torch.zeros(len(event.batch), dtype=torch.bool))


if "FAREND_DIR" in os.environ and "VERL_USE_EXTERNAL_MODULES" in os.environ:
    when_imported("dataflex_events.adapters.verl.dataset", _name_rows)
