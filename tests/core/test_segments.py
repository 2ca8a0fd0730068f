"""The ragged primitives against loops over Python lists."""

import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import NUMBERS_AND_WORSE, flatten, ragged_lists

from dataflex_events.segments import (
    group_moments,
    group_rank,
    group_reduce,
    offsets_of,
    quantiles,
    segment_reduce,
    spread,
    take_rows,
)

HOW = ["sum", "mean", "max", "min"]


def slowly(values, how):
    if not values:
        return 0.0
    if any(math.isnan(value) for value in values):
        return math.nan
    return {"sum": math.fsum, "mean": lambda v: math.fsum(v) / len(v), "max": max, "min": min}[how](values)


def reduced(values, how):
    """`slowly`, where both infinities in one sum are NaN instead of fsum's error."""
    both = {math.inf, -math.inf} <= set(values)
    return math.nan if both and how in ("sum", "mean") else slowly(values, how)


def same(tensor, expected):
    assert tensor.dtype == torch.float32
    assert tensor.tolist() == pytest.approx(expected, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("how", HOW)
@given(rows=ragged_lists())
def test_every_row_is_reduced_on_its_own(how, rows):
    values, offsets = flatten(rows)
    same(segment_reduce(values, offsets, how), [reduced(row, how) for row in rows])


@pytest.mark.parametrize("how", HOW)
@given(rows=ragged_lists(), data=st.data())
def test_masked_tokens_do_not_count_whatever_their_value(how, rows, data):
    values, offsets = flatten(rows)
    masks = [data.draw(st.lists(st.booleans(), min_size=len(row), max_size=len(row))) for row in rows]
    expected = [
        reduced([value for value, on in zip(row, mask, strict=True) if on], how)
        for row, mask in zip(rows, masks, strict=True)
    ]
    mask = torch.tensor([on for row in masks for on in row], dtype=torch.bool)
    same(segment_reduce(values, offsets, how, mask), expected)
    same(segment_reduce(values, offsets, how, mask.to(torch.int64)), expected)  # as verl stores it


@pytest.mark.parametrize("how", HOW)
@given(pairs=st.lists(st.tuples(st.integers(0, 3), NUMBERS_AND_WORSE, st.booleans()), max_size=8))
def test_every_row_gets_the_result_of_its_group(how, pairs):
    codes = torch.tensor([code for code, _, _ in pairs], dtype=torch.int64)
    values = torch.tensor([value for _, value, _ in pairs], dtype=torch.float32)
    mask = torch.tensor([on for _, _, on in pairs], dtype=torch.bool)

    def group(code, only_on):
        return [value for other, value, on in pairs if other == code and (on or not only_on)]

    same(group_reduce(values, codes, how), [reduced(group(code, False), how) for code, _, _ in pairs])
    same(group_reduce(values, codes, how, mask), [reduced(group(code, True), how) for code, _, _ in pairs])


TRIPLES = st.lists(st.tuples(st.integers(0, 3), NUMBERS_AND_WORSE, st.booleans()), max_size=10)


def columns(triples):
    codes, values, mask = zip(*triples, strict=True) if triples else ((), (), ())
    return (
        torch.tensor(codes, dtype=torch.int64),
        torch.tensor(values, dtype=torch.float32),
        torch.tensor(mask, dtype=torch.bool),
    )


def moments(values):
    """Mean and unbiased standard deviation; NaN where a value is not finite."""
    if not values:
        return 0.0, 0.0
    if not all(map(math.isfinite, values)):
        return None, math.nan  # the mean may be infinite
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


@given(triples=TRIPLES)
def test_moments_of_every_group(triples):
    codes, values, mask = columns(triples)
    mean, std = group_moments(values, codes, mask)
    assert mean.dtype == std.dtype == torch.float64
    for at, (code, _, _) in enumerate(triples):
        expected = moments([value for other, value, on in triples if other == code and on])
        assert float(std[at]) == pytest.approx(expected[1], nan_ok=True)
        if expected[0] is None:
            assert not mean[at].isfinite()
        else:
            assert float(mean[at]) == pytest.approx(expected[0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.9] * 3, 0.0),
        ([0.1] * 7, 0.0),
        ([1e30, 1e30 * (1 + 1e-7)], 0.0),  # relative to large values
        ([0.0, 1e-7], 0.0),  # absolute for small ones
        ([0.0, 1e-5], 7.0711e-6),
        ([1e30, -1e30], 1.41421e30),
        ([5.0], 0.0),
    ],
)
def test_what_is_below_the_tolerance_is_exactly_no_contrast(values, expected):
    codes = torch.zeros(len(values), dtype=torch.int64)
    _, std = group_moments(torch.tensor(values), codes, tolerance=1e-6)
    assert std.tolist() == pytest.approx([expected] * len(values), rel=1e-4, abs=0)


@pytest.mark.parametrize("descending", [False, True])
@given(triples=TRIPLES)
def test_ranks_with_ties_by_row_number_and_the_masked_last(descending, triples):
    triples = [(code, value, on and not math.isnan(value)) for code, value, on in triples]
    codes, values, mask = columns(triples)
    rank = group_rank(values, codes, mask, descending=descending)
    assert rank.dtype == torch.int64
    sign = -1 if descending else 1
    for code in set(codes.tolist()):
        rows = [at for at, triple in enumerate(triples) if triple[0] == code]
        counted = sorted((at for at in rows if triples[at][2]), key=lambda at: (sign * triples[at][1], at))
        assert [int(rank[at]) for at in counted] == list(range(len(counted)))
        assert sorted(rank[rows].tolist()) == list(range(len(rows)))


def test_ranks_without_a_mask():
    codes = torch.tensor([0, 1, 0, 1, 0])
    assert group_rank(torch.tensor([2.0, 5, 1, 5, 2]), codes).tolist() == [1, 0, 0, 1, 2]
    assert group_rank(torch.tensor([2.0, 5, 1, 5, 2]), codes, descending=True).tolist() == [0, 0, 2, 1, 1]


@given(
    values=st.lists(st.floats(-1e30, 1e30, allow_subnormal=False), min_size=1, max_size=20),
    shares=st.lists(st.floats(0, 1), max_size=3),
)
def test_quantiles_against_numpy(values, shares):
    got = quantiles(torch.tensor(values, dtype=torch.float64), shares)
    assert got.dtype == torch.float64
    size = max(map(abs, values))
    expected = np.quantile(np.array(values, dtype=np.float64), shares).tolist() if shares else []
    assert got.tolist() == pytest.approx(expected, rel=1e-7, abs=1e-7 * size)


@pytest.mark.parametrize("count", [1, 11, 101, 1001])
def test_a_quantile_that_falls_on_a_value_is_that_value(count):
    values = torch.rand(count, generator=torch.Generator().manual_seed(0))
    ordered = values.sort().values.to(torch.float64)
    on_values = [at / (count - 1) for at in range(count)] if count > 1 else [0.0, 0.3, 1.0]
    expected = ordered if count > 1 else ordered.repeat(3)
    assert torch.equal(quantiles(values, on_values), expected)


def test_quantiles_of_more_values_than_torch_quantile_takes():
    values = torch.arange(17_000_001, dtype=torch.float64)
    assert quantiles(values, [0.25, 1.0]).tolist() == [4_250_000.0, 17_000_000.0]


@given(rows=ragged_lists(), data=st.data())
def test_take_rows_gathers_whole_rows_in_the_given_order(rows, data):
    values, offsets = flatten(rows)
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows))), max_size=8)) if rows else []
    index, taken = take_rows(offsets, torch.tensor(chosen, dtype=torch.int64))
    expected, expected_offsets = flatten([rows[row] for row in chosen])
    torch.testing.assert_close(values[index], expected, equal_nan=True)
    assert taken.tolist() == expected_offsets.tolist()


@given(rows=ragged_lists())
def test_spread_repeats_a_row_for_each_of_its_tokens(rows):
    _, offsets = flatten(rows)
    expected = [float(number) for number, row in enumerate(rows) for _ in row]
    assert spread(torch.arange(len(rows)), offsets).tolist() == expected


def test_offsets_are_int64_whatever_the_lengths_are():
    offsets = offsets_of(torch.tensor([2, 0, 3], dtype=torch.int32))
    assert offsets.dtype == torch.int64
    assert offsets.tolist() == [0, 2, 2, 5]
    assert offsets_of(torch.tensor([], dtype=torch.int64)).tolist() == [0]


@pytest.mark.parametrize("how", HOW)
def test_no_rows_and_no_tokens(how):
    nothing = torch.tensor([])
    assert segment_reduce(nothing, torch.tensor([0]), how).tolist() == []
    assert segment_reduce(nothing, torch.tensor([0, 0, 0]), how).tolist() == [0.0, 0.0]
    assert group_reduce(nothing, torch.tensor([], dtype=torch.int64), how).tolist() == []


def test_a_row_of_minus_infinity_is_not_an_empty_row():
    values, offsets = flatten([[-math.inf], []])
    assert segment_reduce(values, offsets, "max").tolist() == [-math.inf, 0.0]


@pytest.mark.parametrize("reduce", ["segment", "group"])
def test_long_sums_are_accumulated_in_float64(reduce):
    # In float32, 1e8 + 0.5 is 1e8 again: one after the other, ten thousand halves would leave no trace.
    values = torch.cat([torch.tensor([1e8]), torch.full((10_000,), 0.5), torch.tensor([-1e8])])
    if reduce == "segment":
        total, mean = (segment_reduce(values, torch.tensor([0, len(values)]), how)[0] for how in ("sum", "mean"))
    else:
        codes = torch.zeros(len(values), dtype=torch.int64)
        total, mean = (group_reduce(values, codes, how)[0] for how in ("sum", "mean"))
    assert float(total) == 5000.0
    assert float(mean) == pytest.approx(5000 / 10_002, rel=1e-6)


@pytest.mark.parametrize("how", HOW)
def test_the_same_input_gives_the_same_bits(how):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(20_000, generator=generator)
    codes = torch.randint(0, 50, (20_000,), generator=generator)
    first = group_reduce(values, codes, how)
    assert all(torch.equal(first, group_reduce(values, codes, how)) for _ in range(5))
    with_python = statistics.fmean(values[codes == 7].tolist())
    if how == "mean":
        assert float(first[codes == 7][0]) == pytest.approx(with_python, rel=1e-5)
