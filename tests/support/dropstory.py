"""What happened in a run, put together from what the probes of `dropkit` and `workerprobe` recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from labrun import Run
from plaingrpo import PlainGrpo, Row, advantages, difference
from torch import Tensor

Record = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Update:
    """One optimizer step: the loss calls before it on all ranks, and what the optimizer did."""

    calls: list[Record]
    gradients: dict[str, Tensor]
    before: dict[str, Tensor]
    after: dict[str, Tensor]
    norm: float

    @property
    def padding(self) -> int:
        """Padding rows."""
        return sum(uid.startswith("pad") for call in self.calls for uid in call["uid"])


@dataclass(frozen=True, eq=False)
class Step:
    """One training step.

    Attributes:
        generated: All trajectories, by prompt in the order of the draw, then by session and output.
        index: Dataset row by uid.
        left: Tags of the rows that were in TransferQueue when the update was done, by key.
        updates: Its optimizer steps.
        metrics: What verl logged.
    """

    generated: list[Row]
    index: dict[str, int]
    left: dict[str, Record]
    updates: list[Update]
    metrics: dict[str, Any]

    @cached_property
    def by_content(self) -> dict[tuple[Any, ...], Row]:
        """Trajectories by what a worker knows of them."""
        return {_content(row.session, row.tokens): row for row in self.generated}

    def received(self, update: Update) -> list[Row]:
        """The trajectories that the workers got in an update, on all ranks, padding rows left out."""
        return [self.find(call, i) for call in update.calls for i in real(call)]

    def find(self, call: Record, row: int) -> Row:
        """The trajectory that is a row of a loss call."""
        return self.by_content[_content(f"{call['uid'][row]}_{call['session'][row]}", call["input_ids"][row])]

    @property
    def trained(self) -> list[Row]:
        """The trajectories that the workers got in the whole step."""
        return [row for update in self.updates for row in self.received(update)]


def _content(session: str, tokens: Tensor) -> tuple[Any, ...]:
    return (session, *tokens.tolist())


def real(call: Record) -> list[int]:
    """Rows of a loss call that are not padding."""
    return [row for row, uid in enumerate(call["uid"]) if not uid.startswith("pad")]


def read(run: Run) -> list[Step]:
    """The finished steps of a run."""
    calls = defaultdict(list)
    for call in run.records("micro"):
        calls[call.pop("update")].append(call)
    updates = [Update(calls[record.pop("update")], **record) for record in run.records("update")]
    steps = []
    # A step that stopped the run did not get to its end.
    for generated, left, metrics in zip(run.records("generated"), run.records("left"), run.metrics, strict=False):
        rows, index = _rows(generated)
        uids = {key.rsplit("_", 2)[0] for key in left["tags"]}  # of padding rows too
        own = [update for update in updates if uids & set(update.calls[0]["uid"])]
        steps.append(Step(rows, index, left["tags"], own, metrics))
    assert sum(len(step.updates) for step in steps) == len(updates), "an update trained rows of several steps"
    return steps


def _rows(generated: Record) -> tuple[list[Row], dict[str, int]]:
    columns = zip(*(generated[name] for name in ("keys", "input_ids", "response_mask", "rm_scores")), strict=True)
    rows = [Row(key, tokens, mask, float(scores.sum())) for key, tokens, mask, scores in columns]
    index = {row.uid: number for row, number in zip(rows, generated["index"], strict=True)}
    return sorted(rows, key=lambda row: (index[row.uid], row.session, row.output)), index


def expected_kept(step: Step, sizes: Sequence[int] = (), band: bool = False) -> set[str]:
    """Keys of the trajectories that a selection must keep, from its rule.

    Args:
        step: The step.
        sizes: How many sessions of each group stay, groups in the order of the draw. Empty: all.
        band: Groups go as well whose rewards are all above 0.5 or all not.
    """
    final: dict[str, dict[str, Row]] = defaultdict(dict)  # uid -> session -> final output
    for row in step.generated:
        final[row.uid][row.session] = row
    kept: set[str] = set()
    for number, sessions in enumerate(final.values()):
        chosen = list(sessions)[: sizes[number]] if sizes else list(sessions)
        solved = [row.reward > 0.5 for row in sessions.values()]
        if band and len(set(solved)) == 1:
            continue
        if len(chosen) > 1 or len(sessions) == 1:  # one alone would be its own baseline
            kept |= set(chosen)
    rows = {row.key for row in step.generated if row.session in kept}
    return rows or {row.key for row in step.generated}


@dataclass(frozen=True)
class Deviation:
    """Relative differences between a worker's optimizer step and the same step by hand."""

    gradient: float
    change: float  # of the parameters


def replay(steps: Sequence[Step], hand: PlainGrpo, *, follow: bool = False) -> list[list[Deviation]]:
    """Train by hand on the rows that the workers got, and compare.

    Args:
        steps: The steps.
        hand: Starts from the same initial model.
        follow: Take the parameters of the workers before each optimizer step instead of going on from one's own. Only
            gradients are comparable then.

    Returns:
        A list of optimizer steps for each step.
    """
    torch.set_num_threads(1)
    return [_replay_step(step, hand, follow) for step in steps]


def _replay_step(step: Step, hand: PlainGrpo, follow: bool) -> list[Deviation]:
    trained = step.trained
    if follow:
        hand.load(step.updates[0].before)
    advantage, old = advantages(trained), hand.fixed_log_probs(trained)
    # Each row of a step weighs the same, also where mini-batches differ by a row.
    divisor = None if hand.loss == "token-mean" else len(trained) / len(step.updates)
    deviations = []
    for update in step.updates:
        if follow:
            hand.load(update.before)
        gradient = hand.gradient(step.received(update), advantage, old, divisor)
        hand.step()
        after, before = hand.parameters(), update.before
        change = {name: after[name] - before[name] for name in after}
        actual = {name: update.after[name] - before[name] for name in after}
        deviations.append(Deviation(difference(update.gradients, gradient), difference(actual, change)))
    return deviations


def initial_model() -> Path:
    """Folder of the model with which every run starts."""
    from dataflex_events.adapters.verl.cpu.lab import LabSettings, build_lab

    return build_lab(LabSettings.tiny()).model
