"""What mixers have in common: shares of domains, made from scores or from numbers, and the check of a saved state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dataflex_events.errors import nearest


def softmax(scores: Tensor, temperature: float) -> Tensor:
    """`softmax(scores / temperature)`, for scores of any size and every temperature above 0.

    Args:
        scores: `(D,)` float64 without NaN.
        temperature: Lower is sharper.

    Returns:
        `(D,)` float64 with sum 1.
    """
    limits = torch.finfo(scores.dtype)
    scores = scores.clamp(limits.min, limits.max)  # infinity minus infinity is NaN
    # Relative to the highest, so that no temperature is too low to divide by.
    return torch.softmax((scores - scores.max()) / temperature, 0)


def with_floor(shares: Tensor, floor: float) -> Tensor:
    """`floor + (1 - D * floor) * shares`: no domain has less than the floor, and the sum stays 1.

    Args:
        shares: `(D,)` with sum 1.
        floor: At most 1 / D (see `check_floor`).
    """
    return floor + (1 - len(shares) * floor) * shares


def check_floor(floor: float, domains: int) -> None:
    """Refuse a smallest share that not all domains can have.

    Raises:
        ValueError: D times the floor is more than 1.
    """
    if floor * domains > 1:
        raise ValueError(f"floor {floor} is too much for {domains} domains: at most 1/{domains} works, {1 / domains}")


def check_numbers(given: Mapping[str, float] | Sequence[float]) -> None:
    """Refuse numbers, by name or in a row, that cannot be made shares.

    Raises:
        ValueError: One is negative or not finite, or all are 0.
    """
    named = given if isinstance(given, Mapping) else {f"number {n}": value for n, value in enumerate(given, 1)}
    wrong = [f"{name} is {value}" for name, value in named.items() if not (math.isfinite(value) and value >= 0)]
    if wrong:
        raise ValueError(f"proportions must be finite and not negative, but {', '.join(wrong)}")
    if not any(named.values()):
        raise ValueError("all proportions are 0, so nothing could be drawn")


def shares_of(given: Mapping[str, float] | Sequence[float], names: Sequence[str]) -> Tensor:
    """Numbers for the domains, divided by their sum.

    Args:
        given: The numbers, by name or in the order of `names`.
        names: Names of the D domains.

    Returns:
        `(D,)` float64 with sum 1.

    Raises:
        ValueError: They are about other domains, or cannot be made shares.
    """
    check_numbers(given)
    if isinstance(given, Mapping):
        known = set(names)
        wrong = [f"unknown domain {name!r}{nearest(name, names)}" for name in given if name not in known]
        wrong += [f"no proportion for {name!r}" for name in names if name not in given]
        if wrong:
            raise ValueError("; ".join(wrong))
        given = [given[name] for name in names]
    if len(given) != len(names):
        raise ValueError(f"{len(given)} proportions for the {len(names)} domains {', '.join(names)}")
    shares = torch.tensor(given, dtype=torch.float64)
    shares = shares / shares.max()  # the sum of very large numbers is infinite
    return shares / shares.sum()


def checked_state(state: Mapping[str, Any], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors of a saved state.

    Args:
        state: The saved state.
        own: The present one. The other must have the same names, and finite tensors of the same types and shapes.

    Raises:
        ValueError: It does not.
    """
    if state.keys() != own.keys():
        raise ValueError(f"its keys are {sorted(state)}, and should be {sorted(own)}")
    for name, like in own.items():
        value = state[name]
        if not isinstance(value, Tensor):
            raise ValueError(f"its {name!r} is a {type(value).__name__} and not a tensor")
        if value.shape != like.shape or value.dtype != like.dtype:
            given, wanted = (f"{tensor.dtype} of shape {tuple(tensor.shape)}" for tensor in (value, like))
            raise ValueError(f"its {name!r} is {given}, and should be {wanted}")
        if not bool(value.isfinite().all()):
            raise ValueError(f"its {name!r} has values that are not finite")
    return {name: state[name].clone() for name in own}
