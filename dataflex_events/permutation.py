"""Pseudo-random permutations of [0, size) that are computed where they are needed: no shuffled array, only a key."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mixed(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit numbers, one to one.

    Source: `SplittableRandom` of G. Steele, D. Lea and C. Flood, "Fast splittable pseudorandom number generators",
    OOPSLA 2014, with the constants of S. Vigna's splitmix64.
    """
    state: NDArray[np.uint64] = value + _GOLDEN
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state


def permuted(index: NDArray[np.int64], size: NDArray[np.int64], key: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Where the permutation of [0, size) with the given key takes an index. Every element has its own size and key.

    A balanced Feistel network permutes the smallest range of 4**h numbers that holds `size`; a result outside is
    permuted again, until it is inside. What a key does never changes: saved states depend on it.

    Source: J. Black and P. Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002.

    Args:
        index: `(n,)` int64 in `[0, size)`.
        size: `(n,)` int64 in `[1, 2**53]`.
        key: `(n,)` uint64.

    Returns:
        `(n,)` int64 in `[0, size)`.

    Raises:
        ValueError: An index is not in `[0, size)`.
    """
    if ((index < 0) | (index >= size)).any():
        raise ValueError("an index is outside the range that is permuted")
    bits = np.frexp((size - 1).astype(np.float64))[1]
    half = ((bits + 1) // 2).astype(np.uint64)
    value = index.astype(np.uint64)
    todo = np.arange(len(value))
    while len(todo):
        value[todo] = _network(value[todo], half[todo], key[todo])
        todo = todo[value[todo] >= size[todo].astype(np.uint64)]
    return value.astype(np.int64)


def _network(value: NDArray[np.uint64], half: NDArray[np.uint64], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mask = (np.uint64(1) << half) - np.uint64(1)
    left, right = value >> half, value & mask
    for _ in range(_ROUNDS):
        key = mixed(key)
        # The sum, not the exclusive or: this reaches every order of a handful of rows, and all equally often.
        left, right = right, (left + mixed(key ^ right)) & mask
    joined: NDArray[np.uint64] = (left << half) | right
    return joined
