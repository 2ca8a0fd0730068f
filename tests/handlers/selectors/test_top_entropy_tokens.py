import math

import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import NUMBERS_AND_WORSE

from dataflex_events import RunFacts, StepDriver, StepId, make_plan
from dataflex_events.handlers.selectors.top_entropy_tokens import TopEntropyTokens
from dataflex_events.testing import make_batch

NAN = math.nan


def kept(entropies, mask=None, **params):
    mask = [1] * len(entropies) if mask is None else mask
    batch = make_batch([[0]], lengths=[len(entropies)], mask=[mask])
    chosen = TopEntropyTokens(**params).select(torch.tensor(entropies, dtype=torch.float32), batch)
    assert chosen.dtype == torch.bool
    return chosen.nonzero().flatten().tolist()


# catalogue 4.9: the quantile .8 of these ten is 1.02.
def test_the_worked_example():
    assert kept([0.1, 2, 0.3, 1.5, 0.05, 0.2, 0.9, 0.4, 0.01, 0.6]) == [1, 3]


def test_tokens_that_equal_the_quantile_are_all_kept():
    assert kept([0, 1, 1, 1, 1, 0, 0, 0, 0, 0]) == [1, 2, 3, 4]
    assert kept([0.0] * 5) == [0, 1, 2, 3, 4]
    # 11 tokens: the quantile .8 falls on the ninth value itself.
    assert kept([float(at) for at in range(11)]) == [8, 9, 10]


def test_masked_tokens_and_unknown_ones_neither_count_nor_stay():
    assert kept([0.1, 9, 0.3, 1.5], mask=[1, 0, 1, 1], fraction=0.5) == [2, 3]
    assert kept([0.1, NAN, 0.3, 1.5], fraction=0.5) == [2, 3]


def test_nothing_to_choose_from():
    assert kept([]) == []
    assert kept([1.0, 2.0], mask=[0, 0]) == []
    assert kept([NAN, NAN]) == []


def test_the_quantile_is_that_of_the_whole_batch():
    batch = make_batch([[0, 0]], lengths=[2, 3])
    got = TopEntropyTokens(fraction=0.4).select(torch.tensor([5.0, 4.0, 1.0, 2.0, 3.0]), batch)
    assert got.tolist() == [True, True, False, False, False]


def test_a_fraction_of_one_keeps_all_valid_tokens():
    assert kept([0.1, 0, 0.3], mask=[1, 1, 0], fraction=1) == [0, 1]


def slowly(entropies, mask, fraction):
    valid = sorted(value for value, on in zip(entropies, mask, strict=True) if on and math.isfinite(value))
    if not valid:
        return []
    position = round((1 - fraction) * (len(valid) - 1), 9)
    low, high = valid[math.floor(position)], valid[math.ceil(position)]
    threshold = low + (high - low) * (position - math.floor(position))
    return [at for at, (value, on) in enumerate(zip(entropies, mask, strict=True)) if on and value >= threshold]


@given(
    pairs=st.lists(st.tuples(NUMBERS_AND_WORSE, st.integers(0, 1)), max_size=12),
    fraction=st.sampled_from([0.1, 0.2, 0.5, 1.0]),
)
def test_against_plain_python(pairs, fraction):
    entropies = [value if math.isfinite(value) else NAN for value, _ in pairs]
    mask = [on for _, on in pairs]
    assert kept(entropies, mask, fraction=fraction) == slowly(entropies, mask, fraction)


@pytest.mark.parametrize("fraction", [0, -0.2, 1.5, NAN, "0.2"])
def test_the_fraction_must_be_a_share(fraction):
    with pytest.raises(pydantic.ValidationError):
        TopEntropyTokens(fraction=fraction)


def test_in_a_run_the_rest_gets_weight_zero_and_nothing_is_scaled_up():
    scorer, actuator = {"name": "token_entropy"}, {"name": "top_entropy_tokens", "params": {"fraction": 0.4}}
    plan = make_plan({"mechanism": "select", "scorer": scorer, "actuator": actuator, "apply": "weight"})
    batch = make_batch([[1, 0]], lengths=[2, 3], tokens={"entropy": [[5, 4], [1, 2, 3]]})
    result = StepDriver(plan.bus(), RunFacts()).step(StepId(1), batch)
    assert result.weights.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
