"""The bill of a step, by hand."""

from gatebus import GateRun, gate_block

from dataflex_events import AdvantageComputed, EventBus, RunFacts, StepDriver, StepId, on
from dataflex_events.bill import Bill
from dataflex_events.testing import make_batch


def test_the_bill_by_hand():
    run = GateRun(gate_block())
    # Group 1 differs, group 2 does not, group 3 differs by float noise only.
    batch = make_batch([[1, 0, 0, 0], [1, 1, 1, 1], [0.9, 0.9 + 6e-8, 0.9, 0.9]], row_ids=[1, 2, 3])
    run.finish(batch)
    run.finish(make_batch([[1, 0]], row_ids=[4]))  # and does not get into the batch
    metrics = run.end(batch)
    assert (metrics["dataflex/rollouts_generated"], metrics["dataflex/rollouts_useful"]) == (14, 4)


def test_a_mask_and_a_run_in_shadow_are_billed():
    batch = make_batch([[1, 0], [0, 1]])

    @on(AdvantageComputed)
    def first(event: AdvantageComputed) -> None:
        event.context.keep(event.batch.uid == 0, apply="mask")

    for shadow, useful in ((False, 2), (True, 4)):
        bus = EventBus()
        bus.attach(first)
        Bill(shadow=shadow).subscribe(bus)
        driver = StepDriver(bus, RunFacts(group_baseline=True), shadow=shadow)
        driver.start()
        assert driver.step(StepId(1), batch).metrics["dataflex/rollouts_useful"] == useful
