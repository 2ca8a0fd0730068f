import math

import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import NUMBERS_AND_WORSE

from dataflex_events.handlers.reweighters.per_advantage import PerAdvantage
from dataflex_events.testing import make_batch


def weights(scores, **params):
    batch = make_batch([[0.0] * len(scores)])
    return PerAdvantage(**params).weigh(torch.tensor(scores, dtype=torch.float32), batch).tolist()


# catalogue 2.4: [.0000965, .9647, 1.3643, 1.6709], since DataFlex-RL adds 1e-8 to each magnitude.
def test_the_worked_example():
    assert weights([0, 1, 2, 3]) == pytest.approx([0, 0.9647, 1.3643, 1.6709], abs=1e-4)
    assert weights([0, -1, 2, -3]) == weights([0, 1, 2, 3])


@pytest.mark.parametrize("scores", [[], [0.0, 0.0], [0.0, math.nan], [math.nan]])
def test_without_any_magnitude_all_weigh_one(scores):
    assert weights(scores) == [1.0] * len(scores)


@pytest.mark.parametrize("missing", [math.nan, math.inf, -math.inf])
def test_a_row_without_a_score_weighs_as_much_as_the_mean_of_the_others(missing):
    got = weights([0, missing, 1, 2, 3])
    assert got == pytest.approx([0, 1.0, 0.9647, 1.3643, 1.6709], abs=1e-4)


def test_alpha_zero_weighs_nothing_and_one_in_proportion():
    assert weights([0, 1, 3], alpha=0) == [1.0] * 3
    assert weights([0, 1, 3], alpha=1) == pytest.approx([0, 0.75, 2.25])


@pytest.mark.parametrize("scores", [[1e30, 1e-30], [1e-40, 2e-40], [-3e38, 3e38]])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 50.0, 1e300])
def test_weights_are_finite_for_every_magnitude(scores, alpha):
    got = weights(scores, alpha=alpha)
    assert all(map(math.isfinite, got))
    assert sum(got) == pytest.approx(2.0)


@given(scores=st.lists(NUMBERS_AND_WORSE, max_size=8), alpha=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_against_plain_python(scores, alpha):
    magnitudes = [abs(score) for score in scores if math.isfinite(score)]
    if any(magnitudes):
        mean = math.fsum(magnitude**alpha for magnitude in magnitudes) / len(magnitudes)
        expected = [abs(score) ** alpha / mean if math.isfinite(score) else 1.0 for score in scores]
    else:
        expected = [1.0] * len(scores)
    assert weights(scores, alpha=alpha) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("alpha", [-0.5, math.nan, math.inf, "0.5"])
def test_alpha_must_be_a_number_from_zero(alpha):
    with pytest.raises(pydantic.ValidationError):
        PerAdvantage(alpha=alpha)
