import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.shares import check_floor, check_numbers, checked_state, shares_of, softmax, with_floor

# Also those that a computation with float64 may run into.
VALUES = st.one_of(st.floats(-10, 10), st.floats(allow_nan=False), st.sampled_from([math.inf, -math.inf, 1.7e308]))


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@given(values=st.lists(st.floats(-10, 10), min_size=1, max_size=6), temperature=st.floats(0.1, 10))
def test_softmax(values, temperature):
    powers = [math.exp(value / temperature) for value in values]
    expected = [power / math.fsum(powers) for power in powers]
    torch.testing.assert_close(softmax(tensor(values), temperature), tensor(expected))


@given(values=st.lists(VALUES, min_size=1, max_size=6), temperature=st.floats(5e-324, 1.7e308, exclude_min=False))
def test_softmax_of_anything(values, temperature):
    got = softmax(tensor(values), temperature)
    assert got.isfinite().all()
    assert float(got.sum()) == pytest.approx(1)
    for one, chance in zip(values, got.tolist(), strict=True):
        assert all(chance >= other for value, other in zip(values, got.tolist(), strict=True) if value <= one)


def test_softmax_at_the_lowest_temperature_is_the_best():
    assert softmax(tensor([1.0, 2.0, 2.0]), 5e-324).tolist() == [0.0, 0.5, 0.5]
    assert softmax(tensor([math.inf, 2.0, math.inf]), 1.0).tolist() == [0.5, 0.0, 0.5]


# components.md: a domain with share .000335 has .0503
def test_the_floor():
    assert with_floor(tensor([0.000335, 0.999665]), 0.05).tolist() == pytest.approx([0.0503, 0.9497], abs=5e-5)
    assert with_floor(tensor([0.2, 0.8]), 0.0).tolist() == [0.2, 0.8]


@pytest.mark.parametrize(
    ("floor", "domains", "reason"),
    [
        (0.3, 4, "floor 0.3 is too much for 4 domains: at most 1/4 works, 0.25"),
        (0.05, 21, "floor 0.05 is too much for 21 domains: at most 1/21 works, 0.047619047619047616"),
    ],
)
def test_a_floor_that_is_too_high(floor, domains, reason):
    with pytest.raises(ValueError, match=f"^{reason}$"):
        check_floor(floor, domains)
    check_floor(1 / domains, domains)


@given(numbers=st.lists(st.floats(0, 1e308, allow_subnormal=False), min_size=1, max_size=6).filter(any), data=st.data())
def test_numbers_divided_by_their_sum(numbers, data):
    names = [f"d{number}" for number in range(len(numbers))]
    total = sum(number / len(numbers) for number in numbers)
    expected = tensor([number / len(numbers) / total for number in numbers])
    torch.testing.assert_close(shares_of(numbers, names), expected)
    by_name = dict(data.draw(st.permutations([*zip(names, numbers, strict=True)])))
    assert torch.equal(shares_of(by_name, names), shares_of(numbers, names))


@pytest.mark.parametrize("numbers", [[], {}, [0.0], [1.0, -1.0], {"a": math.nan}, [math.inf]])
def test_numbers_that_cannot_be_shares(numbers):
    with pytest.raises(ValueError, match="proportions"):
        check_numbers(numbers)
    with pytest.raises(ValueError, match="proportions"):
        shares_of(numbers, ["a"])


def test_a_state_of_the_same_kind_is_copied():
    own = {"a": torch.zeros(2), "b": torch.tensor(3)}
    state = {"b": torch.tensor(4), "a": torch.ones(2)}
    read = checked_state(state, own)
    assert list(read) == ["a", "b"]
    state["a"].zero_()
    assert read["a"].tolist() == [1.0, 1.0]
    assert own["a"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, r"its keys are \[\], and should be \['a'\]"),
        ({"b": torch.ones(2)}, r"its keys are \['b'\], and should be \['a'\]"),
        ({"a": [1.0, 1.0]}, "its 'a' is a list and not a tensor"),
        ({"a": torch.ones(3)}, r"torch.float32 of shape \(3,\), and should be torch.float32 of shape \(2,\)"),
        ({"a": torch.ones(2, dtype=torch.int64)}, r"torch.int64 of shape \(2,\), and should be torch.float32"),
        ({"a": torch.tensor([1.0, math.nan])}, "values that are not finite"),
    ],
)
def test_another_state_is_refused(state, reason):
    with pytest.raises(ValueError, match=reason):
        checked_state(state, {"a": torch.zeros(2)})
