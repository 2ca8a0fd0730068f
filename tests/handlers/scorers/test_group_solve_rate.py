import math

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragged import samples

from dataflex_events import RunFacts, StepDriver, StepId, make_plan
from dataflex_events.handlers.scorers.group_solve_rate import GroupSolveRate
from dataflex_events.testing import make_batch


def rates(rewards, threshold=0.5, **more):
    return GroupSolveRate(success_threshold=threshold).score(make_batch(rewards, **more)).tolist()


def test_the_worked_example():
    # A reward of exactly .5 counts as a failure.
    assert rates([[1, 0, 0, 0], [1, 1], [0.5]]) == [0.25] * 4 + [1.0, 1.0, 0.0]


def test_the_threshold_is_strict():
    assert rates([[0.2, 0.3]], threshold=0.2) == [0.5, 0.5]
    assert rates([[-1, 0]], threshold=-1) == [0.5, 0.5]


def test_a_group_of_one_is_solved_or_not():
    assert rates([[1], [0]]) == [1.0, 0.0]


@pytest.mark.parametrize("unknown", [math.nan, math.inf, -math.inf])
def test_a_group_with_an_unknown_reward_has_no_score(unknown):
    # An unknown outcome is not a failure, so the group's rate is not 1/3 or 2/3 either.
    first, second = rates([[1, unknown, 0], [1, 0]])[:3], rates([[1, unknown, 0], [1, 0]])[3:]
    assert all(math.isnan(rate) for rate in first)
    assert second == [0.5, 0.5]


def test_a_session_with_several_outputs_counts_once():
    # Sessions with the final rewards 1 and 0; counting rows would give 2/3 or 1/3.
    assert rates([[0, 1, 0]], sessions=[0, 0, 1]) == [0.5] * 3


def test_an_unknown_reward_of_an_output_that_is_not_the_last_does_not_matter():
    assert rates([[math.nan, 1, 0]], sessions=[0, 0, 1]) == [0.5] * 3


def test_the_signal_may_be_another_value_of_the_reward_function():
    # A shaped reward (here with a length penalty) is above .5 for nobody; the outcome itself knows better.
    batch = make_batch([[0.4, -0.2], [0.3]], outcomes={"acc": [[1, 0], [1]]})
    scorer = GroupSolveRate(signal="acc")
    assert scorer.fields == ("outcome/acc",)
    assert scorer.score(batch.only(scorer.fields, "it")).tolist() == [0.5, 0.5, 1.0]
    assert GroupSolveRate().fields == ("reward",)
    assert GroupSolveRate().score(batch).tolist() == [0.0] * 3


def test_an_outcome_is_that_of_the_final_output():
    batch = make_batch([[0, 0, 0]], sessions=[0, 0, 1], outcomes={"acc": [[math.nan, 1, 0]]})
    assert GroupSolveRate(signal="acc").score(batch).tolist() == [0.5] * 3


def test_a_group_with_a_missing_outcome_has_no_score():
    batch = make_batch([[1, 1], [1, 1]], outcomes={"acc": [[1, math.nan], [1, 0]]})
    got = GroupSolveRate(signal="acc").score(batch)
    assert got[:2].isnan().all()
    assert got[2:].tolist() == [0.5, 0.5]


def test_the_signal_must_have_a_name():
    with pytest.raises(pydantic.ValidationError):
        GroupSolveRate(signal="")


def test_a_run_reads_the_column_that_the_parameters_name():
    scorer = {"name": "group_solve_rate", "params": {"signal": "acc"}}
    plan = make_plan({"mechanism": "select", "scorer": scorer, "actuator": {"name": "threshold_band"}})
    driver = StepDriver(plan.bus(), RunFacts())
    assert "outcome/acc" in driver.rollout_fields
    batch = make_batch([[9, 9], [9, 9]], outcomes={"acc": [[1, 0], [1, 1]]})
    assert driver.step(StepId(1), batch).keep.tolist() == [True, True, False, False]


def slowly(sample, row, threshold):
    rewards = [sum(final.rm_scores, start=0.0) for final in sample.finals(row.uid)]
    if not all(math.isfinite(reward) for reward in rewards):
        return math.nan
    return sum(reward > threshold for reward in rewards) / len(rewards)


@given(sample=samples(), threshold=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_against_plain_python(sample, threshold):
    got = GroupSolveRate(success_threshold=threshold).score(sample.batch).tolist()
    assert got == pytest.approx([slowly(sample, row, threshold) for row in sample.rows], nan_ok=True)


@pytest.mark.parametrize("threshold", [math.nan, math.inf, "0.5", None])
def test_the_threshold_must_be_a_finite_number(threshold):
    with pytest.raises(pydantic.ValidationError):
        GroupSolveRate(success_threshold=threshold)


def test_all_rows_of_a_group_share_the_score():
    assert GroupSolveRate.per == "group"
    assert GroupSolveRate.needs_groups
