import dataclasses
from dataclasses import dataclass

import cloudpickle
import pytest
import torch

from dataflex_events import (
    AdvantageComputed,
    BatchContext,
    Event,
    EventBus,
    FieldError,
    RolloutDone,
    RunEnd,
    RunFacts,
    RunStart,
    ScoreReady,
    ScorerKey,
    StepEnd,
    StepId,
    UpdateContext,
)
from dataflex_events.events import event_name
from dataflex_events.testing import make_batch

BATCH = make_batch([[1, 0], [1, 1]], domains=["math", "code"])
STEP = StepId(3)


def one_of_each():
    rollout = RolloutDone(step=STEP, batch=BATCH, context=BatchContext(BATCH))
    update = AdvantageComputed(step=STEP, batch=BATCH, context=UpdateContext(BATCH))
    update.context.weigh(torch.ones(4), normalize="row", by="policy")
    return [
        RunStart(step=STEP, run=RunFacts()),
        rollout,
        ScoreReady(step=STEP, scorer=ScorerKey("reward"), scores=torch.ones(4), source=rollout),
        update,
        StepEnd(step=STEP, rollout=rollout.context, update=update.context, weights=torch.ones(12), metrics={"a": 1.0}),
        RunEnd(step=STEP, run=RunFacts(), error=ValueError("out of memory")),
    ]


def test_the_names_are_snake_case():
    assert [event_name(type(event)) for event in one_of_each()] == [
        "run_start",
        "rollout_done",
        "score_ready",
        "advantage_computed",
        "step_end",
        "run_end",
    ]


def test_a_step_prints_its_micro_step_only_if_there_is_one():
    assert (str(StepId(4)), str(StepId(4, 2))) == ("step 4", "step 4.2")


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: type(event).__name__)
def test_events_are_frozen(event):
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.step = StepId(9)


@pytest.mark.parametrize("event", one_of_each(), ids=lambda event: type(event).__name__)
def test_events_survive_cloudpickle(event):
    copy = cloudpickle.loads(cloudpickle.dumps(event))
    assert type(copy) is type(event)
    assert copy.step == STEP
    if isinstance(event, RolloutDone | AdvantageComputed):
        assert copy.batch["reward"].tolist() == [1.0, 0.0, 1.0, 1.0]
        assert copy.batch.domains == ("math", "code")
    if isinstance(event, AdvantageComputed):
        assert copy.context.weights["policy"].normalize == "row"
    if isinstance(event, ScoreReady):
        assert copy.source.batch["rm_scores"].tolist() == BATCH["rm_scores"].tolist()
        assert copy.scorer == event.scorer
    if isinstance(event, StepEnd):
        assert copy.metrics == {"a": 1.0}
    if isinstance(event, RunEnd):
        assert str(copy.error) == "out of memory"


def test_an_event_of_ones_own_needs_a_frozen_dataclass_and_nothing_else():
    @dataclass(frozen=True, slots=True, kw_only=True)
    class CheckpointSaved(Event):
        path: str

    seen = []
    bus = EventBus()
    bus.subscribe(CheckpointSaved, seen.append)
    event = CheckpointSaved(step=StepId(10), path="a/b")
    bus.publish(event)
    assert seen == [event]
    assert bus.describe()[0][0] == "checkpoint_saved"


@pytest.mark.parametrize("event", one_of_each()[1:4], ids=lambda event: type(event).__name__)
def test_a_handler_reads_the_fields_that_it_declared_and_no_other(event):
    seen = []
    bus = EventBus()
    bus.subscribe(type(event), seen.append, name="reader", fields=["reward"])
    bus.publish(event)
    batch = seen[0].batch
    assert batch["reward"].tolist() == [1.0, 0.0, 1.0, 1.0]
    with pytest.raises(FieldError, match="handler 'reader' reads the field 'rm_scores' without declaring it"):
        batch["rm_scores"]


def test_at_step_end_too():
    *_, event, _ = one_of_each()
    seen = []
    bus = EventBus()
    bus.subscribe(StepEnd, seen.append, name="reader", fields=["response_mask"])
    bus.publish(event)
    for context in (seen[0].rollout, seen[0].update):
        assert context.batch["response_mask"].sum() == 12
        with pytest.raises(FieldError, match=r"'reader'.*'reward'"):
            context.batch["reward"]
    seen[0].metrics["mine"] = 1.0
    assert event.metrics["mine"] == 1.0  # what is written is the step's own


def test_a_step_may_end_without_any_context():
    seen = []
    bus = EventBus()
    bus.subscribe(StepEnd, seen.append)
    bus.publish(StepEnd(step=STEP, rollout=None, update=None, weights=None, metrics={}))
    assert seen[0].rollout is None
    assert seen[0].update is None
