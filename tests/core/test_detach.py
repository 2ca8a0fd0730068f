"""`on_error: detach`: the step ends as if the failing handler had never been attached."""

import pytest
import torch
from broken import BROKEN, FailsWhileItsOtherMethodRuns, weigh_double

from dataflex_events import AdvantageComputed, EventBus, RunFacts, StepDriver, StepId, make_plan, on
from dataflex_events.testing import make_batch

BLOCK = {
    "policies": [
        {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}},
        {"mechanism": "reweight", "scorer": {"name": "advantage_magnitude"}, "actuator": {"name": "softmax"}},
    ],
    "on_error": "detach",
}
REWARDS = [[1, 0, 0], [1, 1], [0, 1]]


def steps(*makers, block=BLOCK, rewards=REWARDS):
    bus = make_plan(block).bus() if block else EventBus("detach")
    for make in makers:
        bus.attach(make(bus) if make is FailsWhileItsOtherMethodRuns else make())
    driver = StepDriver(bus, RunFacts())
    return bus, [driver.step(StepId(number), make_batch(rewards)) for number in (1, 2)]


def same_results(some, others):
    for one, other in zip(some, others, strict=True):
        for name in ("keep", "weights"):
            mine, its = getattr(one, name), getattr(other, name)
            assert (mine is None) == (its is None)
            assert mine is None or torch.equal(mine, its)
        changing = ("timing_s/dataflex", "dataflex/handler_errors")
        assert {k: v for k, v in one.metrics.items() if k not in changing} == {
            k: v for k, v in other.metrics.items() if k not in changing
        }


@pytest.mark.parametrize("broken", BROKEN, ids=lambda cls: cls.__name__)
def test_the_result_is_that_of_a_run_without_the_handler(broken):
    bus, results = steps(broken)
    _, expected = steps()
    same_results(results, expected)
    assert [result.metrics["dataflex/handler_errors"] for result in results] == [1.0, 1.0]
    assert not any(broken.__name__ in name for _, name in bus.describe())


@pytest.mark.parametrize("broken", BROKEN, ids=lambda cls: cls.__name__)
def test_also_where_it_was_the_only_handler(broken):
    _, results = steps(broken, block=None)
    _, expected = steps(block=None)
    same_results(results, expected)


def test_two_handlers_of_one_class_fail_for_themselves():
    class FailsOnce:
        made = 0

        def __init__(self):
            FailsOnce.made += 1
            self.fails = FailsOnce.made == 2

        @on(AdvantageComputed)
        def handle(self, event):
            weigh_double(event)
            if self.fails:
                raise ValueError

    _, results = steps(FailsOnce, FailsOnce, block=None, rewards=[[1, 0]])
    assert results[0].weights.tolist() == [2.0] * 6  # the proposal of the other one is still there


@pytest.mark.parametrize("place", ["scorer", "actuator"])
def test_a_policy_that_fails_is_as_good_as_not_there(place, monkeypatch):
    plan = make_plan(BLOCK)
    broken, method = (plan.policies[0].scorer, "score") if place == "scorer" else (plan.policies[0].actuator, "select")
    monkeypatch.setattr(type(broken), method, lambda self, *args: 1 / 0)
    result = StepDriver(plan.bus(), RunFacts()).step(StepId(1), make_batch(REWARDS))
    monkeypatch.undo()
    only_second = make_plan({**BLOCK, "policies": BLOCK["policies"][1:]})
    expected = StepDriver(only_second.bus(), RunFacts()).step(StepId(1), make_batch(REWARDS))
    if place == "actuator":  # the scorer still ran and its policy's scores were measured, then forgotten with it
        assert not any("threshold_band" in name for name in result.metrics)
    same_results([result], [expected])


def test_an_actuator_that_fails_leaves_its_scorer_to_others(monkeypatch):
    scorer = {"name": "group_solve_rate"}
    block = {
        "on_error": "detach",
        "policies": [
            {"mechanism": "reweight", "scorer": scorer, "actuator": {"name": "softmax"}},
            {"mechanism": "select", "scorer": scorer, "actuator": {"name": "threshold_band"}},
        ],
    }
    plan = make_plan(block)
    monkeypatch.setattr(type(plan.policies[0].actuator), "weigh", lambda self, *args: 1 / 0)
    result = StepDriver(plan.bus(), RunFacts()).step(StepId(1), make_batch(REWARDS))
    assert result.keep.int().tolist() == [1, 1, 1, 0, 0, 1, 1]
    assert result.weights is None
