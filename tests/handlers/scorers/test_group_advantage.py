import math
import statistics

import pydantic
import pytest
from hypothesis import given
from ragged import samples

from dataflex_events import EventBus, RunFacts, StepDriver, StepId, make_plan
from dataflex_events.handlers.scorers.group_advantage import GroupAdvantage
from dataflex_events.testing import make_batch


def advantages(rewards, *, batch=None, **params):
    batch = make_batch(rewards) if batch is None else batch
    return GroupAdvantage(**{"abs": False, **params}).score(batch).tolist()


# catalogue D3: of six rollouts only the first two have an advantage.
def test_groups_without_contrast_have_no_advantage():
    got = advantages([[1, 0], [1, 1], [0, 0]])
    assert got == pytest.approx([0.7071, -0.7071, 0, 0, 0, 0], abs=1e-4)
    magnitudes = GroupAdvantage().score(make_batch([[1, 0], [1, 1], [0, 0]]))
    assert float(magnitudes.mean()) == pytest.approx(0.2357, abs=1e-4)
    assert float(magnitudes[:2].mean()) == pytest.approx(0.7071, abs=1e-4)


# catalogue 2.7: the whole group, a kept subset with contrast, and one without.
def test_the_advantages_of_gfpo_s_example():
    assert advantages([[1, 1, 0, 1]]) == pytest.approx([0.5, 0.5, -1.5, 0.5], abs=1e-4)
    assert advantages([[1, 0]]) == pytest.approx([0.7071, -0.7071], abs=1e-4)
    assert advantages([[1, 1]]) == [0.0, 0.0]


# catalogue 2.8: the whole group, and the kept subset.
def test_the_advantages_of_pods_example():
    assert advantages([[0, 0.2, 0.5, 1]]) == pytest.approx([-0.9772, -0.5173, 0.1724, 1.3220], abs=1e-4)
    assert advantages([[0, 0.2, 1]]) == pytest.approx([-0.7559, -0.3780, 1.1339], abs=1e-4)


# catalogue 4.13
def test_without_the_division_it_is_that_of_dr_grpo():
    assert advantages([[1, 0, 0, 0]], norm_by_std=False) == [0.75, -0.25, -0.25, -0.25]
    assert advantages([[1, 0, 0, 0]], norm_by_std=False, abs=True) == [0.75, 0.25, 0.25, 0.25]


# catalogue 2.5: in float32 three times .9 would have the advantage +.0555, seven times .1 -.0074.
@pytest.mark.parametrize("norm_by_std", [True, False])
def test_rounding_errors_are_no_advantage(norm_by_std):
    assert advantages([[0.9] * 3, [0.1] * 7, [1e30] * 3], norm_by_std=norm_by_std) == [0.0] * 13


@pytest.mark.parametrize("norm_by_std", [True, False])
def test_a_group_of_one_has_no_advantage(norm_by_std):
    assert advantages([[5], [-3]], norm_by_std=norm_by_std) == [0.0, 0.0]


def test_huge_rewards():
    assert advantages([[1e30, -1e30]]) == pytest.approx([0.70711, -0.70711], abs=1e-5)


@pytest.mark.parametrize("norm_by_std", [True, False])
@pytest.mark.parametrize("unknown", [math.nan, math.inf, -math.inf])
def test_a_group_with_an_unknown_reward_has_no_score(unknown, norm_by_std):
    got = advantages([[1, unknown, 0], [unknown], [1, 0]], norm_by_std=norm_by_std)
    assert all(map(math.isnan, got[:4]))
    assert all(map(math.isfinite, got[4:]))


def test_a_session_with_several_outputs_counts_once_and_shares_its_advantage():
    batch = make_batch([[0, 1, 0]], sessions=[0, 0, 1])
    assert advantages(None, batch=batch) == pytest.approx([0.7071, 0.7071, -0.7071], abs=1e-4)


@pytest.mark.parametrize(
    ("given_to_it", "of_the_run", "divides"),
    [(None, True, True), (None, False, False), (True, False, True), (False, True, False)],
)
def test_the_division_is_the_run_s_unless_it_is_set(given_to_it, of_the_run, divides):
    scorer, bus = GroupAdvantage(norm_by_std=given_to_it), EventBus()
    bus.attach(scorer)
    StepDriver(bus, RunFacts(norm_adv_by_std=of_the_run)).start()
    expected = 0.7071 if divides else 0.5
    assert scorer.score(make_batch([[1, 0]])).tolist() == pytest.approx([expected] * 2, abs=1e-4)


def test_a_policy_lets_its_scorer_know_the_run():
    plan = make_plan({"mechanism": "reweight", "scorer": {"name": "group_advantage"}, "actuator": {"name": "softmax"}})
    driver = StepDriver(plan.bus(), RunFacts(norm_adv_by_std=False))
    driver.start()
    metrics = driver.step(StepId(1), make_batch([[1, 0, 0, 0]])).metrics
    assert metrics["dataflex/policy/softmax/score_mean"] == pytest.approx((0.75 + 3 * 0.25) / 4)


def test_before_a_run_it_divides_as_verl_does_by_default():
    assert GroupAdvantage().score(make_batch([[1, 0]])).tolist() == pytest.approx([0.7071] * 2, abs=1e-4)


def slowly(sample, row, divide):
    rewards = [sum(final.rm_scores, start=0.0) for final in sample.finals(row.uid)]
    if not all(map(math.isfinite, rewards)):
        return math.nan
    std = statistics.stdev(rewards) if len(rewards) > 1 else 0.0
    if std < 1e-6 * max(1.0, *map(abs, rewards)):
        return 0.0
    return (sample.reward(row) - statistics.fmean(rewards)) / (std + 1e-6 if divide else 1.0)


@pytest.mark.parametrize("divide", [True, False])
@given(sample=samples(most=5))
def test_against_plain_python(sample, divide):
    expected = [slowly(sample, row, divide) for row in sample.rows]
    got = advantages(None, batch=sample.batch, norm_by_std=divide)
    assert got == pytest.approx(expected, rel=1e-5, abs=1e-6, nan_ok=True)
    magnitudes = advantages(None, batch=sample.batch, norm_by_std=divide, abs=True)
    assert magnitudes == pytest.approx(list(map(abs, expected)), rel=1e-5, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("params", [{"norm_by_std": 1}, {"norm_by_std": "auto"}, {"abs": None}])
def test_wrong_types_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        GroupAdvantage(**params)
