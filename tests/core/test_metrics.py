"""Scalars, by hand."""

import math

import pytest
import torch

from dataflex_events import HandlerOutputError
from dataflex_events.metrics import keep_metrics, loggable, reward_metrics, weight_metrics
from dataflex_events.resolve import KeepDecision
from dataflex_events.testing import make_batch


def test_weights_by_hand():
    # 0, 1, 1, 2: sum 4, squares 6, population variance (1 + 0 + 0 + 1) / 4.
    # p05 lies .15 of the way from the lowest to the next, p95 .85 of the way from the third to the highest.
    assert weight_metrics(torch.tensor([2.0, 1.0, 0.0, 1.0])) == pytest.approx(
        {
            "dataflex/weight_mean": 1.0,
            "dataflex/weight_std": math.sqrt(0.5),
            "dataflex/weight_min": 0.0,
            "dataflex/weight_max": 2.0,
            "dataflex/weight_p05": 0.15,
            "dataflex/weight_p95": 1.85,
            "dataflex/weight_ess_frac": 16 / (4 * 6),
        }
    )


def test_equal_weights_have_the_whole_effective_sample_size():
    metrics = weight_metrics(torch.full((7,), 0.3))
    assert metrics["dataflex/weight_ess_frac"] == pytest.approx(1.0)
    assert metrics["dataflex/weight_std"] == pytest.approx(0.0, abs=1e-9)


def test_one_weight():
    metrics = weight_metrics(torch.tensor([3.0]))
    assert (metrics["dataflex/weight_p05"], metrics["dataflex/weight_p95"]) == (3.0, 3.0)


def test_weights_that_are_all_zero_have_no_effective_sample():
    metrics = weight_metrics(torch.zeros(3))
    assert metrics["dataflex/weight_ess_frac"] == 0.0
    assert all(math.isfinite(value) for value in metrics.values())


def test_no_weights_no_metrics():
    assert weight_metrics(torch.zeros(0)) == {}


@pytest.mark.parametrize("q", [0.05, 0.95])
def test_quantiles_are_those_of_torch(q):
    weights = torch.rand(101, generator=torch.Generator().manual_seed(0)).square()
    name = f"dataflex/weight_p{int(100 * q):02}"
    assert weight_metrics(weights)[name] == pytest.approx(float(torch.quantile(weights.double(), q)))


def test_means_of_many_weights_do_not_drift():
    # One after the other in float32, ten million times 0.1 is not a million.
    assert weight_metrics(torch.full((3_000_000,), 0.1))["dataflex/weight_mean"] == pytest.approx(0.1, rel=1e-7)


def test_a_selection_by_hand():
    decision = KeepDecision(torch.tensor([True, False, True, False]), lonely_groups=2)
    assert keep_metrics(decision, generated=8) == {
        "dataflex/kept_frac": 0.25,
        "dataflex/kept_rows": 2.0,
        "dataflex/lonely_groups": 2.0,
        "dataflex/kept_whole": 0.0,
    }


def test_no_selection_no_metrics():
    assert keep_metrics(KeepDecision(None), generated=8) == {}
    assert keep_metrics(KeepDecision(torch.zeros(0, dtype=torch.bool)), generated=0) == {}


def test_reward_counts_a_session_once_and_skips_what_is_not_finite():
    batch = make_batch([[9, 1, 0, float("nan")]], sessions=[0, 0, 1, 2])
    assert reward_metrics(batch) == {"dataflex/reward_before_select": 0.5}  # sessions 1, 0 and an unknown one


def test_without_a_known_reward_there_is_no_reward_metric():
    assert reward_metrics(make_batch([[float("nan")]])) == {}
    assert reward_metrics(make_batch([])) == {}
    assert reward_metrics(make_batch([[1]]).only([], "reader")) == {}


def test_metrics_that_are_not_finite_are_counted_instead():
    metrics = {"a": 1.0, "b": math.nan, "c": -math.inf}
    assert loggable(metrics) == {"a": 1.0, "dataflex/nonfinite/metrics": 2.0}
    assert loggable({"a": 1.0}) == {"a": 1.0}


def test_metrics_become_plain_floats():
    metrics = loggable({"a": torch.tensor(1.0), "b": 2, "c": True})
    assert metrics == {"a": 1.0, "b": 2.0, "c": 1.0}
    assert {type(value) for value in metrics.values()} == {float}


@pytest.mark.parametrize("value", ["high", None, torch.ones(2)])
def test_a_metric_that_is_no_number_is_an_error_with_its_name(value):
    with pytest.raises(HandlerOutputError, match="metric 'mine' is not a number"):
        loggable({"mine": value})
