import math

import pydantic
import pytest
from hypothesis import given
from ragged import samples

from dataflex_events.handlers.scorers.advantage_magnitude import AdvantageMagnitude
from dataflex_events.testing import make_batch

AGGREGATIONS = ["mean", "sum", "max"]


@pytest.mark.parametrize(("agg", "expected"), [("mean", [0.75, 0]), ("sum", [1.5, 0]), ("max", [1.0, 0])])
def test_the_worked_example(agg, expected):
    # The masked 9 does not count, and a fully masked row is 0.
    batch = make_batch([[0, 0]], mask=[[1, 1, 0], [0, 0, 0]], tokens={"advantages": [[0.5, -1, 9], [0, 0, 0]]})
    assert AdvantageMagnitude(agg=agg).score(batch).tolist() == expected


def test_the_mean_is_the_default():
    assert AdvantageMagnitude() == AdvantageMagnitude(agg="mean")


def test_an_empty_response_is_zero():
    batch = make_batch([[0, 0]], lengths=[0, 1], tokens={"advantages": [[], [-2.0]]})
    assert AdvantageMagnitude().score(batch).tolist() == [0.0, 2.0]


def slowly(row, agg):
    values = [abs(value) for value, valid in zip(row.advantages, row.mask, strict=True) if valid]
    if not values:
        return 0.0
    if any(math.isnan(value) for value in values):
        return math.nan
    return {"mean": sum(values) / len(values), "sum": sum(values), "max": max(values)}[agg]


@pytest.mark.parametrize("agg", AGGREGATIONS)
@given(sample=samples())
def test_against_plain_python(agg, sample):
    got = AdvantageMagnitude(agg=agg).score(sample.batch).tolist()
    assert got == pytest.approx([slowly(row, agg) for row in sample.rows], nan_ok=True)


def test_another_aggregation_is_refused():
    with pytest.raises(pydantic.ValidationError, match="'mean', 'sum' or 'max'"):
        AdvantageMagnitude(agg="min")
