from __future__ import annotations

import numpy as np
import pytest
import torch

from dataflex_events.adapters.verl.cpu.generation import Draw, SamplingParams, uniforms
from dataflex_events.adapters.verl.cpu.sampling import filter_logits, pick

LOGITS = torch.log(torch.tensor([[0.5, 0.2, 0.15, 0.1, 0.05]]))


def kept(logits: torch.Tensor, top_k: int, top_p: float) -> list[int]:
    filtered = filter_logits(logits, torch.tensor([top_k]), torch.tensor([top_p]))
    finite = torch.isfinite(filtered)
    assert torch.equal(filtered[finite], logits[finite])
    return finite[0].nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("top_k", "top_p", "expected"),
    [
        (5, torch.inf, [0, 1, 2, 3, 4]),
        (2, torch.inf, [0, 1]),
        (5, 0.6, [0, 1]),  # 0.5 is not enough
        (5, 0.75, [0, 1, 2]),
        (5, 1e-9, [0]),  # never empty
        (2, 0.72, [0, 1]),  # top-p counts after top-k: 5/7 is not enough
        (2, 0.7, [0]),
    ],
)
def test_top_k_and_top_p(top_k: int, top_p: float, expected: list[int]) -> None:
    assert kept(LOGITS, top_k, top_p) == expected


def test_filters_do_not_depend_on_the_order_of_the_vocabulary() -> None:
    order = [3, 0, 4, 1, 2]
    assert [order[i] for i in kept(LOGITS[:, order], 5, 0.75)] == [0, 1, 2]


def frequencies(params: SamplingParams, count: int = 4000) -> tuple[np.ndarray, torch.Tensor]:
    numbers = torch.tensor((np.arange(count) + 0.5) / count)
    tokens, log_probs = pick(LOGITS.expand(count, -1), [params] * count, numbers)
    return np.bincount(tokens.numpy(), minlength=5) / count, log_probs


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(), [0.5, 0.2, 0.15, 0.1, 0.05]),
        (SamplingParams(top_k=2), [5 / 7, 2 / 7, 0, 0, 0]),
        (SamplingParams(top_p=0.75), [50 / 85, 20 / 85, 15 / 85, 0, 0]),
        (SamplingParams(temperature=0.5), np.square([0.5, 0.2, 0.15, 0.1, 0.05]) / 0.325),
        (SamplingParams(temperature=0), [1, 0, 0, 0, 0]),
    ],
)
def test_tokens_are_sampled_in_proportion(params: SamplingParams, expected: list[float]) -> None:
    found, _ = frequencies(params)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_log_probs_are_those_of_the_distribution_that_was_sampled() -> None:
    _, log_probs = frequencies(SamplingParams(top_k=2))
    np.testing.assert_allclose(np.unique(np.round(log_probs.exp().numpy(), 6)), [2 / 7, 5 / 7], atol=1e-6)


def test_greedy_reports_the_models_probability() -> None:
    _, log_probs = frequencies(SamplingParams(temperature=0), count=1)
    assert log_probs.exp().item() == pytest.approx(0.5)


def test_rows_may_differ_in_their_parameters() -> None:
    params = [SamplingParams(temperature=0), SamplingParams(), SamplingParams(top_k=1), SamplingParams(temperature=2.0)]
    last = torch.full((4,), 1 - 1e-12, dtype=torch.float64)
    tokens, _ = pick(LOGITS.expand(4, -1), params, last)
    assert tokens.tolist() == [0, 4, 0, 4]


def test_excluded_tokens_are_never_picked_at_the_ends() -> None:
    for number in (0.0, np.nextafter(1.0, 0.0)):
        token, log_prob = pick(LOGITS, [SamplingParams(top_k=3)], torch.tensor([number]))
        assert token.item() in (0, 1, 2)
        assert torch.isfinite(log_prob).all()


@pytest.mark.parametrize("field", ["step", "row", "repeat", "session"])
def test_each_part_of_the_identity_changes_the_random_numbers(field: str) -> None:
    draw = {"step": 1, "row": 2, "repeat": 0, "session": 3, "prompt_length": 2}
    one = uniforms(0, Draw(**draw), [5, 6], 0, 8)
    other = uniforms(0, Draw(**{**draw, field: draw[field] + 1}), [5, 6], 0, 8)
    assert not np.intersect1d(one, other).size


def test_seed_and_prompt_change_the_random_numbers() -> None:
    draw = Draw(step=1, row=2, repeat=0, session=3, prompt_length=2)
    one = uniforms(0, draw, [5, 6], 0, 8)
    assert np.array_equal(one, uniforms(0, draw, [5, 6], 0, 8))
    assert not np.intersect1d(one, uniforms(1, draw, [5, 6], 0, 8)).size
    assert not np.intersect1d(one, uniforms(0, draw, [5, 7], 0, 8)).size


def test_an_interrupted_rollout_goes_on_with_its_random_numbers() -> None:
    draw = Draw(step=1, row=2, repeat=0, session=3, prompt_length=2)
    assert np.array_equal(uniforms(0, draw, [5, 6], 0, 8)[3:], uniforms(0, draw, [5, 6], 3, 5))


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}, {"max_tokens": 0}])
def test_impossible_parameters_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplingParams(**wrong)
