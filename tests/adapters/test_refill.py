"""Groups that a policy drops are replaced until the batch is full. On verl's own replay buffer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refillrun import Rate, RefillRun, at_random, band, names, oldest

FRUGAL = {"eager": False, "max_generated_factor": 1000}
RATES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, None]), max_size=24)


# ------------------------------------------------------------------ verl's filter, ours, both, neither

# Ours drops the rates 0 and .25, verl's the equal rewards of 0 and 1. Further prompts have the rate .5.
TABLE = [0.0, 0.25, 1.0, 0.5]


@pytest.mark.parametrize(
    ("we", "verl", "kept", "asked", "filtered", "surplus"),
    [
        (False, False, (0, 1, 2, 3), [], (), 0),
        (False, True, (1, 3, 4, 5, 6, 7), [4], (0, 2), 2),
        (True, False, (2, 3, 4, 5, 6, 7), [4], (), 2),  # a group of equal rewards stays
        (True, True, (3, 4, 5, 6, 7), [4], (0, 2), 1),  # 3 dropped: a credit of 6, for 4 of which there is room
    ],
)
def test_each_filter_alone_and_both(
    we: bool, verl: bool, kept: tuple[int, ...], asked: list[int], filtered: tuple[int, ...], surplus: int
):
    block = band(True, 0.4, inclusive=True) if we else None
    run = RefillRun(block, TABLE, filters=verl)
    batch = run.step()
    assert len(batch) == 4
    assert set(batch) <= names(*kept)
    assert run.asked == asked
    assert run.count("training/filter_groups/discarded_surplus_samples") == surplus
    generated = range(4 + sum(asked))
    assert run.fates == {f"p{number:04}": "filtered" if number in filtered else "finished" for number in generated}, (
        "all are told of, with what became of them"
    )
    evicted = len(set(generated) - set(kept))
    assert run.count("training/filter_groups/evicted_samples") == evicted
    assert run.count("dataflex/refill/generated") == (len(generated) if we else 0)
    assert run.count("dataflex/refill/evicted") == (evicted if we else 0)


@pytest.mark.parametrize(("failed", "asked"), [(True, [3]), (False, [4])])
def test_verl_replaces_failed_groups_beside_ours(failed: bool, asked: list[int]):
    """verl counts one fresh prompt for a group that failed, and two for one that is dropped."""
    run = RefillRun(band(True, 0.4), [None, 0.25, 0.5, 0.5], failed=failed)
    assert set(run.step()) <= names(2, 3, 4, 5, 6, 7)
    assert run.asked == asked
    assert run.fates["p0000"] == "failed"
    assert run.count("training/rollout_failure/evicted_samples") == failed
    assert run.count("dataflex/refill/evicted") == 2


def test_without_the_policy_applied_verl_waits_for_its_batch_only():
    """In its warm-up, in shadow, and in a shadow run the policy drops nothing."""
    for options in ({"warmup_step": 1}, {"shadow": True}):
        run = RefillRun({"policies": [band(True, **options)]}, [0.0] * 4)
        assert set(run.step()) == names(0, 1, 2, 3)
    run = RefillRun({"shadow": True, "policies": [band(True)]}, [0.0] * 4)
    assert set(run.step()) == names(0, 1, 2, 3)
    assert run._refilling is None
    run = RefillRun({"policies": [band(True, warmup_step=1)]}, [0.0] * 8)
    run.step()
    assert set(run.step()) & names(4, 5, 6, 7) == set(), "after the warm-up"


# ------------------------------------------------------------------ eager


def test_two_prompts_for_each_as_room_allows():
    """Room is for 4 at a time. The prompts finish one by one, the oldest first."""
    run = RefillRun(band(True), [0.0, 0.0, 0.5, 0.5], finish=oldest)
    assert len(run.step()) == 4
    # p0: credit 2, room 1. p1: credit 1 + 2, room 1. p2, p3 are good: room 1 each time, credit 2 and 1. Then p4, p5.
    assert run.asked == [1, 1, 1, 1]
    assert run.most == 4
    assert run.number == 8
    assert run.count("training/filter_groups/discarded_surplus_samples") == 2


@given(rates=RATES, seed=st.integers(0, 2**32), in_flight=st.integers(1, 3), filters=st.booleans())
@settings(max_examples=100, deadline=None)
def test_what_is_too_much_is_told_of_before_it_is_discarded(
    rates: list[Rate], seed: int, in_flight: int, filters: bool
):
    policy = band({"eager": True, "max_generated_factor": 1000}, 0.2, 0.8)
    run = RefillRun(policy, rates, finish=at_random(seed), in_flight=in_flight, filters=filters)
    batch = run.step()
    good = {uid for uid in run.fates if run.rate(uid) in (0.25, 0.5, 0.75)}
    assert len(batch) == 4
    assert set(batch) <= good
    assert run.fates.keys() == names(*range(run.number))
    assert all(there for _, _, there in run.told)
    assert run.most <= in_flight * 4
    assert run.number <= 4 + 2 * (len(run.fates) - len(good))
    assert run.count("training/filter_groups/discarded_surplus_samples") == len(good) - 4
    assert run.count("dataflex/refill/evicted") == len(run.fates) - len(good)
    assert run.count("dataflex/refill/generated") == run.number == 4 + sum(run.asked)


def test_the_example_of_two_groups_from_batches_of_four():
    """verl draws as many as it trains on at first; with two batches in flight the refill comes in fours."""
    a, b, c, d, e, f, g, h = 0.0, 0.5, 1.0, 1.0, 0.25, 0.0, 0.75, 0.5
    run = RefillRun(band(True), [a, b, c, d, e, f, g, h], batch=2, in_flight=2)
    batch = run.step()
    assert run.asked == [2, 4]
    assert run.number == 8
    assert set(batch) <= names(1, 4, 6, 7)  # b, e, g, h: verl takes any two of a step
    assert run.count("training/filter_groups/discarded_surplus_samples") == 2
    frugal = RefillRun(band({"eager": False}), [a, b, c, d, e, f, g, h], batch=2, in_flight=2)
    assert set(frugal.step()) == names(1, 4)  # b, e
    assert frugal.number == 5


# ------------------------------------------------------------------ frugal


@given(rates=RATES, seed=st.integers(0, 2**32), filters=st.booleans(), failed=st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_order_in_which_prompts_finish_makes_no_difference(
    rates: list[Rate], seed: int, filters: bool, failed: bool
):
    """What is generated are the first prompts up to the fourth good one, and never one more."""
    run = RefillRun(band(FRUGAL, 0.2), rates, finish=at_random(seed), filters=filters, failed=failed, in_flight=2)
    batch = run.step()
    wanted: list[str] = []
    generated = 0
    while len(wanted) < 4:
        uid = f"p{generated:04}"
        if run.rate(uid) in (0.25, 0.5, 0.75):
            wanted.append(uid)
        generated += 1
    assert batch == wanted
    assert run.number == generated
    assert run.count("dataflex/refill/evicted") == generated - 4
    assert "training/filter_groups/discarded_surplus_samples" not in run.metrics
    assert run.fates.keys() == names(*range(generated))


# ------------------------------------------------------------------ what is beside


def test_validation_goes_on_as_it_is():
    run = RefillRun(band(True), [0.0, 0.5, 0.5, 0.5])
    run.step()
    before, told = run._refilling.metrics, list(run.told)
    for uid in ("v1", "v2"):
        run.queue.group(uid, "finished", partition="val")
        run.queue.rewards(uid, [0.0, 0.0], 0)
    run.queue.group("v3", "failure", rollouts=0, partition="val")
    with run.queue.connected():
        batch, metrics = run.buffer.sample(1, "val", 3)
    assert sorted(batch.keys) == ["v1_0_0", "v1_1_0", "v2_0_0", "v2_1_0"]
    assert metrics == {}
    assert run.told == told
    assert run._refilling.metrics == before
