"""Who gets the next place, so that after every place each party has had its share."""

from __future__ import annotations

import math
from heapq import heappop, heappush

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Shares and what is owed are whole multiples of 1 / GRID: their sums are exact, so that neither the number of places
# nor how they are split into calls leaves a trace. float64 holds such multiples exactly up to 32.
GRID = 2**48
_AT_ONCE = 2**13  # places; so many times GRID is still an int64
_NEVER = 2**62


class Apportionment:
    """Gives places to D parties, one after the other, by Tijdeman's rule for the chairman assignment problem.

    What a party is owed is the sum of its shares in all places so far, less the places it got. With
    delta = 1 / (2D - 2), a place goes to one of those who, their share in it included, are owed delta or more: to the
    one that, if shares stayed as they are, would first be owed more than 1 - delta, and of equal ones to the first.

    As long as shares do not change, nobody is ever owed more than 1 - delta, or has had more than that too much. Then
    never more than one party is late, that is owed more than 1 - delta before a place is given. Shares that change can
    make several late at once; the place then goes to the one that is owed most, and this holds:

    - Nobody has ever had more than 1 - delta too much, so no place overshoots by 1.
    - Nobody is ever owed more than `1 + 1/2 + ... + 1/h` with h = D // 2, and less than 1 for D <= 3. No rule that does
      not know future shares can promise 1 for many parties.
    - A party whose share has become 0 may still get what it is owed from before. One whose share has always been 0
      gets nothing.

    Source: R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980). For why those who are late
    are served by what they are owed: D. Coppersmith et al., "The optimality of the online greedy algorithm in carpool
    and chairman assignment problems", ACM Transactions on Algorithms 7 (2011).

    Attributes:
        owed: `(D,)` float64, places that each party is owed; sums to 0.
    """

    def __init__(self, parties: int) -> None:
        if parties < 1:
            raise ValueError(f"places need at least 1 party, not {parties}")
        self.owed: NDArray[np.float64] = np.zeros(parties)

    def __len__(self) -> int:
        return len(self.owed)

    def assign(self, shares: ArrayLike, n: int) -> NDArray[np.int64]:
        """Give the next n places.

        Args:
            shares: `(D,)` relative sizes, finite and >= 0, at least one > 0. They count in steps of 2**-48.
            n: Number of places, >= 0. Two calls give what one call for all their places gives.

        Returns:
            `(n,)` int64 in `[0, D)`, the party of each place.

        Raises:
            ValueError: These are not shares of D parties, or n is negative.
        """
        if n < 0:
            raise ValueError(f"cannot give {n} places")
        rates = _on_grid(shares, len(self))
        places = np.zeros(n, dtype=np.int64)
        for start in range(0, n if len(self) > 1 else 0, _AT_ONCE):
            part = places[start : start + _AT_ONCE]
            before = (self.owed * GRID).astype(np.int64)
            part[:] = _give(before, rates, len(part))
            got = np.bincount(part, minlength=len(self))
            self.owed = (before + rates * len(part) - got * GRID) / GRID
        return places

    def restore(self, owed: ArrayLike) -> None:
        """Go on from an earlier `owed`.

        Raises:
            ValueError: It cannot have come from this number of parties.
        """
        given = np.array(owed, dtype=np.float64)
        if given.shape != self.owed.shape:
            raise ValueError(f"what is owed has the shape {given.shape}, not {self.owed.shape}")
        possible = (given > -1) & (given < 32)  # not so for a NaN
        if not possible.all() or (given * GRID % 1).any() or (given * GRID).astype(np.int64).sum():
            raise ValueError("what is owed is not between -1 and 32, not in steps of 2**-48 or does not sum to 0")
        self.owed = given


def _on_grid(shares: ArrayLike, parties: int) -> NDArray[np.int64]:
    """Shares `(parties,)` as whole multiples of 1 / `GRID` that sum to exactly `GRID`; 0 stays 0.

    Raises:
        ValueError: The shares have another shape, or are not finite, negative or all 0.
    """
    given = np.asarray(shares, dtype=np.float64)
    if given.shape != (parties,):
        raise ValueError(f"shares have the shape {given.shape}, not ({parties},)")
    wrong = ~(np.isfinite(given) & (given >= 0))
    if wrong.any():
        at = int(wrong.argmax())
        raise ValueError(f"shares must be finite and not negative, but share {at} is {given[at]}")
    if not given.any():
        raise ValueError("all shares are 0")
    scaled = given / given.max()  # the sum of very large shares is infinite
    exact = scaled / math.fsum(scaled) * GRID
    rates: NDArray[np.int64] = exact.astype(np.int64)
    most_cut = np.argsort(rates - exact, kind="stable")
    rates[most_cut[: GRID - int(rates.sum())]] += 1
    return rates


def _give(before: NDArray[np.int64], rates: NDArray[np.int64], n: int) -> list[int]:
    """The parties of n <= `_AT_ONCE` places, from what each is owed `(D,)` and its share in a place `(D,)` on the grid.

    As the shares stay the same, it is known when each claim to a place opens and when it is due.
    """
    low = -(-GRID // (2 * len(rates) - 2))
    high = GRID - low
    claims = np.maximum((before + rates * n - low) // GRID + 1, 0)
    party = np.repeat(np.arange(len(rates)), claims)
    first = np.cumsum(claims) - claims
    owed, rate = before[party] - (np.arange(len(party)) - first[party]) * GRID, rates[party]
    moving = np.maximum(rate, 1)
    opens = np.where(rate > 0, -((owed - low) // moving), 0)
    due, rest = np.divmod(high - owed, moving)
    due = np.where(rate > 0, due, np.where(owed > high, -1, _NEVER))  # late at every place after it
    # Whole places and the rest apart: a float of both would depend on the place that is counted from.
    by_due = np.lexsort((party, rest / moving, due))
    rank = np.empty_like(by_due)
    rank[by_due] = np.arange(len(rank))
    by_opening = np.lexsort((rank, opens))
    coming = [*zip(opens[by_opening].tolist(), rank[by_opening].tolist(), strict=True), (_NEVER, 0)]
    party_of, due_of = party[by_due].tolist(), due[by_due].tolist()

    # Each place depends on those before: this is a loop, and a fast one with plain integers.
    places: list[int] = []
    ready: list[int] = []
    out_of_turn: set[int] = set()
    standing, got, counted, at = before.copy(), [0] * len(rates), 0, 0
    for place in range(1, n + 1):
        while coming[at][0] <= place:
            heappush(ready, coming[at][1])
            at += 1
        while ready[0] in out_of_turn:
            heappop(ready)
        if due_of[ready[0]] < place and any(due_of[claim] < place for claim in ready[1:3]):
            for one in places[counted:]:
                standing[one] -= GRID
                got[one] += 1
            counted = len(places)
            most = int((standing + rates * place).argmax())
            out_of_turn.add(int(rank[first[most] + got[most]]))
            places.append(most)
        else:
            places.append(party_of[heappop(ready)])
    return places
