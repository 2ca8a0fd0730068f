"""A scorer that several policies name is computed once a step; its scores are carried over to rows that are left."""

import pytest
import torch
from toys import RowNumber

from dataflex_events import RunFacts, ScoreReady, StepDriver, StepId, make_plan
from dataflex_events.handlers.scorers.group_solve_rate import GroupSolveRate
from dataflex_events.testing import Recorder, make_batch

STEP = StepId(1)


@pytest.fixture(autouse=True)
def forget_calls():
    RowNumber.calls.clear()


def select(scorer, low=0.0, **more):
    actuator = {"name": "toys:KeepFrom", "params": {"low": low}}
    return {"mechanism": "select", "scorer": scorer, "actuator": actuator, **more}


def reweight(scorer, actuator="toys:AsWeights", **more):
    return {"mechanism": "reweight", "scorer": scorer, "actuator": {"name": actuator}, **more}


def step(*policies, batch, **facts):
    bus = make_plan({"policies": list(policies)}).bus()
    return StepDriver(bus, RunFacts(group_baseline=False, **facts)).step(STEP, batch)


def test_two_policies_with_the_same_scorer_share_one_computation():
    scorer = {"name": "toys:RowNumber", "params": {"start": 10}}
    same = {"name": "toys:RowNumber", "params": {"start": 10.0}}
    step(select(scorer, 11), reweight(same), batch=make_batch([[1, 0, 1]]))
    assert RowNumber.calls == [3]


def test_shared_scores_are_announced_once_an_event():
    bus = make_plan({"policies": [select({"name": "toys:RowNumber"}), reweight({"name": "toys:RowNumber"})]}).bus()
    recorder = Recorder(bus, ScoreReady)
    StepDriver(bus, RunFacts()).step(STEP, make_batch([[1, 0]]))
    assert [type(event.source).__name__ for event in recorder.events] == ["RolloutDone", "AdvantageComputed"]


def test_two_policies_with_different_parameters_do_not():
    step(
        select({"name": "toys:RowNumber"}),
        reweight({"name": "toys:RowNumber", "params": {"start": 1.0}}),
        batch=make_batch([[1, 0]]),
    )
    assert RowNumber.calls == [2, 2]


def test_scores_are_carried_over_to_the_rows_that_are_left():
    # Rows 3, 4 and 5 stay and keep their scores: computed again on three rows, they would be 1, 2 and 3.
    scorer = {"name": "toys:RowNumber"}
    result = step(select(scorer, 3.0), reweight(scorer), batch=make_batch([[1, 0, 1, 0, 1]], lengths=[1] * 5))
    assert RowNumber.calls == [5]
    assert result.keep.int().tolist() == [0, 0, 1, 1, 1]
    assert result.weights.tolist() == [3.0, 4.0, 5.0]


def test_scores_follow_their_rows_when_the_trainer_reorders_them():
    scorer = {"name": "toys:RowNumber"}
    driver = StepDriver(make_plan({"policies": [select(scorer, 3.0), reweight(scorer)]}).bus(), RunFacts())
    batch = make_batch([[1, 0, 1, 0, 1]], lengths=[1, 2, 1, 2, 1])
    driver.rollout_done(STEP, batch)
    rows = torch.tensor([4, 2, 3])
    assert driver.advantage_computed(STEP, batch.take(rows), rows).weights.tolist() == [5.0, 3.0, 4.0, 4.0]


def test_a_group_score_does_not_change_when_rows_of_the_group_leave():
    rate = {"name": "group_solve_rate"}
    # Solve rates 3/4 and 1/2. Dropping rows 1 and 2 would make the first group's 1/2.
    driver = StepDriver(
        make_plan({"policies": [select({"name": "toys:RowNumber"}, 3.0), reweight(rate)]}).bus(), RunFacts()
    )
    batch = make_batch([[1, 1, 1, 0], [1, 0]], lengths=[1] * 6)
    assert driver.rollout_done(STEP, batch).keep.int().tolist() == [0, 0, 1, 1, 1, 1]
    rows = torch.tensor([2, 3, 4, 5])
    weights = driver.advantage_computed(STEP, batch.take(rows), rows).weights
    assert weights.tolist() == [0.75, 0.75, 0.5, 0.5]


def test_a_shared_scorer_is_one_object():
    plan = make_plan({"policies": [select({"name": "group_solve_rate"}), reweight({"name": "group_solve_rate"})]})
    assert isinstance(plan.policies[0].scorer, GroupSolveRate)
    assert plan.policies[0].scorer is plan.policies[1].scorer
