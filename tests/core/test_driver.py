"""A step from event to event."""

import pytest
import torch

from dataflex_events import (
    AdvantageComputed,
    EventBus,
    HandlerError,
    RolloutDone,
    RunFacts,
    StepDriver,
    StepId,
    make_plan,
    on,
)
from dataflex_events.testing import Recorder, make_batch

STEP = StepId(1)
BAND = {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}}
SOFTMAX = {"mechanism": "reweight", "scorer": {"name": "advantage_magnitude"}, "actuator": {"name": "softmax"}}
# Solve rates 1/2, 1, 0, 1/2: the band between 0 and 1 keeps the first and the last group.
REWARDS = [[1, 0], [1, 1], [0, 0], [0, 1]]


def driver(*policies, bus=None, **facts):
    bus = bus or (make_plan({"policies": list(policies)}).bus() if policies else EventBus())
    return StepDriver(bus, RunFacts(**facts))


def test_the_events_of_a_run_in_their_order():
    one = driver(BAND, SOFTMAX)
    recorder = Recorder(one.bus)
    one.start()
    one.step(STEP, make_batch(REWARDS))
    one.end(STEP)
    # The recorder was attached last, so it sees an event after the scores that were announced because of it.
    assert recorder.names == [
        "RunStart",
        "ScoreReady",
        "RolloutDone",
        "ScoreReady",
        "ScoreReady",
        "AdvantageComputed",
        "StepEnd",
        "RunEnd",
    ]
    assert {event.step for event in recorder.events[1:]} == {STEP}


def test_rows_leave_at_rollout_done_and_the_rest_goes_on():
    seen = []
    one = driver(BAND)
    one.bus.subscribe(AdvantageComputed, seen.append, fields=["reward"])
    result = one.step(STEP, make_batch(REWARDS))
    assert result.keep.int().tolist() == [1, 1, 0, 0, 0, 0, 1, 1]
    assert seen[0].batch["reward"].tolist() == [1, 0, 0, 1]
    assert seen[0].batch.uid.tolist() == [0, 0, 1, 1]
    assert result.weights is None
    assert result.metrics["dataflex/kept_frac"] == 0.5
    assert result.metrics["dataflex/kept_rows"] == 4.0
    assert result.metrics["dataflex/reward_before_select"] == 0.5


def test_at_advantage_computed_rows_get_weight_zero():
    result = driver({**BAND, "apply": "weight"}).step(STEP, make_batch(REWARDS))
    assert result.keep is None
    # 3 tokens a row; half of all tokens are left, so each counts double.
    assert result.weights.tolist() == [2.0] * 6 + [0.0] * 12 + [2.0] * 6
    assert result.metrics["dataflex/kept_frac"] == 0.5
    assert result.metrics["dataflex/weight_mean"] == 1.0
    assert result.metrics["dataflex/weight_std"] == 1.0
    assert result.metrics["dataflex/weight_ess_frac"] == 0.5


@pytest.mark.parametrize(("group_baseline", "left"), [(True, [0, 0, 1, 1]), (False, [1, 0, 1, 1])])
def test_a_group_may_be_left_with_one_row_only_without_a_group_baseline(group_baseline, left):
    bus = EventBus()
    bus.subscribe(RolloutDone, lambda event: event.context.keep(torch.tensor([True, False, True, True])))
    result = driver(bus=bus, group_baseline=group_baseline).step(STEP, make_batch([[1, 0], [1, 0]]))
    assert result.keep.int().tolist() == left


def test_a_plain_function_may_weigh():
    @on(AdvantageComputed, fields=["advantages"])
    def prefer_surprises(event):
        event.context.weigh(event.batch["advantages"].abs(), normalize="token")

    bus = EventBus()
    bus.attach(prefer_surprises)
    result = driver(bus=bus).step(STEP, make_batch([[1, 0, 0, 0]], lengths=[1, 1, 1, 1]))
    # |advantages| .75, .25, .25, .25: mean .375.
    torch.testing.assert_close(result.weights, torch.tensor([0.75, 0.25, 0.25, 0.25]) / 0.375)


def test_nothing_is_left_over_in_the_next_step():
    one = driver({**BAND, "apply": "weight"})
    first = one.step(STEP, make_batch(REWARDS))
    second = one.step(StepId(2), make_batch([[1, 0]]))
    third = one.step(StepId(3), make_batch(REWARDS))
    assert second.weights.tolist() == [1.0] * 6
    assert third.weights.tolist() == first.weights.tolist()
    assert third.metrics.keys() == first.metrics.keys()


def test_a_step_may_begin_at_advantage_computed():
    # An adapter does not read the batch for `rollout_done` if nobody listens.
    one = driver(SOFTMAX)
    assert one.rollout_fields == frozenset()
    assert one.advantage_computed(STEP, make_batch([[1, 0]])) is not None
    assert "dataflex/weight_mean" in one.step_end(STEP)


def test_such_a_step_remembers_nothing_of_the_one_before():
    one = driver(SOFTMAX)
    one.bus.subscribe(RolloutDone, lambda event: event.context.keep(torch.arange(8) < 4))
    before = one.step(STEP, make_batch(REWARDS)).metrics
    one.advantage_computed(StepId(2), make_batch([[1, 0]]))
    metrics = one.step_end(StepId(2))
    assert before["dataflex/kept_frac"] == 0.5
    assert "dataflex/kept_frac" not in metrics
    assert "dataflex/reward_before_select" not in metrics


def test_only_declared_fields_are_asked_for():
    one = driver(BAND, SOFTMAX)
    assert one.rollout_fields == {"reward"}
    assert one.update_fields == {"advantages", "response_mask"}


def test_rows_must_name_every_row_of_the_batch():
    one = driver(BAND)
    batch = make_batch(REWARDS)
    one.rollout_done(STEP, batch)
    with pytest.raises(ValueError, match="the batch has 2 rows, but `rows` names 8"):
        one.advantage_computed(STEP, batch.take(torch.tensor([0, 1])))


def test_an_empty_batch():
    result = driver(BAND, SOFTMAX).step(STEP, make_batch([]))
    assert result.keep.tolist() == []
    assert result.weights.tolist() == []
    assert "dataflex/nonfinite/metrics" not in result.metrics


def test_the_run_end_knows_the_error():
    one = driver()
    recorder = Recorder(one.bus)
    error = RuntimeError("out of memory")
    one.end(STEP, error)
    assert recorder.events[0].error is error


def test_an_error_says_at_which_step():
    bus = EventBus()
    bus.subscribe(RolloutDone, lambda event: 1 / 0, name="broken")
    with pytest.raises(HandlerError, match="'broken' failed at rollout_done, step 12: ZeroDivisionError"):
        driver(bus=bus).step(StepId(12), make_batch([[1, 0]]))
