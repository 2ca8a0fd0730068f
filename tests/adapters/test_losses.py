"""Every policy loss that verl registers, and what weights do in it. Makes the table of docs/losses.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dataflex_events.adapters.verl import losses

pytestmark = pytest.mark.verl

TABLE = Path(__file__).parents[2] / "docs" / "losses.md"
ROWS, TOKENS = 4, 5


def registered() -> list[str]:
    """Names of verl's losses."""
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    return list(POLICY_LOSS_REGISTRY)


def gradient(loss_mode: str, weights: Tensor | None) -> Tensor:
    """Gradient `(ROWS, TOKENS)` of a policy loss by log-probs, with weights in the column that we choose for it."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config.actor import FSDPActorConfig, PolicyLossConfig

    settings: dict[str, Any] = {"clip_cov_ratio": 0.2, "kl_cov_ratio": 0.2, "dro_beta": 0.1}
    config = FSDPActorConfig(
        strategy="fsdp2",
        ppo_micro_batch_size_per_gpu=ROWS,
        rollout_n=1,
        policy_loss=PolicyLossConfig(loss_mode=loss_mode, **settings),
    )
    config.global_batch_info.update(dp_size=1, batch_num_tokens=ROWS * TOKENS, global_batch_size=ROWS)
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(ROWS, TOKENS, generator=generator) - 0.1
    new = (old + 0.05 * torch.randn(ROWS, TOKENS, generator=generator)).requires_grad_()
    advantages = torch.tensor([1.0, -0.5, 0.7, -1.2]).unsqueeze(1).expand(ROWS, TOKENS).clone()
    importance = None
    if weights is not None and losses.channel_of(loss_mode) == "advantages":
        advantages = advantages * weights
    elif weights is not None:
        importance = weights
    torch.manual_seed(0)  # clip_cov and kl_cov choose tokens at random
    loss, _ = get_policy_loss_fn(loss_mode)(
        old_log_prob=old,
        log_prob=new,
        advantages=advantages,
        response_mask=torch.ones(ROWS, TOKENS, dtype=torch.bool),
        loss_agg_mode="token-mean",
        config=config,
        rollout_is_weights=importance,
    )
    assert loss.isfinite()
    (found,) = torch.autograd.grad(loss, new)
    return found


def test_we_know_the_losses_that_verl_has() -> None:
    assert sorted(registered()) == sorted(losses.KNOWN)


@pytest.mark.parametrize("loss", losses.KNOWN)
def test_weights_of_one_change_nothing(loss: str) -> None:
    assert torch.equal(gradient(loss, torch.ones(ROWS, TOKENS)), gradient(loss, None))


@pytest.mark.parametrize("loss", losses.KNOWN)
def test_a_row_of_weight_zero_has_no_gradient_and_leaves_the_others_alone(loss: str) -> None:
    weights = torch.ones(ROWS, TOKENS)
    weights[1] = 0
    got, plain = gradient(loss, weights), gradient(loss, None)
    assert got[1].abs().max() < 1e-6
    if loss not in CHOOSES_TOKENS:
        torch.testing.assert_close(got[[0, 2, 3]], plain[[0, 2, 3]])


# These choose some tokens of the batch by their advantages and treat them in another way.
CHOOSES_TOKENS = ("clip_cov", "kl_cov")


def doubles(loss: str) -> bool:
    """Weight 2 for everything doubles the gradient."""
    return torch.allclose(gradient(loss, torch.full((ROWS, TOKENS), 2.0)), 2 * gradient(loss, None), rtol=1e-4)


def silences_a_token(loss: str) -> bool:
    """Weight 0 for a single token takes its gradient away, and that of no other token of the row."""
    weights = torch.ones(ROWS, TOKENS)
    weights[0, 2] = 0
    got, plain = gradient(loss, weights), gradient(loss, None)
    return bool(got[0, 2].abs() < 1e-6) and torch.allclose(got[0, 3:], plain[0, 3:], rtol=1e-4)


def row_of(loss: str) -> str:
    linear = "yes" if doubles(loss) else "no"
    token = "that token's gradient" if silences_a_token(loss) else "a part of its row's gradient"
    return f"| `{loss}` | `{losses.channel_of(loss)}` | {linear} | {token} |"


def test_the_table_in_the_docs_is_what_we_see() -> None:
    expected = [row_of(loss) for loss in registered()]
    found = [line for line in TABLE.read_text().splitlines() if line.startswith("| `")]
    assert found == expected, "\n".join(["docs/losses.md should say:", *expected])
