"""One rule for all components: no score is invented, no NaN spreads, and every case is counted and said once."""

import logging
import math

import pytest

from dataflex_events import RunFacts, StepDriver, StepId, make_plan
from dataflex_events.testing import make_batch

SCORERS = ["reward", "group_solve_rate", "advantage_magnitude"]
ACTUATORS = {"softmax": "reweight", "threshold_band": "select"}


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

    missing = 2 if scorer == "group_solve_rate" else 1  # rows without a score
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
