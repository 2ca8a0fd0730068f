import math

import torch
from hypothesis import given
from ragged import Row, samples, to_batch

from dataflex_events import EventBus, RunFacts, ScoreReady, StepDriver, StepId, make_plan
from dataflex_events.handlers.scorers.reward import Reward
from dataflex_events.testing import make_batch


def test_the_worked_example():
    # One reward a row, the third on a token that some of the masks leave out.
    scores = [[0, 0, 1], [0, 1, 0], [0, 0, 1]]
    for masks in ([[1, 1, 1], [1, 1, 0], [1, 1, 0]], [[1] * 3] * 3, [[0] * 3] * 3):
        rows = [
            Row(0, session, 0, [float(value) for value in row], mask, [0.0] * 3)
            for session, (row, mask) in enumerate(zip(scores, masks, strict=True))
        ]
        assert Reward().score(to_batch(rows)).tolist() == [1.0, 1.0, 1.0]


@given(sample=samples())
def test_against_plain_python(sample):
    expected = torch.tensor([sample.reward(row) for row in sample.rows])
    torch.testing.assert_close(Reward().score(sample.batch), expected, equal_nan=True)


def test_a_reward_that_is_not_finite_has_no_score():
    seen = []
    bus = make_plan({"mechanism": "reweight", "scorer": {"name": "reward"}, "actuator": {"name": "softmax"}}).bus()
    bus.subscribe(ScoreReady, seen.append)
    metrics = StepDriver(bus, RunFacts()).step(StepId(1), make_batch([[1, math.inf, math.nan, -math.inf]])).metrics
    assert seen[0].scores[0] == 1
    assert seen[0].scores[1:].isnan().all()
    assert metrics["dataflex/nonfinite/reward"] == 3.0


def test_it_is_ready_before_advantages_are_computed():
    scorer = {"name": "reward"}
    plan = make_plan({"mechanism": "select", "scorer": scorer, "actuator": {"name": "threshold_band"}})
    assert plan.drops
    assert StepDriver(EventBus(), RunFacts()).rollout_fields == frozenset()
    assert StepDriver(plan.bus(), RunFacts()).rollout_fields == {"reward"}
