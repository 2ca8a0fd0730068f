"""Weights in each of verl's policy losses, at the far end: they arrive in the column from which the loss reads them."""

from __future__ import annotations

import math

import pytest
import torch
from ways import LOSSES, Story
from wayscheck import check_weights, ways

pytestmark = pytest.mark.e2e

WEIGHTED_LOSSES = [f"loss {name}" for name in (*LOSSES, "bypass_mode")]


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
