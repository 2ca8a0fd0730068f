from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from dataflex_events.adapters.verl.cpu.engine import Engine
from dataflex_events.adapters.verl.cpu.generation import Draw, Generation, SamplingParams, uniforms
from dataflex_events.adapters.verl.cpu.model import build_model
from dataflex_events.adapters.verl.cpu.tokenizer import build_tokenizer

LENGTH = 9


@pytest.fixture(scope="module")
def model() -> Any:
    made = build_model(build_tokenizer(), hidden_size=64, layers=2, seed=1)
    with torch.no_grad():  # a flat distribution would make wrong log-probs look right
        made.lm_head.weight.mul_(20)
    return made


def make_engine(model: Any, rows: int = 8, end_ids: Sequence[int] = (7,)) -> Engine:
    return Engine(model, end_ids=set(end_ids), pad_id=0, rows=rows, prompt_length=16, response_length=LENGTH)


def make_generations(count: int, **params: Any) -> list[Generation]:
    rng = random.Random(5)
    generations = []
    for row in range(count):
        prompt = [rng.randrange(1, 250) for _ in range(rng.randint(1, 16))]
        draw = Draw(step=0, row=row, repeat=0, session=0, prompt_length=len(prompt))
        sampling = SamplingParams(**{"max_tokens": LENGTH, **params})
        generations.append(Generation(prompt, sampling, uniforms(0, draw, prompt, 0, LENGTH)))
    return generations


def results(generations: Sequence[Generation]) -> list[tuple[list[int], list[float]]]:
    return [(g.token_ids, g.log_probs) for g in generations]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_equal_a_plain_forward_without_cache(model: Any, temperature: float) -> None:
    generations = make_generations(11, temperature=temperature)
    make_engine(model).generate(generations)
    for generation in generations:
        ids = torch.tensor([generation.prompt_ids + generation.token_ids])
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0, len(generation.prompt_ids) - 1 : -1]
        expected = torch.log_softmax(logits / temperature, -1).gather(-1, torch.tensor(generation.token_ids)[:, None])
        np.testing.assert_allclose(generation.log_probs, expected.squeeze(-1), atol=2e-5)


def test_greedy_follows_the_plain_forward(model: Any) -> None:
    generations = make_generations(3, temperature=0)
    make_engine(model, end_ids=()).generate(generations)
    for generation in generations:
        ids = list(generation.prompt_ids)
        for token in generation.token_ids:
            with torch.no_grad():
                assert model(input_ids=torch.tensor([ids])).logits[0, -1].argmax().item() == token
            ids.append(token)


def test_results_do_not_depend_on_order_or_company(model: Any) -> None:
    straight, shuffled, alone = make_generations(30), make_generations(30), make_generations(30)
    engine = make_engine(model)
    engine.generate(straight)
    order = list(range(30))
    random.Random(0).shuffle(order)
    engine.generate([shuffled[n] for n in order])
    for generation in alone:
        engine.generate([generation])
    assert results(straight) == results(shuffled) == results(alone), "to the last bit"


def test_an_end_token_ends_a_response_and_belongs_to_it(model: Any) -> None:
    free = make_generations(8)
    make_engine(model, end_ids=()).generate(free)
    end = free[0].token_ids[3]
    generations = make_generations(8)
    make_engine(model, end_ids=[end]).generate(generations)
    for before, after in zip(free, generations, strict=True):
        length = before.token_ids.index(end) + 1 if end in before.token_ids else LENGTH
        assert after.token_ids == before.token_ids[:length]
        assert len(after.log_probs) == length


def test_ignoring_end_tokens_runs_to_the_limit(model: Any) -> None:
    generations = make_generations(4, ignore_eos=True, max_tokens=5)
    make_engine(model, end_ids=range(272)).generate(generations)
    assert [len(g.token_ids) for g in generations] == [5] * 4


def test_each_row_has_its_own_limit(model: Any) -> None:
    generations = make_generations(2, max_tokens=2) + make_generations(2)
    make_engine(model, end_ids=()).generate(generations)
    assert [len(g.token_ids) for g in generations] == [2, 2, LENGTH, LENGTH]


def test_an_interrupted_response_continues_as_it_would_have(model: Any) -> None:
    whole, first = make_generations(1)[0], make_generations(1)[0]
    engine = make_engine(model, end_ids=())
    engine.generate([whole])
    batch = engine.start([first])
    for _ in range(4):
        batch.step()
    rest = Generation(
        first.prompt_ids + first.token_ids,
        SamplingParams(max_tokens=LENGTH - 4),
        first.uniforms[len(first.token_ids) :],
    )
    engine.generate([rest])
    assert first.token_ids + rest.token_ids == whole.token_ids


def test_too_long_a_prompt_is_an_error(model: Any) -> None:
    generation = make_generations(1)[0]
    generation.prompt_ids = [1] * (16 + LENGTH + 1)
    with pytest.raises(ValueError, match="26 tokens"):
        make_engine(model).start([generation])


def test_too_many_rows_are_an_error(model: Any) -> None:
    with pytest.raises(ValueError, match="1 to 8 generations, got 9"):
        make_engine(model).start(make_generations(9))


def test_loading_weights_changes_what_is_generated(model: Any) -> None:
    engine = make_engine(build_model(build_tokenizer(), hidden_size=64, layers=2, seed=2))
    other, same = make_generations(4), make_generations(4)
    engine.generate(other)
    engine.load_weights({name: value.clone() for name, value in model.state_dict().items()})
    engine.generate(same)
    expected = make_generations(4)
    make_engine(model).generate(expected)
    assert results(same) == results(expected) != results(other)


def test_unknown_weights_are_an_error(model: Any) -> None:
    with pytest.raises(KeyError, match="no_such_weight"):
        make_engine(model).load_weights({"no_such_weight": torch.zeros(1)})
