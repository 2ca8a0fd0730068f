from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from dataflex_events.adapters.verl.cpu.lab import PROMPT_LENGTH
from dataflex_events.adapters.verl.cpu.model import build_model, save_model
from dataflex_events.adapters.verl.cpu.tasks import DOMAINS, make_questions
from dataflex_events.adapters.verl.cpu.tokenizer import CHAT_TEMPLATE, ROLES, build_tokenizer, save_tokenizer
from dataflex_events.adapters.verl.cpu.warmup import prompt_ids


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tokenizer as verl gets it: from the folder of a Qwen2 model."""
    from transformers import AutoTokenizer

    folder: Path = tmp_path_factory.mktemp("model")
    save_model(build_model(build_tokenizer(), hidden_size=32, layers=1, seed=0), folder)
    save_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def test_round_trip_of_any_text(loaded: Any) -> None:
    for text in ("sort 8128", "a  b\n\tc", "äöü €", "\n", " leading", "trailing "):
        ids = loaded.encode(text, add_special_tokens=False)
        assert loaded.decode(ids) == text
        assert len(ids) == len(text.encode()), "one token a byte"


def test_a_newline_is_one_token(loaded: Any) -> None:
    assert len(loaded.encode("\n", add_special_tokens=False)) == 1


def test_the_loaded_tokenizer_is_the_one_that_was_built(loaded: Any) -> None:
    built = build_tokenizer()
    text = "<|im_start|>user\nsort 8128<|im_end|>\n<|im_start|>assistant\n8<|im_end|>"
    assert loaded.get_vocab() == built.get_vocab()
    assert loaded.encode(text, add_special_tokens=False) == built.encode(text, add_special_tokens=False)
    assert loaded.chat_template == CHAT_TEMPLATE
    assert (loaded.eos_token, loaded.pad_token) == ("<|im_end|>", "<|endoftext|>")


def test_special_tokens_are_left_out_of_decoded_responses(loaded: Any) -> None:
    assert loaded.decode(loaded.encode("1288<|im_end|>", add_special_tokens=False), skip_special_tokens=True) == "1288"


def test_prompts_fit_and_contain_no_role_name_by_accident(loaded: Any) -> None:
    roles = {loaded.convert_tokens_to_ids(role) for role in ROLES}
    for domain in DOMAINS:
        for question in make_questions(domain, 100, random.Random(0)):
            ids = prompt_ids(loaded, question)
            assert len(ids) <= PROMPT_LENGTH
            assert sum(token in roles for token in ids) == 2, "user and assistant"


@pytest.mark.verl
def test_prompts_of_the_warm_up_are_those_of_verl(loaded: Any) -> None:
    from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

    builder = create_continuous_token_builder(loaded, hf_model_type="qwen2", chat_template_kwargs={})
    question = make_questions("sort", 1, random.Random(0))[0]
    assert builder.build_initial_tokens([{"role": "user", "content": question.text}]) == prompt_ids(loaded, question)
