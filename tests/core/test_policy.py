"""Scorers are computed once a step and carried over; actuators act at the right event on their own scorer's scores."""

import logging

import pytest
import torch
from toys import AsWeights, OddReweighter, OddScorer

from dataflex_events import HandlerError, RunFacts, StepDriver, StepId, make_plan
from dataflex_events.testing import make_batch

STEP = StepId(1)


def select(scorer, low=0.0, **more):
    actuator = {"name": "toys:KeepFrom", "params": {"low": low}}
    return {"mechanism": "select", "scorer": scorer, "actuator": actuator, **more}


def reweight(scorer, actuator="toys:AsWeights", **more):
    return {"mechanism": "reweight", "scorer": scorer, "actuator": {"name": actuator}, **more}


def step(*policies, batch, **facts):
    bus = make_plan({"policies": list(policies)}).bus()
    return StepDriver(bus, RunFacts(group_baseline=False, **facts)).step(STEP, batch)


def test_an_actuator_hears_only_its_own_scorer():
    result = step(
        reweight({"name": "reward"}),
        reweight({"name": "toys:RowNumber"}, name="other"),
        batch=make_batch([[4, 1]], lengths=[1, 1]),
    )
    assert result.weights.tolist() == [4.0 * 1.0, 1.0 * 2.0]


@pytest.mark.parametrize("first", [0, 1])
def test_the_order_of_policies_does_not_change_the_weights(first):
    policies = [reweight({"name": "reward"}, name="a"), reweight({"name": "toys:RowNumber"}, name="b")]
    batch = make_batch([[0.3, 0.7, 0.1]], lengths=[1, 2, 3])
    expected = step(*policies, batch=batch).weights
    assert torch.equal(step(policies[first], policies[1 - first], batch=batch).weights, expected)


def test_metrics_of_a_policy_by_hand():
    metrics = step(
        select({"name": "toys:RowNumber"}, 3.0, name="rows"),
        reweight({"name": "reward"}, name="gain"),
        batch=make_batch([[0, 0, 1, 3]]),
    ).metrics
    policy = {name: value for name, value in metrics.items() if name.startswith("dataflex/policy/")}
    assert policy == pytest.approx(
        {
            "dataflex/policy/rows/score_mean": 2.5,
            "dataflex/policy/rows/score_std": 1.25**0.5,
            "dataflex/policy/rows/kept_frac": 0.5,
            "dataflex/policy/gain/score_mean": 2.0,  # of the two rows that are left
            "dataflex/policy/gain/score_std": 1.0,
            "dataflex/policy/gain/weight_mean": 2.0,
            "dataflex/policy/gain/weight_std": 1.0,
        }
    )


def test_normalize_of_the_policy_goes_before_that_of_the_reweighter():
    batch = make_batch([[1, 3]], lengths=[1, 1])
    assert step(reweight({"name": "reward"}), batch=batch).weights.tolist() == [1.0, 3.0]
    assert step(reweight({"name": "reward"}, normalize="token"), batch=batch).weights.tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("scores", "described"),
    [(torch.ones(2), r"\(2,\)"), (torch.ones(9), r"\(9,\)"), (torch.ones(3, 1), r"\(3, 1\)"), ([1.0] * 3, "list")],
)
def test_scores_of_the_wrong_shape_are_an_error_that_names_the_scorer(scores, described, monkeypatch):
    monkeypatch.setattr(OddScorer, "value", scores)
    with pytest.raises(HandlerError, match=rf"scorer toys:OddScorer\(\) returned {described}, expected .* \(3,\)"):
        step(reweight({"name": "toys:OddScorer"}), batch=make_batch([[1, 0, 1]]))


@pytest.mark.parametrize("weights", [torch.ones(2), torch.tensor([1.0, -1.0, 1.0]), torch.full((3,), torch.nan), None])
def test_wrong_weights_are_an_error_that_names_the_policy(weights, monkeypatch):
    monkeypatch.setattr(OddReweighter, "value", weights)
    policy = reweight({"name": "reward"}, actuator="toys:OddReweighter", name="odd")
    with pytest.raises(HandlerError, match=r"handler 'odd' failed at score_ready, step 1.*'odd' proposed"):
        step(policy, batch=make_batch([[1, 0, 1]]))


def test_token_scores_stay_token_scores_where_there_are_as_many_rows_as_tokens():
    batch = make_batch([[0, 1, 1]], lengths=[0, 2, 1])
    assert step(reweight({"name": "toys:TokenNumber"}), batch=batch).weights.tolist() == [1.0, 2.0, 3.0]
    assert step(reweight({"name": "toys:RowNumber"}), batch=batch).weights.tolist() == [2.0, 2.0, 3.0]


def test_scores_that_are_not_finite_are_nan_counted_and_warned_about_once(monkeypatch, caplog):
    seen = []
    monkeypatch.setattr(OddScorer, "value", torch.tensor([1.0, torch.nan, torch.inf, -torch.inf]))
    monkeypatch.setattr(AsWeights, "weigh", lambda self, scores, batch: seen.append(scores) or torch.ones(4))
    driver = StepDriver(make_plan({"policies": [reweight({"name": "toys:OddScorer"})]}).bus(), RunFacts())
    with caplog.at_level(logging.WARNING, logger="dataflex"):
        metrics = [driver.step(StepId(number), make_batch([[1, 0, 1, 0]])).metrics for number in (1, 2)]
    assert seen[0].isnan().tolist() == [False, True, True, True]
    assert [one["dataflex/nonfinite/toys:OddScorer"] for one in metrics] == [3.0, 3.0]
    assert [record.getMessage() for record in caplog.records] == [
        "step 1: scorer toys:OddScorer() has no score for 3 of 4 rows"
    ]


def test_missing_scores_of_two_scorers_of_one_name_add_up():
    scorers = [{"name": "group_solve_rate", "params": {"success_threshold": value}} for value in (0.2, 0.8)]
    metrics = step(*(reweight(scorer, "softmax") for scorer in scorers), batch=make_batch([[1, float("nan")]])).metrics
    assert metrics["dataflex/nonfinite/group_solve_rate"] == 4.0
