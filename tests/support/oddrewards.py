"""Rewards for tests of the ways to apply a policy: those of `droprewards`, or numbers that no reward should be."""

from __future__ import annotations

import math
from typing import Any

import droprewards

# What sessions 0, 3 and 6 of a prompt get whose `extra_info.odd` says so.
ODD = {"nan": math.nan, "inf": math.inf, "huge": 1e30, "negative": -5.0}


def compute_score(solution_str: str, extra_info: dict[str, Any], **rest: Any) -> dict[str, float]:
    """As the prompt says. `equal` is 0.9 for all sessions, which float32 cannot hold exactly.

    Beside the score it says `acc`: 1 for two sessions of every second prompt, else 0.
    """
    odd = extra_info["odd"]
    if odd == "equal":
        score = 0.9
    elif odd is not None and extra_info["session"] % 3 == 0:
        score = ODD[odd]
    else:
        score = droprewards.compute_score(solution_str=solution_str, extra_info=extra_info, **rest)["score"]
    return {"score": score, "acc": float(extra_info["session"] < 2 and extra_info["index"] % 2 == 0)}
