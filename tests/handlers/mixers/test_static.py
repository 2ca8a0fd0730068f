import math

import pydantic
import pytest
from histories import histories, play, shares, simple, stats_for
from hypothesis import given

from dataflex_events.handlers.mixers.static import Static


def given_for(names, **params):
    mixer = Static(**params)
    mixer.begin(names)
    return shares(mixer, stats_for(mixer, names)).tolist()


# catalogue 3.2
def test_the_worked_example():
    assert given_for("abc", proportions=[2, 1, 1]) == [0.5, 0.25, 0.25]


def test_a_mapping_goes_by_name_and_not_by_position():
    assert given_for(["code", "math"], proportions={"math": 3, "code": 1}) == [0.25, 0.75]


def test_by_default_all_are_equal():
    assert given_for("abcd") == [0.25] * 4
    assert Static() == Static(proportions=None)
    assert Static.default_scorer == "reward"


def test_numbers_of_any_size():
    assert given_for("ab", proportions=[1.5e308, 1.5e308]) == [0.5, 0.5]
    assert given_for("ab", proportions=[5e-324, 5e-324]) == [0.5, 0.5]
    assert given_for("ab", proportions=[0, 1e-300]) == [0.0, 1.0]


@given(history=histories())
def test_nothing_that_happens_changes_it(history):
    numbers = [1.0, 2.0, 3.0, 4.0, 5.0][: len(history.names)]
    for got in play(Static(proportions=numbers), history):
        assert got.tolist() == pytest.approx([number / sum(numbers) for number in numbers])


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ([1, -1], "number 2 is -1"),
        ({"math": 1.0, "code": math.nan}, "code is nan"),
        ([math.inf, 1], "number 1 is inf"),
        ([0, 0], "all proportions are 0"),
        ([], "all proportions are 0"),
        ({}, "all proportions are 0"),
    ],
)
def test_numbers_that_are_no_proportions_are_refused(numbers, reason):
    with pytest.raises(ValueError, match=reason):
        Static(proportions=numbers)


@pytest.mark.parametrize("numbers", ["half", 0.5, ["a"], {"math": "a"}, {1: 1.0}, [True]])
def test_wrong_types_are_refused(numbers):
    with pytest.raises(pydantic.ValidationError):
        Static(proportions=numbers)


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"math": 1, "cdoe": 1}, r"unknown domain 'cdoe' \(did you mean 'code'\?\); no proportion for 'code'"),
        ({"math": 1}, "no proportion for 'code'"),
        ({"math": 1, "code": 1, "xyz": 1}, r"unknown domain 'xyz' \(known: code, math\)"),
        ([1, 1, 1], "3 proportions for the 2 domains math, code"),
        ([1], "1 proportions for the 2 domains math, code"),
    ],
)
def test_other_domains_are_refused(numbers, reason):
    with pytest.raises(ValueError, match=f"^{reason}$"):
        Static(proportions=numbers).begin(["math", "code"])


def test_it_begins_again_with_other_domains():
    mixer = Static()
    for names in ("abc", "ab"):
        assert [got.tolist() for got in play(mixer, simple(names))] == [[pytest.approx(1 / len(names))] * len(names)]
