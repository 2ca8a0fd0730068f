"""The ways to apply a policy at the far end: what rows, masks, weights, advantages the workers get, and their losses.

Everything expected is computed by hand from the rewards of what was generated and from the rows that arrived. Steps in
which a mechanism is taken away show that the checks can fail.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from labrun import Run
from ppobyhand import grpo, terms
from ways import LOSSES, MINI_BATCHES, WAYS, Story, run_ways, stories

pytestmark = pytest.mark.e2e

TOLERANCE = 1e-4

TOPK = [name for name in WAYS if WAYS[name].policies[0]["actuator"]["name"] == "topk_fraction" and not WAYS[name].odd]
MASKED = [name for name in WAYS if name.startswith("mask") or name == "tokens masked"]
PLAIN_PPO = [
    name for name, way in WAYS.items() if way.loss_mode == "vanilla" and not way.odd and way.cut in (None, "baseline")
]
WEIGHTED_LOSSES = [f"loss {name}" for name in (*LOSSES, "bypass_mode")]
ODD = [name for name, way in WAYS.items() if way.odd]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All ways, one step each."""
    return run_ways(tmp_path_factory.mktemp("ways")).succeeded()


@pytest.fixture(scope="module")
def steps(run: Run) -> dict[str, Story]:
    """Its steps, by the name of the way."""
    return stories(run)


@pytest.fixture
def step(request: pytest.FixtureRequest, steps: dict[str, Story]) -> Story:
    """The step of the way that a test asks for."""
    return steps[request.param]


def ways(*names: str) -> pytest.MarkDecorator:
    """Run a test on some ways."""
    return pytest.mark.parametrize("step", names, indirect=True, ids=list(names))


# ---------------------------------------------------------------- by hand


def advantages(step: Story, kept: set[str] | None = None) -> dict[str, float]:
    """GRPO advantages with the baseline of all rows of a group, or of the kept ones."""
    found = {}
    for keys in step.groups.values():
        counted = [key for key in keys if kept is None or key in kept]
        found |= dict(zip(counted, grpo(step.generated[key] for key in counted), strict=True))
    return found


def check_top(step: Story, kept: set[str], share: float) -> None:
    """The rows with the largest |advantage| are kept; ties may go either way."""
    sizes = {key: abs(value) for key, value in advantages(step).items()}
    assert len(kept) == max(1, math.floor(share * len(sizes) + 0.5))
    rest = [size for key, size in sizes.items() if key not in kept]
    assert min(sizes[key] for key in kept) >= max(rest) - 1e-5


def check_efficient(step: Story, kept: set[str]) -> None:
    """GFPO: of each group the four rows with the highest reward for a token."""
    rates = {key: step.generated[key] / step.lengths[key] for key in step.generated}
    for keys in step.groups.values():
        chosen = [rates[key] for key in keys if key in kept]
        assert len(chosen) == 4
        assert min(chosen) >= max(rates[key] for key in keys if key not in kept) - 1e-7


def check_spread(step: Story, kept: set[str]) -> None:
    """PODS: of each group the four rows whose rewards have the largest variance."""

    def variance(keys: tuple[str, ...]) -> float:
        rewards = [step.generated[key] for key in keys]
        mean = math.fsum(rewards) / 4
        return math.fsum((reward - mean) ** 2 for reward in rewards)

    for keys in step.groups.values():
        chosen = tuple(key for key in keys if key in kept)
        assert variance(chosen) == pytest.approx(max(map(variance, itertools.combinations(keys, 4))), rel=1e-5)


def counting(step: Story) -> set[str]:
    """Keys of the rows that have a token that counts, where they arrived."""
    found = set()
    for key, row in step.rows.items():
        weights = row.get("rollout_is_weights", [1.0] * len(row["response_mask"]))
        if any(valid and weight for valid, weight in zip(row["response_mask"], weights, strict=True)):
            found.add(key)
    return found


def check_advantages(step: Story, expected: dict[str, float]) -> None:
    """Every valid token of these rows carries the advantage of its row."""
    for key, value in expected.items():
        row = step.rows[key]
        valid = [float(a) for a, counts in zip(row["advantages"], row["response_mask"], strict=True) if counts]
        assert valid == pytest.approx([value] * len(valid), abs=1e-4), key


def check_terms(step: Story) -> None:
    """Loss, policy loss, entropy and KL of each call are those of the rows that it got."""
    for call in step.calls:
        by_hand = terms(call)
        assert call["pg_loss"] == pytest.approx(by_hand.policy, rel=TOLERANCE, abs=1e-5)
        assert call["entropy_loss"] == pytest.approx(by_hand.entropy, rel=TOLERANCE)
        assert call["kl_loss"] == pytest.approx(by_hand.kl, rel=1e-3, abs=1e-6)
        assert call["loss"] == pytest.approx(by_hand.loss, rel=TOLERANCE, abs=1e-5)


def check_tokens(step: Story) -> None:
    """What token means are divided by: valid tokens of the mini-batch, masked ones left out."""
    for calls in step.mini_batches():
        valid = sum(int(row.sum()) for call in calls for row in call["response_mask"])
        assert {call["batch_num_tokens"] for call in calls} == {valid}


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


def weights_by_hand(step: Story, mean_over_rows: bool) -> dict[str, list[float]]:
    """`advantage_reweight` of tokens times `softmax` of rows at temperature 2."""
    size = {key: abs(value) for key, value in advantages(step).items()}
    power = {key: math.exp(value / 2) for key, value in size.items()}
    count = {key: 1 if mean_over_rows else step.lengths[key] for key in power}
    mean = math.fsum(power[key] * count[key] for key in power) / sum(count.values())
    return {
        key: [(0.2 * math.exp(old) + 0.8) * power[key] / mean for old in row["old_log_probs"].tolist()]
        for key, row in step.rows.items()
    }


@ways(*WEIGHTED_LOSSES)
def test_every_policy_loss_gets_the_weights_and_stays_finite(step: Story, request: pytest.FixtureRequest) -> None:
    loss = request.node.callspec.id.removeprefix("loss ")
    assert {call["loss_mode"] for call in step.calls} == {loss}
    check_weights(step, loss)
    assert all(math.isfinite(call["loss"]) for call in step.calls)
    assert 0 < step.metrics["actor/grad_norm"] < math.inf
    assert step.metrics["dataflex/verified"] == 1


@ways("bypass")
def test_weights_where_log_probs_are_those_of_the_rollout(step: Story) -> None:
    check_weights(step, "vanilla")
    assert all(torch.equal(row["old_log_probs"], row["rollout_log_probs"]) for row in step.rows.values())


def check_weights(step: Story, loss: str) -> None:
    """In the column from which the loss reads them."""
    by_hand, own = weights_by_hand(step, loss in ("sapo", "geo_mean")), advantages(step)
    for key, row in step.rows.items():
        if loss in ("geo_mean", "bypass_mode"):
            expected = [weight * own[key] for weight in by_hand[key]]
            assert row["advantages"].tolist() == pytest.approx(expected, rel=1e-3, abs=1e-4), key
            assert "rollout_is_weights" not in row
        else:
            assert row["rollout_is_weights"].tolist() == pytest.approx(by_hand[key], rel=1e-3), key
            assert row["advantages"].tolist() == pytest.approx([own[key]] * step.lengths[key], abs=1e-4)


# ---------------------------------------------------------------- bad numbers


@ways(*ODD)
def test_bad_rewards_reach_no_loss(step: Story) -> None:
    for row in step.rows.values():
        for name in ("advantages", "returns"):
            assert row[name].isfinite().all()
    assert all(math.isfinite(call["loss"]) for call in step.calls)
    assert 0 < step.metrics["actor/grad_norm"] < math.inf
    assert len(step.generated) == 64


def broken_groups(step: Story) -> list[list[str]]:
    """Groups with a reward that is not finite."""
    return [keys for keys in step.groups.values() if not all(math.isfinite(step.generated[key]) for key in keys)]


@ways("rewards nan, dropped")
def test_groups_with_an_unknown_reward_are_dropped(step: Story) -> None:
    gone = {key for keys in broken_groups(step) for key in keys}
    assert len(gone) == 32
    assert set(step.rows) == set(step.generated) - gone
    assert step.metrics["dataflex/nonfinite/rewards"] == 12
    assert step.metrics["dataflex/nonfinite/group_solve_rate"] == 32


@ways("rewards nan, weighted", "rewards inf")
def test_rows_without_an_advantage_train_nothing(step: Story) -> None:
    muted = {key for keys in broken_groups(step) for key in keys}
    assert len(muted) == 32
    for key in muted:
        assert step.rows[key]["advantages"].tolist() == [0.0] * step.lengths[key]
    assert step.metrics["dataflex/nonfinite/advantages"] == 32
    finite = {key: value for key, value in advantages_of_finite(step).items() if key in step.rows}
    check_advantages(step, finite)


def advantages_of_finite(step: Story) -> dict[str, float]:
    """Advantages of the groups whose rewards are all finite."""
    found = {}
    for keys in step.groups.values():
        rewards = [step.generated[key] for key in keys]
        if all(map(math.isfinite, rewards)):
            found |= dict(zip(keys, grpo(rewards), strict=True))
    return found


@ways("rewards equal")
def test_equal_rewards_that_float32_cannot_hold_have_no_contrast(step: Story) -> None:
    constant = [keys for keys in step.groups.values() if len({step.generated[key] for key in keys}) == 1]
    assert len(constant) == 4
    assert set(step.rows) == set(step.generated) - {key for keys in constant for key in keys}


def test_bad_rewards_are_reported_once_in_a_run_with_the_rows(run: Run) -> None:
    # Each of the three steps has a block of its own, and so a new beginning.
    assert run.log.count("12 of 64 rows have rewards that are not finite, e.g. ") == 3


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
