"""The ways to apply a policy at the far end: what rows, masks, weights, advantages the workers get, and their losses.

Everything expected is computed by hand from the rewards of what was generated and from the rows that arrived. Steps in
which a mechanism is taken away show that the checks can fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from ways import MINI_BATCHES, WAYS, Story
from wayscheck import (
    PLAIN_PPO,
    advantages,
    check_advantages,
    check_efficient,
    check_spread,
    check_terms,
    check_tokens,
    check_top,
    check_weights,
    counting,
    ways,
)

pytestmark = pytest.mark.e2e

TOPK = [name for name in WAYS if WAYS[name].policies[0]["actuator"]["name"] == "topk_fraction" and not WAYS[name].odd]
MASKED = [name for name in WAYS if name.startswith("mask") or name == "tokens masked"]


# ---------------------------------------------------------------- rows


@ways(*TOPK)
def test_the_largest_advantages_count(step: Story, request: pytest.FixtureRequest) -> None:
    share = WAYS[request.node.callspec.id].policies[0]["actuator"]["params"]["fraction"]
    check_top(step, counting(step), share)
    assert len(step.rows) == len(step.sent) == len(step.generated), "the others are there, and do not count"


@ways("drop, subset", "drop, full", "mask, full")
def test_the_most_efficient_rows_count(step: Story, request: pytest.FixtureRequest) -> None:
    check_efficient(step, counting(step))
    dropped = request.node.callspec.id.startswith("drop")
    assert len(step.sent) == len(step.rows) == (32 if dropped else 64)


@ways("outcome")
def test_an_outcome_beside_the_score_decides(step: Story) -> None:
    """Two sessions of every second prompt succeed, whatever their reward."""
    assert set(step.rows) == {key for key, number in step.index.items() if number % 2 == 0}
    assert len(step.rows) == 32


@ways("weight, subset", "mask, subset", "no baseline")
def test_the_rows_of_largest_variance_count(step: Story) -> None:
    check_spread(step, counting(step))
    assert len(step.rows) == 64


@ways("tokens masked", "tokens weighted")
def test_the_tokens_of_highest_entropy_count(step: Story) -> None:
    """Seen in the first mini-batch: there the entropy of the worker is that of the old policy."""
    kept, rest = [], []
    for call in step.mini_batches()[0]:
        for row, values in enumerate(call["entropy"]):
            weights = call["rollout_is_weights"][row] if "rollout_is_weights" in call else call["response_mask"][row]
            for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
                (kept if weight else rest).append(value)
    assert min(kept) >= max(rest) - 1e-5
    total = sum(step.lengths.values())
    assert step.metrics["dataflex/kept_token_frac"] == pytest.approx(math.ceil(0.2 * total) / total, abs=1.5 / total)


# ---------------------------------------------------------------- masks, weights, denominators


@ways(*MASKED)
def test_masks_of_losses_and_of_denominators_agree(step: Story) -> None:
    for row in step.rows.values():
        assert row["loss_mask"].tolist() == row["response_mask"].tolist()


@ways(*PLAIN_PPO)
def test_token_means_are_over_what_is_left_in_the_mask(step: Story) -> None:
    check_tokens(step)


@ways("mask, token-mean", "mask, seq-mean", "mask, one row", "mask, subset", "mask, full", "drop, subset", "drop, full")
def test_sequence_means_are_over_rows_that_are_left(step: Story) -> None:
    optimizer_steps = len(step.mini_batches())
    kept = len(counting(step))
    assert {call["global_batch_size"] for call in step.calls} == {kept / optimizer_steps}


@ways("weight, token-mean", "weight, seq-mean", "weight, seq-sum", "weight, seq-sum-norm", "weight, token-sum")
def test_weights_make_up_for_the_rows_that_do_not_count(step: Story, request: pytest.FixtureRequest) -> None:
    kept, rows = counting(step), step.rows
    if WAYS[request.node.callspec.id].loss.startswith("seq-"):
        scale = len(rows) / len(kept)
    else:
        scale = sum(step.lengths.values()) / sum(step.lengths[key] for key in kept)
    for key, row in rows.items():
        expected = scale if key in kept else 0.0
        assert row["rollout_is_weights"].tolist() == pytest.approx([expected] * step.lengths[key], rel=1e-5)
    assert {call["global_batch_size"] for call in step.calls} == {len(rows) / MINI_BATCHES}


@ways("tokens weighted")
def test_tokens_are_not_scaled_up(step: Story) -> None:
    assert {weight for row in step.rows.values() for weight in row["rollout_is_weights"].tolist()} == {0.0, 1.0}


@ways(*[name for name in PLAIN_PPO if WAYS[name].policies[0]["mechanism"] == "select"])
def test_every_mini_batch_has_its_share(step: Story, request: pytest.FixtureRequest) -> None:
    kept = counting(step)
    shares = [sum(key in kept for call in calls for key in call["keys"]) for calls in step.mini_batches()]
    assert len(shares) == (1 if request.node.callspec.id == "mask, one row" else MINI_BATCHES)
    if "tokens" not in request.node.callspec.id:
        assert max(shares) - min(shares) <= 1
        assert sum(shares) == len(kept)


# ---------------------------------------------------------------- advantages


@ways("drop, subset", "weight, subset", "mask, subset")
def test_the_baseline_is_that_of_the_kept_rows(step: Story) -> None:
    check_advantages(step, advantages(step, counting(step)))


@ways("drop, full", "mask, full", "mask, token-mean", "weight, token-mean")
def test_the_baseline_is_that_of_all_rows(step: Story) -> None:
    everything = advantages(step)
    check_advantages(step, {key: everything[key] for key in counting(step)})


@ways("drop, subset", "weight, subset")
def test_the_two_baselines_differ(step: Story) -> None:
    kept = counting(step)
    subset, full = advantages(step, kept), advantages(step)
    assert max(abs(subset[key] - full[key]) for key in kept) > 0.1


# ---------------------------------------------------------------- losses


@ways(*PLAIN_PPO)
def test_loss_entropy_and_kl_are_those_of_the_rows_that_arrived(step: Story) -> None:
    check_terms(step)


# ---------------------------------------------------------------- verification and negative controls


@ways(*[name for name in WAYS])
def test_every_step_was_verified(step: Story) -> None:
    assert step.metrics["dataflex/verified"] == 1


CONTROLS: dict[str, Callable[[Story], None]] = {
    "no loss mask": check_tokens,
    "no baseline": lambda step: check_advantages(step, advantages(step, counting(step))),
    "no channel": lambda step: check_weights(step, "geo_mean"),
}


@ways(*CONTROLS)
def test_without_the_mechanism_the_check_fails(step: Story, request: pytest.FixtureRequest) -> None:
    with pytest.raises(AssertionError):
        CONTROLS[request.node.callspec.id](step)
