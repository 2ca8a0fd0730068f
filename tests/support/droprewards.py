"""Rewards for tests of dropping rows. Given to verl by path, so it imports nothing of this package."""

from __future__ import annotations

import zlib
from typing import Any

SALT = 99
"""With this one, every group of the first batch has at least three rewards on either side of 0.5."""


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **unused: Any
) -> dict[str, float]:
    """A number in [0, 1) that depends on the response alone, or the prompt's constant where it has one."""
    constant = (extra_info or {}).get("constant")
    hashed = zlib.crc32(f"{SALT}{solution_str}".encode()) % 1000 / 1000
    score = hashed if constant is None else float(constant)
    return {"score": score, "acc": score}
