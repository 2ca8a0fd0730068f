"""The bill of a step: how many rollouts were generated, and how many of them the policy learnt from."""

from __future__ import annotations

from dataflex_events.bus import Attachment, EventBus
from dataflex_events.events import AdvantageComputed, GroupsFinished, RunStart, StepEnd
from dataflex_events.segments import EQUAL, group_moments, segment_reduce


class Bill:
    """Logs `dataflex/rollouts_generated` and, where the baseline is that of the group, `dataflex/rollouts_useful`.

    Useful are the rollouts that were trained on, in groups whose rewards differ: the others have advantage 0.

    Args:
        shadow: Nothing that handlers propose is applied: all that was generated is trained on.
    """

    def __init__(self, *, shadow: bool = False) -> None:
        self._shadow = shadow
        self._generated = 0
        self._grouped = False

    def subscribe(self, bus: EventBus) -> None:
        """Count at `GroupsFinished` and in the batch that is trained on."""
        owner, name = Attachment(), "bill"
        bus.subscribe(RunStart, self._start, name=name, owner=owner)
        bus.subscribe(GroupsFinished, self._count, name=name, owner=owner)
        bus.subscribe(StepEnd, self._sum, name=name, fields=("reward",), reads_at=AdvantageComputed, owner=owner)

    def _start(self, event: RunStart) -> None:
        self._grouped = event.run.group_baseline

    def _count(self, event: GroupsFinished) -> None:
        self._generated += int(event.batch.last_output.sum())

    def _sum(self, event: StepEnd) -> None:
        event.metrics["dataflex/rollouts_generated"] = float(self._generated)
        self._generated = 0
        trained = (event.rollout or event.update) if self._shadow else event.update
        if trained is None or not self._grouped:
            return
        batch = trained.batch
        _, std = group_moments(batch["reward"], batch.uid, batch.last_output, tolerance=EQUAL)
        useful = batch.last_output & (std > 0)
        for effect in () if self._shadow else (event.weights, event.mask):
            if effect is not None:
                useful &= segment_reduce(effect, batch.offsets, "max") > 0
        event.metrics["dataflex/rollouts_useful"] = float(useful.sum())
