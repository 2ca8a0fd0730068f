"""The permutation against the same in plain integers, and what every permutation must be."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.permutation import mixed, permuted

WORD = 2**64


def mixed_slowly(value):
    value = (value + 0x9E3779B97F4A7C15) % WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % WORD
    return value ^ (value >> 31)


def permuted_slowly(index, size, key):
    half = ((size - 1).bit_length() + 1) // 2
    while True:
        left, right = divmod(index, 2**half)
        round_key = key
        for _ in range(10):
            round_key = mixed_slowly(round_key)
            left, right = right, (left + mixed_slowly(round_key ^ right)) % 2**half
        index = left * 2**half + right
        if index < size:
            return index


def whole(size, key):
    return permuted(np.arange(size), np.full(size, size), np.full(size, key, dtype=np.uint64))


def by_key(index, size, keys):
    """Where one index goes under the keys 0, 1, 2, ..."""
    return permuted(np.full(keys, index), np.full(keys, size), np.arange(keys, dtype=np.uint64))


def uniform(counts):
    """Whether chi squared is within five standard deviations of what equally likely outcomes give."""
    expected = counts.sum() / counts.size
    free = counts.size - 1
    return abs(((counts - expected) ** 2 / expected).sum() - free) < 5 * math.sqrt(2 * free)


def test_the_mixer_against_published_values_of_splitmix64():
    got = mixed(np.array([0, 0x9E3779B97F4A7C15, 1234567], dtype=np.uint64)).tolist()
    assert got == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 6457827717110365317]


@given(
    elements=st.lists(
        st.integers(1, 2**53).flatmap(
            lambda size: st.tuples(st.integers(0, size - 1), st.just(size), st.integers(0, WORD - 1))
        ),
        max_size=5,
    )
)
def test_saved_states_go_on_with_these_orders(elements):
    index, size, key = (list(column) for column in zip(*elements, strict=True)) if elements else ([], [], [])
    got = permuted(np.array(index, np.int64), np.array(size, np.int64), np.array(key, np.uint64))
    assert got.dtype == np.int64
    assert got.tolist() == [permuted_slowly(*element) for element in elements]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 4096, 4097])
def test_saved_states_go_on_with_these_orders_at_the_edges_of_a_range(size):
    index = np.unique([0, size // 2, size - 1])
    got = permuted(index, np.full(len(index), size), np.full(len(index), WORD - 1, dtype=np.uint64))
    assert got.tolist() == [permuted_slowly(at, size, WORD - 1) for at in index.tolist()]


def test_every_size_up_to_300_is_permuted():
    for size in range(1, 301):
        assert sorted(whole(size, size % 5).tolist()) == list(range(size))


@pytest.mark.parametrize("size", [2**16, 2**16 + 1, 100_003])
def test_large_sizes_are_permuted(size):
    assert np.array_equal(np.sort(whole(size, 3)), np.arange(size))


@pytest.mark.parametrize("size", [10**8, 2**53])
def test_indices_of_a_huge_size_stay_apart_and_inside(size):
    index = np.concatenate([np.arange(5000), size - 1 - np.arange(5000)])
    got = permuted(index, np.full(10_000, size), np.full(10_000, 1, dtype=np.uint64))
    assert len(np.unique(got)) == 10_000
    assert 0 <= got.min() <= got.max() < size
    assert uniform(np.bincount(got * 10 // size if size < 2**50 else got // (size // 10 + 1)))


def test_elements_of_different_sizes_and_keys_do_not_mix():
    sizes, keys = [1, 5, 300, 5], [3, 3, 9, 4]
    size, key = np.repeat(sizes, sizes), np.repeat(np.array(keys, dtype=np.uint64), sizes)
    index = np.concatenate([np.arange(count) for count in sizes])
    expected = np.concatenate([whole(count, one) for count, one in zip(sizes, keys, strict=True)])
    assert np.array_equal(permuted(index, size, key), expected)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 10, 16, 17, 100])
def test_over_all_keys_every_index_comes_first_equally_often(size):
    assert uniform(np.bincount(by_key(0, size, 30_000), minlength=size))


@pytest.mark.parametrize("size", [3, 4, 5, 10, 16, 17, 60])
@pytest.mark.parametrize("other", [1, -1])
def test_over_all_keys_every_pair_comes_equally_often(size, other):
    pairs = by_key(0, size, 60_000) * size + by_key(other % size, size, 60_000)
    counts = np.bincount(pairs, minlength=size * size).reshape(size, size)
    assert not counts.diagonal().any()
    assert uniform(counts[~np.eye(size, dtype=bool)])


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_over_all_keys_a_few_rows_come_in_every_order_equally_often(size):
    orders = np.stack([by_key(index, size, 60_000) for index in range(size)], axis=1)
    _, counts = np.unique(orders @ size ** np.arange(size), return_counts=True)
    assert len(counts) == math.factorial(size)
    assert uniform(counts)


def test_keys_give_orders_that_have_nothing_in_common():
    orders = [whole(1000, key) for key in (0, 1, 2, 2**32, 2**63, WORD - 1)]
    for one, other in itertools.combinations(orders, 2):
        assert (one == other).sum() < 10  # 1 is expected
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.15
    for order in orders:
        assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.15


def test_no_elements():
    assert permuted(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint64)).shape == (0,)


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_is_refused(index):
    with pytest.raises(ValueError, match="outside the range"):
        permuted(np.array([0, index]), np.array([3, 3]), np.zeros(2, dtype=np.uint64))
