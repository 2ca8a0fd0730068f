"""Rewards for tests of dropping rows. Given to verl by path, so it imports nothing of this package."""

from __future__ import annotations

import zlib
from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any], **unused: Any
) -> dict[str, float]:
    """The prompt's constant where it has one, else a number in [0, 1) that is another one for each session.

    Three of the eight sessions of a group are above 0.5 and four below, whatever the model answers; the answer adds a
    little.
    """
    if extra_info["constant"] is None:
        place = (5 * extra_info["session"] + 3 * extra_info["index"]) % 8
        score = place / 8 + zlib.crc32(solution_str.encode()) % 1000 / 10000
    else:
        score = float(extra_info["constant"])
    return {"score": score, "acc": score}
