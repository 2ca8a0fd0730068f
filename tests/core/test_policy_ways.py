"""The ways to apply a policy: mask, tokens, warm-up, every so many steps, shadow."""

import pytest
import torch

from dataflex_events import RunFacts, StepDriver, StepId, make_plan
from dataflex_events.testing import make_batch

BATCH = make_batch([[1, 0, 1, 0], [1, 1, 1, 1]])
SELECT = {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}}
REWEIGHT = {"mechanism": "reweight", "scorer": {"name": "toys:RowNumber"}, "actuator": {"name": "toys:AsWeights"}}
TOKENS = {"mechanism": "select", "scorer": {"name": "toys:TokenNumber"}, "actuator": {"name": "toys:Tokens"}}
SOLVED = "dataflex/policy/threshold_band/kept_frac"


def steps(block, *numbers, shadow=False, **facts):
    driver = StepDriver(make_plan(block).bus(), RunFacts(**facts), shadow=shadow)
    driver.start()
    return [driver.step(StepId(number), BATCH) for number in numbers]


def test_mask_takes_rows_out_of_the_response_mask():
    (step,) = steps({**SELECT, "apply": "mask"}, 1)
    assert step.mask.reshape(8, 3).all(1).int().tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert (step.keep, step.weights) == (None, None)
    assert step.metrics["dataflex/kept_rows"] == 4
    assert step.metrics["dataflex/kept_token_frac"] == 0.5


def test_a_selector_of_tokens_gives_the_others_weight_zero():
    (step,) = steps(TOKENS, 1)  # the 24 tokens are numbered from 1, and those above 1 are kept
    assert step.weights.tolist() == [0] + [1] * 23, "as its selector says, what is left is not scaled up"
    assert step.metrics["dataflex/kept_token_frac"] == pytest.approx(23 / 24)
    assert step.metrics["dataflex/policy/toys:Tokens/kept_frac"] == pytest.approx(23 / 24)


def test_a_selection_with_weights_is_normalised_as_the_policy_says():
    for normalize, weight in (("none", 1.0), ("token", 24 / 23)):
        (step,) = steps({**TOKENS, "normalize": normalize}, 1)
        assert step.weights.max() == pytest.approx(weight)


def test_the_first_steps_may_be_left_alone():
    kept = [step.keep is not None for step in steps({**SELECT, "warmup_step": 2}, 1, 2, 3, 4)]
    assert kept == [False, False, True, True]


def test_a_policy_may_act_in_one_step_of_so_many():
    block = {**SELECT, "warmup_step": 1, "update_step": 3}
    assert [step.keep is not None for step in steps(block, *range(1, 9))] == [False, True, *[False, False, True] * 2]


def test_a_shadow_policy_logs_what_it_would_do_and_does_nothing():
    block = {"policies": [{**SELECT, "shadow": True}, REWEIGHT]}
    (with_shadow,), (without,) = steps(block, 1), steps(REWEIGHT, 1)
    assert with_shadow.keep is None
    assert torch.equal(with_shadow.weights, without.weights)
    assert with_shadow.metrics[SOLVED] == 0.5
    assert with_shadow.metrics["dataflex/policy/threshold_band/shadow"] == 1
    assert "dataflex/kept_frac" not in with_shadow.metrics


def test_what_a_shadow_proposes_is_checked_like_any_proposal():
    block = {**REWEIGHT, "actuator": {"name": "toys:OddReweighter"}}
    with pytest.raises(Exception, match="expected shape"):
        steps({"policies": [{**block, "shadow": True}]}, 1)


@pytest.mark.parametrize("apply", ["drop", "weight", "mask"])
def test_a_run_in_shadow_logs_the_whole_step_and_decides_nothing(apply):
    block = {"policies": [{**SELECT, "apply": apply}, REWEIGHT]}
    (shadow,), (real,) = steps(block, 1, shadow=True), steps(block, 1)
    assert (shadow.keep, shadow.weights, shadow.mask) == (None, None, None)
    assert shadow.metrics.pop("dataflex/shadow") == 1
    assert {**shadow.metrics, "timing_s/dataflex": 0} == {**real.metrics, "timing_s/dataflex": 0}


def test_a_component_may_listen_to_events_of_its_own():
    block = {**REWEIGHT, "scorer": {"name": "toys:Started"}}
    (step,) = steps(block, 1, rollouts_per_prompt=4)
    assert step.weights.unique().tolist() == [4]
    assert step.metrics["dataflex/policy/toys:AsWeights/score_mean"] == 4
