"""Apportionment against its rule in fractions, and against the bounds that it promises."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.apportion import Apportionment

STEPS = 2**48


class Slow:
    """The rule as it is written, in exact fractions."""

    def __init__(self, parties):
        self.owed = [Fraction(0)] * parties
        # to the step that the library counts in, so that exact ties are ties here, too
        self.delta = Fraction(-(-STEPS // (2 * parties - 2)), STEPS)
        self.most_late = 0

    def place(self, shares):
        self.owed = [owed + share for owed, share in zip(self.owed, shares, strict=True)]
        everyone = range(len(shares))
        late = [party for party in everyone if self.owed[party] > 1 - self.delta]
        self.most_late = max(self.most_late, len(late))
        if len(late) > 1:
            chosen = max(late, key=lambda party: (self.owed[party], -party))
        else:
            enough = [party for party in everyone if self.owed[party] >= self.delta]
            chosen = late[0] if late else min(enough, key=lambda party: (*self.due(party, shares[party]), party))
        self.owed[chosen] -= 1
        return chosen

    def due(self, party, share):
        if not share:
            return math.inf, 0.0
        places = (1 - self.delta - self.owed[party]) / share
        return places // 1, float(places % 1)


@st.composite
def exact_shares(draw, parties):
    """Shares in steps of 1/1024 that sum to 1; some are 0."""
    cuts = sorted(draw(st.lists(st.integers(0, 1024), min_size=parties - 1, max_size=parties - 1)))
    return [Fraction(high - low, 1024) for low, high in zip([0, *cuts], [*cuts, 1024], strict=True)]


@st.composite
def changing(draw):
    """`(shares, places)` of a few calls for one number of parties."""
    count = draw(st.integers(2, 7))
    return draw(st.lists(st.tuples(exact_shares(count), st.integers(0, 25)), min_size=1, max_size=6))


def floats(shares):
    return np.array([float(share) for share in shares])


def traced(apportionment, calls):
    """All places of the calls, and what everyone is owed after each: `(places, D)`, added up here."""
    owed, places, trace = np.zeros(len(apportionment)), [], []
    for shares, n in calls:
        for party in apportionment.assign(shares, n).tolist():
            owed = owed + shares
            owed[party] -= 1
            places.append(party)
            trace.append(owed)
    return places, np.array(trace).reshape(len(places), len(apportionment))


def harmonic(number):
    return sum(1 / at for at in range(1, number + 1))


def test_ten_places_by_hand():
    # delta 1/4; at place 9 the second is owed .7 and due in .05/.3, the first .5 and due in .25/.5 places
    assert Apportionment(3).assign([0.5, 0.3, 0.2], 10).tolist() == [0, 1, 0, 2, 0, 1, 0, 2, 1, 0]


def test_of_equal_parties_the_first_comes_first():
    assert Apportionment(4).assign([0.25] * 4, 8).tolist() == [0, 1, 2, 3, 0, 1, 2, 3]


@given(calls=changing())
def test_the_rule_in_fractions(calls):
    slow, fast = Slow(len(calls[0][0])), Apportionment(len(calls[0][0]))
    for shares, n in calls:
        assert fast.assign(floats(shares), n).tolist() == [slow.place(shares) for _ in range(n)]
    assert fast.owed.tolist() == [float(owed) for owed in slow.owed]


@pytest.mark.parametrize("parties", [7, 16, 32])
def test_the_rule_in_fractions_where_many_are_late(parties):
    slow, fast = Slow(parties), Apportionment(parties)
    for count in (parties, parties // 2, parties // 4, 1) * 3:
        # nearly everything for those who are owed most
        most = sorted(range(parties), key=lambda party: -slow.owed[party])[:count]
        shares = [Fraction(1024 + (party in most) * (STEPS // count // 4096 * 4096), STEPS) for party in range(parties)]
        shares[most[0]] += 1 - sum(shares)
        for places in (parties // 3, parties) if count == 1 else (parties // 3,):
            assert fast.assign(floats(shares), places).tolist() == [slow.place(shares) for _ in range(places)]
    assert slow.most_late > 1


@given(weights=st.lists(st.integers(0, 12), min_size=2, max_size=9).filter(any))
def test_constant_shares_stay_within_the_bound_of_the_theorem(weights):
    shares = np.array(weights) / sum(weights)
    _, owed = traced(Apportionment(len(weights)), [(shares, 2 * sum(weights))])
    assert np.abs(owed).max() <= 1 - 1 / (2 * len(weights) - 2) + 1e-9
    assert owed[sum(weights) - 1] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("parties", [2, 3, 30, 1000])
@pytest.mark.parametrize("skew", [0.3, 1.0, 5.0])
def test_constant_shares_of_many_parties(parties, skew):
    shares = np.random.default_rng(parties).pareto(skew, parties) + 1e-3
    shares /= shares.sum()
    places, owed = traced(Apportionment(parties), [(shares, 3000)])
    delta = 1 / (2 * parties - 2)
    assert np.abs(owed).max() <= 1 - delta + 1e-9
    for party in np.flatnonzero(shares > 4 / 3000):
        at = np.flatnonzero(np.array(places) == party) + 1
        assert at[0] <= math.ceil(1 / shares[party])
        assert np.diff(at).max() <= math.floor((2 - 2 * delta) / shares[party]) + 1


@given(calls=changing())
def test_whatever_the_shares_nobody_is_far_ahead_or_behind(calls):
    parties = len(calls[0][0])
    _, owed = traced(Apportionment(parties), [(floats(shares), n) for shares, n in calls])
    assert owed.min(initial=0) >= -1 + 1 / (2 * parties - 2) - 1e-9
    assert owed.max(initial=0) <= harmonic(parties // 2)
    if parties <= 3:
        assert np.abs(owed).max(initial=0) < 1


@pytest.mark.parametrize("parties", [2, 3, 4, 8, 16, 64, 256])
def test_an_adversary_who_gives_shares_to_those_who_got_no_place(parties):
    apportionment, worst = Apportionment(parties), 0.0
    for _ in range(3):
        behind = np.arange(parties)
        while len(behind) > 1:
            shares = np.zeros(parties)
            shares[behind] = 1 / len(behind)
            behind = np.setdiff1d(behind, apportionment.assign(shares, 1))
            worst = max(worst, apportionment.owed.max())
    assert worst <= harmonic(parties // 2)
    if parties > 3:
        assert worst > 1  # so nobody may promise less


def test_those_who_grow_fast_do_not_wait_for_all_who_are_late_and_grow_slowly():
    parties = 64
    apportionment = Apportionment(parties)
    apportionment.assign(np.ones(parties), parties // 2)
    apportionment.assign(apportionment.owed > 0, parties // 4)
    assert (apportionment.owed == 1).sum() == parties // 4
    shares = np.full(parties, 1e-6)
    shares[apportionment.owed.argmin()] = 1
    for _ in range(parties // 4):
        apportionment.assign(shares, 1)
        assert apportionment.owed.max() < 1.1


@given(
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=8).filter(any),
    others=st.lists(st.floats(0, 1), min_size=8, max_size=8).filter(lambda shares: shares[0] > 0),
    parts=st.lists(st.integers(0, 40), max_size=6),
)
def test_how_places_are_split_into_calls_makes_no_difference(shares, others, parts):
    whole, split = Apportionment(len(shares)), Apportionment(len(shares))
    for given_shares in (shares, others[: len(shares)], shares):
        together = [party for n in parts for party in split.assign(given_shares, n)]
        assert whole.assign(given_shares, sum(parts)).tolist() == together
        assert whole.owed.tolist() == split.owed.tolist()


def test_a_long_call_is_its_parts():
    shares = np.random.default_rng(0).random(50)
    whole, split = Apportionment(50), Apportionment(50)
    together = np.concatenate([split.assign(shares, n) for n in (1, 8191, 8192, 3, 13_000)])
    assert whole.assign(shares, 29_387).tolist() == together.tolist()


def test_nothing_is_lost_in_a_very_long_run():
    shares = [1 / 3, 1 / 7, 0.1, 1 - 1 / 3 - 1 / 7 - 0.1]
    apportionment = Apportionment(4)
    got = np.bincount(apportionment.assign(shares, 400_000), minlength=4)
    assert math.fsum(apportionment.owed) == 0
    assert apportionment.owed == pytest.approx(400_000 * np.array(shares) - got, abs=1e-6)
    assert np.abs(apportionment.owed).max() <= 1 - 1 / 6


def test_a_party_without_shares_gets_nothing():
    apportionment = Apportionment(5)
    got = [apportionment.assign(shares, 200) for shares in ([1, 0, 3, 0, 1e-3], [5, 0, 1, 0, 2])]
    assert not np.isin(got, [1, 3]).any()


def test_a_party_whose_share_becomes_0_gets_what_it_is_late_for():
    apportionment = Apportionment(4)
    apportionment.restore([0.875, 0.25, -0.5, -0.625])
    # being owed more than 5/6 it is late, and the second is not; then it is 1/8 ahead and stays there
    assert np.flatnonzero(apportionment.assign([0, 1, 1, 1], 30) == 0).tolist() == [0]
    assert apportionment.owed[0] == -0.125


@pytest.mark.parametrize("shares", [[2, 6, 8], [1.5e308, 1.5e308, 1e308], [5e-324, 0, 5e-324], [1, 1e-320, 1]])
def test_shares_are_relative(shares):
    total = sum(map(Fraction, shares))
    got = np.bincount(Apportionment(3).assign(shares, 1600), minlength=3)
    assert got == pytest.approx([float(1600 * Fraction(share) / total) for share in shares], abs=0.75 + 1e-9)


@pytest.mark.parametrize("parties", [1, 3])
def test_no_places(parties):
    apportionment = Apportionment(parties)
    apportionment.assign(np.ones(parties), 2)
    before = apportionment.owed.tolist()
    places = apportionment.assign(np.ones(parties), 0)
    assert places.dtype == np.int64
    assert places.shape == (0,)
    assert apportionment.owed.tolist() == before


def test_a_single_party_gets_every_place():
    apportionment = Apportionment(1)
    assert apportionment.assign([0.3], 4).tolist() == [0, 0, 0, 0]
    assert apportionment.owed.tolist() == [0.0]


@pytest.mark.parametrize(
    ("shares", "reason"),
    [
        ([1.0, 1.0], "shape"),
        ([[1.0, 1.0, 1.0]], "shape"),
        ([1.0, -0.1, 1.0], "share 1 is -0.1"),
        ([1.0, 1.0, math.nan], "share 2 is nan"),
        ([math.inf, 1.0, 1.0], "share 0 is inf"),
        ([0.0, 0.0, 0.0], "all shares are 0"),
    ],
)
def test_wrong_shares_are_refused_and_change_nothing(shares, reason):
    apportionment = Apportionment(3)
    with pytest.raises(ValueError, match=reason):
        apportionment.assign(shares, 2)
    assert apportionment.owed.tolist() == [0, 0, 0]


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="-1 places"):
        Apportionment(2).assign([1, 1], -1)
    with pytest.raises(ValueError, match="at least 1 party"):
        Apportionment(0)


@given(calls=changing(), data=st.data())
def test_restoring_continues_as_if_nothing_had_happened(calls, data):
    parties = len(calls[0][0])
    one, other = Apportionment(parties), Apportionment(parties)
    for shares, n in calls:
        one.assign(floats(shares), n)
    other.assign(np.ones(parties), 3)
    other.restore(one.owed)
    shares = data.draw(exact_shares(parties))
    assert other.assign(floats(shares), 20).tolist() == one.assign(floats(shares), 20).tolist()


@pytest.mark.parametrize(
    "owed", [[0.0], [0.5, 0.5], [1.5, -1.5], [40.0, -40.0], [math.nan, 0.0], [0.1, -0.1], [math.inf, -math.inf]]
)
def test_what_cannot_be_owed_is_refused(owed):
    with pytest.raises(ValueError, match="what is owed"):
        Apportionment(2).restore(owed)


def test_restoring_many_parties():
    rng = np.random.default_rng(2)
    some = rng.integers(0, STEPS, 5000) / STEPS
    owed = np.concatenate([some, -rng.permutation(some)])  # adds up to exactly 0, but not in float64
    apportionment = Apportionment(10_000)
    apportionment.restore(owed)
    assert apportionment.owed.tolist() == owed.tolist()


@pytest.mark.parametrize("parties", [1, 2, 100, 10_000])
@pytest.mark.parametrize("skew", [0.5, 1.0, 100.0])
def test_ten_thousand_places_take_less_than_a_tenth_of_a_second(parties, skew):
    shares = np.random.default_rng(0).pareto(skew, parties) + 1e-6
    apportionment, took = Apportionment(parties), []
    for _ in range(3):
        start = time.process_time()
        apportionment.assign(shares, 10_000)
        took.append(time.process_time() - start)
    assert min(took) < 0.1
