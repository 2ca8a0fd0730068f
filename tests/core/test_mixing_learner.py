"""What mix policies are good for: a learner that gets better at what it practises, through the bus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from mixbus import Run, block
from mixlearner import IMPOSSIBLE, MASTERED, Learner, Skill


def after(block: dict[str, Any], skills: Mapping[str, Skill], steps: int, seed: int) -> dict[str, float]:
    """Mean proportions over a run."""
    run, learner = Run(block, tuple(skills), rows=200), Learner(skills, seed)
    shares = []
    for _ in range(steps):
        run.take_step(learner)
        shares.append(run.mix.proportions)
    return dict(zip(skills, torch.stack(shares).mean(dim=0).tolist(), strict=True))


FOUR = {
    "mastered": MASTERED,
    "impossible": IMPOSSIBLE,
    "ahead": Skill(0.5, 0.95, 4000),
    "behind": Skill(0.1, 0.9, 4000),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("mixer", ["dump_ucb", "sec"])
def test_what_is_mastered_or_hopeless_loses_share(mixer: str, seed: int):
    share = after(block(mixer), FOUR, 60, seed)
    assert max(share["mastered"], share["impossible"]) < 0.2
    assert min(share["ahead"], share["behind"]) > 0.3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_lags_gains_under_reward_gap(seed: int):
    share = after(
        block("reward_gap", params={"temperature": 0.3}), {"ahead": MASTERED, "behind": Skill(0.2, 0.3)}, 20, seed
    )
    assert share["behind"] > 0.6


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_moves_gains_under_tscl(seed: int):
    moving = {"still": Skill(0.5, 0.5), "moving": Skill(0.0, 1.0, needed=600)}
    run, learner = Run(block("tscl", params={"temperature": 0.02}), tuple(moving), rows=200), Learner(moving, seed)
    best = 0.0
    for _ in range(8):
        run.take_step(learner, prompts=32)
        best = max(best, run.mix.proportions[1].item())
    assert best > 0.6
