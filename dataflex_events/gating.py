"""A gate policy: what became of each prompt is remembered, and a gate decides by it which prompts are generated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dataflex_events.batch import Batch
from dataflex_events.bus import Attachment, EventBus, Subscription
from dataflex_events.errors import HandlerOutputError
from dataflex_events.events import BufferSample, Groups, GroupsFinished, RunStart, StepEnd
from dataflex_events.fields import OUTCOME
from dataflex_events.gate import Gate
from dataflex_events.pools import DomainTable
from dataflex_events.prompt_stats import PromptStats
from dataflex_events.prompts import Planned
from dataflex_events.segments import EQUAL, group_moments


@dataclass(slots=True, eq=False)
class GatePolicy:
    """Remembers what became of every prompt, and lets a gate choose which ones are generated.

    What was generated up to the end of a step counts for the draws of the next one.

    Attributes:
        name: Names the policy in logs.
        gate: Decides.
        signal: What tells how a rollout went: "reward", or the name of another value that the reward function returns.
        success_threshold: A rollout with a signal above it succeeded.
        warmup_step: Steps at the beginning of the run in which prompts are drawn without the gate.
        update_step: From then on the gate acts in one step of so many.
        shadow: What the gate would draw is logged and not applied.
        path: Where it stands in the configuration.
        stats: What is known about each row of the dataset; there after `begin`.
    """

    name: str
    gate: Gate
    signal: str = "reward"
    success_threshold: float = 0.5
    warmup_step: int = 0
    update_step: int = 1
    shadow: bool = False
    path: str = ""
    stats: PromptStats = field(init=False, repr=False)
    _bus: EventBus = field(init=False, repr=False)
    _proposes: Subscription[BufferSample] = field(init=False, repr=False)
    _proposed: BufferSample = field(init=False, repr=False)
    _rollouts: int = field(default=1, init=False, repr=False)
    _seen: int = field(default=0, init=False, repr=False)
    _known: int = field(default=0, init=False, repr=False)
    _counts: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    @property
    def reads(self) -> str:
        """The batch field that tells how a rollout went."""
        return "reward" if self.signal == "reward" else f"{OUTCOME}{self.signal.removeprefix(OUTCOME)}"

    def begin(self, table: DomainTable, columns: Mapping[str, NDArray[np.float64]]) -> None:
        """Learn the data, before the first draw.

        Args:
            table: The rows of each domain.
            columns: `(R,)` values of the columns that the gate asks for.

        Raises:
            ValueError: They do not fit.
        """
        gate = self.gate
        if gate.looks < 1 or not 0 <= gate.explore_share <= 1:
            message = f"looks at {gate.looks} prompts for each, and explores a share of {gate.explore_share}"
            raise ValueError(f"the gate {message}: it should look at 1 or more, and the share be in [0, 1]")
        self.stats = PromptStats(len(table.codes), decay=gate.forgets)
        self.gate.begin(table, columns)

    def subscribe(self, bus: EventBus) -> None:
        """Count groups, propose the gate at draws, let the statistics take effect at the end of a step."""
        owner = Attachment()
        bus.subscribe(RunStart, self._start, name=self.name, owner=owner)
        bus.subscribe(GroupsFinished, self._count, name=self.name, fields=(self.reads, "row_id"), owner=owner)
        self._bus = bus
        self._proposes = bus.subscribe(BufferSample, self._propose, name=self.name, owner=owner)
        bus.subscribe(StepEnd, self._commit, name=self.name, owner=owner)

    def attempt(self, plan: Callable[[], Planned]) -> Planned | None:
        """Make a plan with the gate and note what came of it; None if the gate failed and is detached."""
        planned = self._bus.attempt(self._proposes, self._proposed, plan)
        if planned is not None:
            self._note(planned)
        return planned

    def _note(self, planned: Planned) -> None:
        skipped = self.stats.look(planned.skipped)
        # Of every so many candidates one is drawn anyway, whatever it is.
        spared = int((skipped.streak != 0).sum()) * self._rollouts / self.gate.looks
        counts = {
            "dataflex/gate/drawn": len(planned.rows),
            "dataflex/gate/skipped": len(planned.skipped),
            "dataflex/gate/explored": planned.explored,
            "dataflex/rollouts_saved": spared,
        }
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0.0) + count

    def _start(self, event: RunStart) -> None:
        self._rollouts = event.run.rollouts_per_prompt

    def _count(self, event: GroupsFinished) -> None:
        groups = outcomes(event.batch, event.groups, self.reads, self.success_threshold)
        self._seen += int(event.batch.last_output.sum())
        self._known += int(groups[1].sum())
        self.stats.add(*(column.numpy() for column in groups))

    def _propose(self, event: BufferSample) -> None:
        if event.step.is_due(self.warmup_step, self.update_step):
            self._proposed = event
            event.context.gate(self, shadow=self.shadow)

    def _commit(self, event: StepEnd) -> None:
        if self._seen and not self._known and self.signal != "reward":
            what = f"none of the {self._seen} rollouts of this step has a finite value {self.signal!r}"
            raise HandlerOutputError(f"{what} beside the reward, by which the gate goes")
        self._seen = self._known = 0
        groups = self.stats.commit()
        self.gate.update(groups)
        event.metrics.update(self._counts)
        if self.shadow:
            event.metrics[f"dataflex/policy/{self.name}/shadow"] = 1.0
        self._counts = {}

    def state_dict(self) -> dict[str, Any]:
        """The statistics. The gate has a state of its own."""
        return self.stats.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            ValueError: It is not the state of such a policy on this data.
        """
        self.stats.load_state_dict(state)


def outcomes(batch: Batch, groups: Groups, signal: str, threshold: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What became of each group: `(rows, rollouts, successes, equal)`, as `PromptStats.add` takes them.

    A rollout whose signal is not finite does not count. A session with several outputs is one rollout.

    Args:
        batch: The trajectories, with the fields `row_id` and `signal`.
        groups: The G groups.
        signal: Name of the field that tells how a rollout went.
        threshold: A signal above it is a success.
    """
    size = len(groups)
    value = batch[signal].to(torch.float32)  # in which .1 is not above .1
    counted = batch.last_output & value.isfinite()
    rows = groups.row_id.clone()
    rows[batch.uid] = batch["row_id"]
    rollouts = torch.bincount(batch.uid[counted], minlength=size)
    successes = torch.bincount(batch.uid[counted & (value > threshold)], minlength=size)
    equal = torch.zeros(size, dtype=torch.bool)
    if counted.any():
        known = value.where(counted, value.new_zeros(()))
        _, std = group_moments(known, batch.uid, counted, tolerance=EQUAL)
        equal[batch.uid] = std == 0
    return rows, rollouts, successes, equal
