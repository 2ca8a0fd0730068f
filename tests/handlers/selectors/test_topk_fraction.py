import math
from fractions import Fraction

import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import samples

from dataflex_events import RunFacts, StepDriver, StepId, make_plan
from dataflex_events.handlers.selectors.topk_fraction import TopkFraction
from dataflex_events.testing import make_batch

NAN = math.nan


def kept(scores, batch=None, **params):
    batch = make_batch([[0.0] * len(scores)]) if batch is None else batch
    mask = TopkFraction(**params).select(torch.tensor(scores, dtype=torch.float32), batch)
    assert mask.dtype == torch.bool
    return mask.nonzero().flatten().tolist()


# catalogue 2.6, and components.md where it decides otherwise: NaN is never chosen, the lower row number wins a tie.
@pytest.mark.parametrize(
    ("scores", "expected"),
    [([0.1, 0.9, 0.3, 0.7], [1, 3]), ([0.1, NAN, 0.3, 0.7], [2, 3]), ([1, 1, 1, 1], [0, 1])],
)
def test_the_worked_examples(scores, expected):
    assert kept(scores, fraction=0.5) == expected
    assert TopkFraction() == TopkFraction(fraction=0.5, largest=True)


@pytest.mark.parametrize(
    ("n", "fraction", "k"),
    # Halves are rounded up (Python's own `round` would make 2 of 2.5), also where .29 * 50 is a little below 14.5.
    [(5, 0.5, 3), (4, 0.1, 1), (1, 0.01, 1), (3, 1.0, 3), (50, 0.29, 15), (10, 0.24, 2), (10, 0.25, 3), (0, 0.5, 0)],
)
def test_how_many_are_kept(n, fraction, k):
    assert kept([0.0] * n, fraction=fraction) == list(range(k))


def test_the_lowest():
    assert kept([0.1, NAN, 0.3, 0.1, 0.7], fraction=0.4, largest=False) == [0, 3]


def test_a_row_without_a_score_counts_but_is_never_kept():
    assert kept([NAN, 0.3, NAN, NAN]) == [1]
    assert kept([NAN, NAN]) == []


def test_huge_scores():
    assert kept([1e30, -1e30, 0, 3e38]) == [0, 3]


def test_a_session_is_chosen_by_its_final_output_and_as_a_whole():
    # Sessions of rows 0-1, 2, 3-4 and 5; the 9 is not a final output's.
    batch = make_batch([[0] * 6], sessions=[0, 0, 1, 2, 2, 3])
    assert kept([9, 0.1, 0.5, 0.0, 0.7, 0.2], batch) == [2, 3, 4]


def slowly(sample, scores, fraction, largest):
    finals = [(scores[at], at) for at, row in enumerate(sample.rows) if any(row is f for f in sample.finals(row.uid))]
    k = max(1, math.floor(Fraction(str(fraction)) * len(finals) + Fraction(1, 2)))
    ranked = sorted((-score if largest else score, at) for score, at in finals if not math.isnan(score))
    return sample.whole([sample.rows[at] for _, at in ranked[:k]])


@pytest.mark.parametrize("largest", [True, False])
@given(sample=samples(most=5), fraction=st.sampled_from([0.1, 0.25, 0.5, 0.9, 1.0]))
def test_against_plain_python(sample, fraction, largest):
    scores = [reward if math.isfinite(reward) else NAN for reward in sample.batch["reward"].tolist()]
    got = TopkFraction(fraction=fraction, largest=largest).select(torch.tensor(scores), sample.batch)
    assert got.tolist() == slowly(sample, scores, fraction, largest)


def test_in_a_run():
    plan = make_plan({"mechanism": "select", "scorer": {"name": "reward"}, "actuator": {"name": "topk_fraction"}})
    keep = StepDriver(plan.bus(), RunFacts(group_baseline=False)).step(StepId(1), make_batch([[1, 3], [2, 0]])).keep
    assert keep.tolist() == [False, True, True, False]


@pytest.mark.parametrize("params", [{"fraction": 0}, {"fraction": 1.01}, {"fraction": NAN}, {"largest": 1}])
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        TopkFraction(**params)
