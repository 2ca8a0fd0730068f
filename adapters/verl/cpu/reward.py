"""The lab's reward: 1 for exactly the right answer, else 0.

verl loads this file by its path, so it imports nothing of this package.
"""

from __future__ import annotations

from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **unused: Any
) -> dict[str, float]:
    """Compare a response with the right answer.

    Args:
        data_source: verl's name of the data set; not used.
        solution_str: Decoded response without special tokens.
        ground_truth: The right answer.
        extra_info: Further columns; not used.
    """
    correct = float(solution_str.strip() == ground_truth)
    return {"score": correct, "acc": correct}
