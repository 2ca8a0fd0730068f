import math
from fractions import Fraction
from itertools import combinations

import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import samples

from dataflex_events import registry
from dataflex_events.handlers.selectors.max_variance import MaxVariance
from dataflex_events.testing import make_batch

NAN = math.nan


def kept(rewards, scores=None, sessions=None, **params):
    batch = make_batch(rewards, sessions=sessions)
    scores = batch["reward"] if scores is None else torch.tensor(scores, dtype=torch.float32)
    mask = MaxVariance(**params).select(scores, batch)
    assert mask.dtype == torch.bool
    return mask.nonzero().flatten().tolist()


# catalogue 2.8: {0, .2, 1} has the variance .18667, {0, .5, 1} .16667.
def test_the_worked_examples():
    assert kept([[0, 0.2, 0.5, 1]], keep_fraction=0.75) == [0, 1, 3]
    assert kept([[0, 0.2, 0.5, 1]]) == [0, 3]


def test_of_a_constant_group_the_first_are_kept():
    assert kept([[0.9] * 4, [1e30] * 3, [0.0] * 2]) == [0, 1, 4, 5, 7, 8]


def test_of_equal_rewards_the_lower_row_number_wins():
    assert kept([[0, 0, 1, 1]]) == [0, 2]
    assert kept([[1, 0, 1, 0, 1]], keep_fraction=0.6) == [0, 1, 2]  # [1, 1, 0] before [1, 0, 0]


def test_equally_good_splits_are_found_to_be_so_in_spite_of_rounding():
    # {.1, .2, .2, .3} may take none, one or both of its .2 from below: the variance is the same, its last bit is not.
    assert kept([[0.2, 0.2, 0.2, 0.1, 0.2, 0.3]], keep_fraction=0.6) == [0, 1, 3, 5]
    assert kept([[0.1, 0.1, 0.1, 0.2, 0, 0.2, 0.1, 0.3]], keep_fraction=0.6) == [0, 3, 4, 5, 7]


@pytest.mark.parametrize(
    ("size", "fraction", "m"),
    [(4, 0.1, 2), (5, 0.5, 3), (50, 0.29, 15), (3, 1.0, 3), (1, 0.5, 1), (2, 0.1, 2), (16, 0.25, 4)],
)
def test_how_many_are_kept(size, fraction, m):
    assert len(kept([list(range(size))], keep_fraction=fraction)) == m


def test_a_row_without_a_score_is_never_kept():
    assert kept([[0] * 4], scores=[0, NAN, 0.5, 1]) == [0, 3]
    assert kept([[0] * 3, [0] * 2, [0] * 2], scores=[NAN, 0.5, NAN, NAN, NAN, 1, 0]) == [1, 5, 6]


def test_no_rows():
    assert kept([]) == []


def test_huge_and_tiny_differences():
    assert kept([[1e30, -1e30, 0, 3e38]]) == [1, 3]
    assert kept([[1, 1 + 1e-6, 1 + 4e-6, 1 + 1e-5]]) == [0, 3]


def test_a_session_is_chosen_by_its_final_output_and_as_a_whole():
    # Sessions with the final rewards 0 (rows 0-1), .4, 1 (rows 3-4) and .5.
    assert kept([[9, 0, 0.4, 0.2, 1, 0.5]], sessions=[0, 0, 1, 2, 2, 3]) == [0, 1, 3, 4]


def variance(values):
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def slowly(scores, fraction):
    """Positions to keep of one group: the a lowest and the m - a highest, for the first best a."""
    known = [(Fraction(score), at) for at, score in enumerate(scores) if math.isfinite(score)]
    m = min(len(known), max(2, math.floor(Fraction(str(fraction)) * len(scores) + Fraction(1, 2))))
    best = None
    for a in range(m + 1):
        lowest = sorted(known)[:a]
        others = sorted((item for item in known if item not in lowest), key=lambda item: (-item[0], item[1]))
        chosen = lowest + others[: m - a]
        if m and (best is None or variance([score for score, _ in chosen]) > best[0]):
            best = variance([score for score, _ in chosen]), chosen
    return [at for _, at in best[1]] if best else []


@given(sample=samples(most=6), fraction=st.sampled_from([0.1, 0.3, 0.5, 0.75, 1.0]))
def test_against_plain_python(sample, fraction):
    chosen = []
    for finals in sample.groups():
        chosen += [finals[at] for at in slowly([sample.reward(row) for row in finals], fraction)]
    got = MaxVariance(keep_fraction=fraction).select(sample.batch["reward"], sample.batch)
    assert got.tolist() == sample.whole(chosen)


@given(
    scores=st.lists(st.floats(-5, 5, width=32, allow_subnormal=False), min_size=1, max_size=8),
    fraction=st.sampled_from([0.25, 0.5, 0.75]),
)
def test_no_other_subset_varies_more(scores, fraction):
    chosen = [scores[at] for at in kept([scores], keep_fraction=fraction)]
    best = max(variance(subset) for subset in combinations(scores, len(chosen)))
    assert variance(chosen) == pytest.approx(best, abs=1e-8 * max(1e-30, max(scores) - min(scores)) ** 2)


def test_baselines_are_those_of_the_kept_rows_unless_asked_otherwise():
    assert MaxVariance().baseline() == "subset"
    assert MaxVariance(advantages="full").baseline() == "full"


def test_upstream_s_names():
    assert registry.find("selector", "pods").component is registry.find("selector", "pods_maxvar").component
    assert registry.find("selector", "pods").component is MaxVariance


@pytest.mark.parametrize("params", [{"keep_fraction": 0}, {"keep_fraction": 1.1}, {"advantages": "none"}])
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        MaxVariance(**params)
