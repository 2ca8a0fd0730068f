"""A step that finds no full batch: it says so while it waits, and ends at its bound. On verl's own replay buffer."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refillrun import Rate, RefillRun, at_random, band, names, newest, oldest, together

from dataflex_events.adapters.verl import refill as ours
from dataflex_events.refill import RefillError


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("eager", [True, False])
def test_where_nothing_fits_the_run_stops_and_says_why(eager: bool):
    run = RefillRun(band({"eager": eager, "max_generated_factor": 2.5}), [0.0] * 7, then=1.0)
    with pytest.raises(RefillError) as stopped:
        run.step()
    # The bound is 10, so that 6 may be dropped. After 4 and 4 of the first 8 a batch is out of reach.
    assert str(stopped.value) == (
        "step 1: 8 prompts were generated, 4 groups replaced, 0 of 4 are found (8 groups were looked at and 0 kept; "
        "'threshold_band' dropped 8 (7 with the score 0, 1 with the score 1)). max_generated_factor=2.5 allows no "
        "full batch any more. Select less narrowly, raise it, or say `on_exhausted: accept` in `refill` to train on "
        "what there is"
    )


@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("finish", [together, oldest, newest])
def test_or_it_trains_on_what_there_is_and_goes_on(eager: bool, finish: Any, caplog: pytest.LogCaptureFixture):
    refill = {"eager": eager, "max_generated_factor": 2, "on_exhausted": "accept"}
    run = RefillRun(band(refill), [0.0] * 8, finish=finish)
    assert len(run.step()) == 4
    assert run.number == 8
    assert run.count("dataflex/refill/evicted") == 4
    assert run.count("dataflex/refill/exhausted") == 1
    (record,) = warnings(caplog)
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("step 1: 8 prompts were generated, ")
    assert record.getMessage().endswith("). The step trains on what there is")
    caplog.clear()
    assert set(run.step()) == names(8, 9, 10, 11), "the next step begins anew"
    assert run.count("dataflex/refill/generated") == 4
    assert run.count("dataflex/refill/exhausted") == 0
    assert not warnings(caplog)


@given(
    rates=st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=16),
    seed=st.integers(0, 2**32),
    factor_and_bound=st.sampled_from([(1.25, 5), (1.5, 6), (2, 8), (3, 12), (1.1, 5)]),
    eager=st.booleans(),
    accept=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_never_more_than_the_bound(
    rates: list[Rate], seed: int, factor_and_bound: tuple[float, int], eager: bool, accept: bool
):
    factor, bound = factor_and_bound
    refill = {"eager": eager, "max_generated_factor": factor, "on_exhausted": "accept" if accept else "raise"}
    run = RefillRun(band(refill), rates, then=0.0, finish=at_random(seed), in_flight=2)
    enough = (rates + [0.0] * bound)[:bound].count(0.5) >= 4
    if enough or accept:
        assert len(run.step()) == 4
        assert run.count("dataflex/refill/exhausted") == (not enough)
        assert enough or run.number == bound
    else:
        with pytest.raises(RefillError):
            run.step()
    assert run.number <= bound


def test_a_bound_of_one_and_a_half_batches():
    def refill(eager: bool) -> dict[str, Any]:
        return band({"eager": eager, "max_generated_factor": 1.5})

    for eager in (True, False):
        run = RefillRun(refill(eager), [0.0, 0.0, 0.5, 0.5])
        assert set(run.step()) == names(2, 3, 4, 5)
        assert run.asked == [2]  # verl's credit is 4
        with pytest.raises(RefillError, match=r"6 prompts were generated, 2 groups replaced, 3 of 4 are found"):
            RefillRun(refill(eager), [0.0, 0.0, 0.5, 0.5, 0.5, 0.0]).step()


def test_what_verls_filter_drops_is_named_and_is_not_found():
    run = RefillRun(band({"max_generated_factor": 1.5}, 0.2, 1.0, inclusive=True), [1.0, 1.0, 0.0, 0.5], filters=True)
    with pytest.raises(RefillError) as stopped:
        run.step()
    assert "1 of 4 are found (4 groups were looked at and 3 kept; 'threshold_band' dropped 1 (1 with the score 0)" in (
        str(stopped.value)
    )
    assert "; algorithm.filter_groups dropped 2)" in str(stopped.value)


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("eager", [True, False])
def test_where_all_rollouts_fail_the_run_stops(failed: bool, eager: bool):
    run = RefillRun(band({"eager": eager, "max_generated_factor": 3}), then=None, failed=failed)
    with pytest.raises(RefillError, match=r"12 had no rollout, because all of theirs failed\)"):
        run.step()
    assert run.number == 12


@pytest.mark.parametrize("failed", [False, True])
def test_there_is_nothing_to_accept_where_all_rollouts_fail(failed: bool):
    refill = {"on_exhausted": "accept", "max_generated_factor": 2}
    run = RefillRun(band(refill), then=None, failed=failed)
    with pytest.raises(
        RefillError, match=r"all of theirs failed\)\. Too many groups failed: there is nothing to train on$"
    ):
        run.step()
    assert run.number == 8


def test_groups_of_nothing_leave_rather_than_what_was_dropped():
    refill = {"on_exhausted": "accept", "max_generated_factor": 1.25}
    run = RefillRun(band(refill), [0.0, None, 0.5, 0.0, 0.0])
    assert set(run.step()) == names(0, 2, 3, 4), "one of five may be replaced: the one without a rollout"
    assert run.count("dataflex/refill/exhausted") == 1


def test_a_run_that_waits_says_so_now_and_then(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    """Every look takes 20 seconds, so that every second one is late enough."""
    seconds = iter(range(0, 100_000, 20))
    now = {"at": 0}
    monkeypatch.setattr(ours, "time", SimpleNamespace(monotonic=lambda: now["at"]))

    def slowly(running: list[str]) -> Any:
        now["at"] = next(seconds)
        return running[:1]

    run = RefillRun(band({"eager": False}), [0.0, 0.5, 0.5, 0.5], finish=slowly)
    run.step()
    # Looks at 0, 0, 20, 40, 60, 80 seconds, after each of which one more prompt was finished but for the first.
    assert [record.getMessage() for record in warnings(caplog)] == [
        "waiting for a full batch: step 1: 5 prompts were generated, 1 groups replaced, 2 of 4 are found (3 groups "
        "were looked at and 2 kept; 'threshold_band' dropped 1 (1 with the score 0))",
    ]
