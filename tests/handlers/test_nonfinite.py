"""One rule for all components: no score is invented, no NaN spreads, and every case is counted and said once."""

import logging
import math

import pytest
import torch

from dataflex_events import RunFacts, StepDriver, StepId, make_plan, registry
from dataflex_events.testing import make_batch

GROUPS = ["group_solve_rate", "group_reward_std", "group_advantage"]
SCORERS = ["reward", "advantage_magnitude", *GROUPS]
ACTUATORS = {"softmax": "reweight", "threshold_band": "select"}
REWEIGHTERS = ["softmax", "difficulty_band", "advantage_reweight", "per_advantage"]
SELECTORS = {"threshold_band": {}, "topk_fraction": {}, "gfpo": {"k": 2}, "max_variance": {}, "top_entropy_tokens": {}}


def batch(value):
    """One group with a value that is not finite in its first rollout, and one without."""
    advantages = [[value, 0.5, 0.5], [-0.5] * 3, [0.5] * 3, [-0.5] * 3]
    return make_batch([[value, 0], [1, 0]], tokens={"advantages": advantages})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("actuator", ACTUATORS)
@pytest.mark.parametrize("scorer", SCORERS)
def test_every_scorer_with_every_actuator(scorer, actuator, value, caplog):
    block = {"mechanism": ACTUATORS[actuator], "scorer": {"name": scorer}, "actuator": {"name": actuator}}
    if actuator == "threshold_band":
        block |= {"actuator": {"name": actuator, "params": {"low": -1.0, "high": 2.0}}, "apply": "weight"}
    driver = StepDriver(make_plan(block).bus(), RunFacts())
    with caplog.at_level(logging.WARNING, logger="dataflex"):
        results = [driver.step(StepId(number), batch(value)) for number in (1, 2)]

    missing = 2 if scorer in GROUPS else 1  # rows without a score
    for result in results:
        assert result.weights.isfinite().all()
        assert result.metrics[f"dataflex/nonfinite/{scorer}"] == missing
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert f"has no score for {missing} of 4 rows" in warnings[0]

    by_row = results[0].weights.view(4, 3)[:, 0]
    if actuator == "threshold_band":
        assert (by_row > 0).int().tolist() == [0] * missing + [1] * (4 - missing)
    else:
        # Weight 1 stands beside n * softmax over the n scored rows, so the mean is 1 and normalising changes nothing.
        assert by_row[:missing].tolist() == pytest.approx([1.0] * missing)


def test_a_value_that_is_not_finite_stays_in_its_own_group():
    block = {"mechanism": "reweight", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "softmax"}}
    with_nan = StepDriver(make_plan(block).bus(), RunFacts()).step(
        StepId(1), make_batch([[math.nan, 1], [1, 0], [1, 1]])
    )
    without = StepDriver(make_plan(block).bus(), RunFacts()).step(StepId(1), make_batch([[1, 0], [1, 1]]))
    assert with_nan.weights[6:].tolist() == pytest.approx(without.weights.tolist())


SCORES = [0.5, math.nan, 0.25, 1.0, math.nan, 0.0]


@pytest.mark.parametrize("name", REWEIGHTERS)
def test_reweighters_give_weight_one_where_there_is_no_score(name):
    scores = torch.tensor(SCORES)
    # Six rows, or the six tokens of one.
    for some in (make_batch([[0] * 3, [0] * 3]), make_batch([[0]], lengths=[6])):
        weights = registry.find("reweighter", name).component().weigh(scores, some)
        assert weights.dtype == torch.float32
        assert weights[scores.isnan()].tolist() == [1.0, 1.0]
        assert weights.isfinite().all()
        assert (weights >= 0).all()


@pytest.mark.parametrize("name", SELECTORS)
def test_selectors_keep_nothing_without_a_score(name):
    scores = torch.tensor(SCORES)
    some = make_batch([[0]], lengths=[6]) if name == "top_entropy_tokens" else make_batch([[0] * 3, [0] * 3])
    kept = registry.find("selector", name).component(**SELECTORS[name]).select(scores, some)
    assert kept.any()
    assert not kept[scores.isnan()].any()


@pytest.mark.parametrize("value", [math.nan, 0.0])
@pytest.mark.parametrize("kind", ["reweighter", "selector"])
def test_nothing_to_act_on(kind, value):
    # No rows at all, and one without a token.
    for some in (make_batch([]), make_batch([[0]], lengths=[0])):
        for name in REWEIGHTERS if kind == "reweighter" else SELECTORS:
            component = registry.find(kind, name).component(**SELECTORS.get(name, {}))
            scores = torch.full((some.tokens if name == "top_entropy_tokens" else len(some),), value)
            result = component.weigh(scores, some) if kind == "reweighter" else component.select(scores, some)
            assert result.shape == scores.shape
            if kind == "reweighter" and math.isnan(value):
                assert (result == 1).all()
