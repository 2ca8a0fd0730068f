"""What the steps of `ways` must be, by hand, from the rewards of what was generated and from the rows that arrived."""

from __future__ import annotations

import itertools
import math

import pytest
from ppobyhand import grpo, terms
from ways import WAYS, Story

TOLERANCE = 1e-4

PLAIN_PPO = [
    name for name, way in WAYS.items() if way.loss_mode == "vanilla" and not way.odd and way.cut in (None, "baseline")
]
"""Ways whose losses `terms` computes."""


def ways(*names: str) -> pytest.MarkDecorator:
    """Run a test on the steps of some ways."""
    return pytest.mark.parametrize("step", names, indirect=True, ids=list(names))


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
