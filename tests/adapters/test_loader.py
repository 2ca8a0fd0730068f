"""The loader that loads what was planned."""

from __future__ import annotations

from typing import Any

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler

from dataflex_events import DataflexError
from dataflex_events.adapters.verl.loader import PlannedLoader, PlanSampler

ROWS = [f"row {row}" for row in range(10)]


def loader(batch_size: int) -> tuple[PlannedLoader, PlanSampler]:
    sampler = PlanSampler(len(ROWS))
    return PlannedLoader(ROWS, sampler=sampler, batch_size=batch_size, drop_last=True, collate_fn=list), sampler


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_it_loads_the_plan_and_never_ahead_of_it(batch_size: int):
    made, sampler = loader(batch_size)
    batches = iter(made)
    for plan in ([3, 3, 0, 9], [1, 2, 3, 4]):
        sampler.planned.extend(plan)
        got = [row for _ in range(4 // batch_size) for row in next(batches)]
        assert got == [ROWS[row] for row in plan]
        assert not sampler.planned


def test_what_nobody_planned_is_not_loaded():
    made, sampler = loader(2)
    batches = iter(made)
    sampler.planned.extend([1, 2])
    next(batches)
    with pytest.raises(DataflexError, match="nobody planned"):
        next(batches)


def verls(workers: int) -> Any:
    return StatefulDataLoader(ROWS, sampler=RandomSampler(ROWS), batch_size=2, num_workers=workers, collate_fn=list)


@pytest.mark.parametrize("workers", [0, 2])
def test_verls_loader_goes_on_over_our_state_and_ours_over_its(workers: int):
    made, sampler = loader(2)
    theirs = verls(workers)
    theirs.load_state_dict(made.state_dict())
    assert len([row for batch in theirs for row in batch]) == 10
    next(iter(theirs))
    made.load_state_dict(theirs.state_dict())
    sampler.planned.extend([5, 6])
    assert next(iter(made)) == ["row 5", "row 6"]
