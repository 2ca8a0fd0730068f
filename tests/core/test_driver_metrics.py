"""What a step logs."""

import math

import pytest
import torch

from dataflex_events import (
    AdvantageComputed,
    EventBus,
    RolloutDone,
    RunFacts,
    StepDriver,
    StepEnd,
    StepId,
    make_plan,
    on,
)
from dataflex_events.testing import make_batch

STEP = StepId(1)
BAND = {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}}
# Solve rates 1/2, 1, 0, 1/2: the band between 0 and 1 keeps the first and the last group.
REWARDS = [[1, 0], [1, 1], [0, 0], [0, 1]]


def driver(*policies, bus=None):
    return StepDriver(bus or make_plan({"policies": list(policies)}).bus(), RunFacts())


def test_weights_are_measured_over_valid_tokens_only():
    bus = EventBus()

    @on(AdvantageComputed)
    def weigh(event):
        event.context.weigh(torch.tensor([1.0, 99.0, 3.0]))

    bus.attach(weigh)
    batch = make_batch([[1, 0]], lengths=[2, 1], mask=[[1, 0], [1]])
    metrics = driver(bus=bus).step(STEP, batch).metrics
    assert (metrics["dataflex/weight_mean"], metrics["dataflex/weight_max"]) == (2.0, 3.0)


def test_both_selections_of_a_step_are_counted_together():
    # The band drops two groups; the second policy then drops all rows without advantage, here none that is left.
    late = {
        "mechanism": "select",
        "scorer": {"name": "advantage_magnitude"},
        "actuator": {"name": "threshold_band", "params": {"low": 5.0, "high": 6.0}},
    }
    result = driver(BAND, late).step(STEP, make_batch([*REWARDS, [1, 0, 0]]))
    assert result.metrics["dataflex/kept_whole"] == 1.0  # the second would have emptied the batch
    assert result.metrics["dataflex/kept_frac"] == pytest.approx(7 / 11)  # of everything that was generated
    assert result.metrics["dataflex/kept_rows"] == 7.0


def test_lonely_groups_of_the_first_selection_are_not_forgotten_at_the_second():
    bus = EventBus()
    bus.subscribe(RolloutDone, lambda event: event.context.keep(torch.tensor([True, False, True, True])))
    bus.subscribe(AdvantageComputed, lambda event: event.context.keep(torch.tensor([True, True])))
    metrics = driver(bus=bus).step(STEP, make_batch([[1, 0], [1, 0]])).metrics
    assert metrics["dataflex/lonely_groups"] == 1.0


def test_what_handlers_add_at_step_end_is_logged():
    bus = EventBus()

    @on(StepEnd)
    def count(event):
        event.metrics["my/count"] = 3
        event.metrics["my/broken"] = math.nan

    bus.attach(count)
    metrics = driver(bus=bus).step(STEP, make_batch([[1, 0]])).metrics
    assert metrics["my/count"] == 3.0
    assert "my/broken" not in metrics
    assert metrics["dataflex/nonfinite/metrics"] == 1.0


def test_every_step_tells_errors_and_time():
    metrics = driver(bus=EventBus()).step(STEP, make_batch([[1, 0]])).metrics
    assert metrics["dataflex/handler_errors"] == 0.0
    assert 0 < metrics["timing_s/dataflex"] < 60
