"""Imports every built-in component, so that each registers its name. Named by the package's own entry point."""

from dataflex_events.handlers.gates import adarft, difficulty_pools, greso, learnability, mopps
from dataflex_events.handlers.mixers import dump_ucb, exp3, reward_gap, sec, static, tscl
from dataflex_events.handlers.observers import tensorboard
from dataflex_events.handlers.reweighters import advantage_reweight, difficulty_band, per_advantage, softmax
from dataflex_events.handlers.scorers import (
    advantage_magnitude,
    group_advantage,
    group_reward_std,
    group_solve_rate,
    response_length,
    reward,
    token_entropy,
    token_prob,
)
from dataflex_events.handlers.selectors import gfpo, max_variance, threshold_band, top_entropy_tokens, topk_fraction

__all__ = [
    "adarft",
    "advantage_magnitude",
    "advantage_reweight",
    "difficulty_band",
    "difficulty_pools",
    "dump_ucb",
    "exp3",
    "gfpo",
    "greso",
    "group_advantage",
    "group_reward_std",
    "group_solve_rate",
    "learnability",
    "max_variance",
    "mopps",
    "per_advantage",
    "response_length",
    "reward",
    "reward_gap",
    "sec",
    "softmax",
    "static",
    "tensorboard",
    "threshold_band",
    "token_entropy",
    "token_prob",
    "top_entropy_tokens",
    "topk_fraction",
    "tscl",
]
