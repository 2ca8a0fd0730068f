"""Supervised warm-up of the lab's model, and the measurement of what it can do.

A random model earns no reward and so has nothing to reinforce; a model that was trained to the end has
nothing left to gain. The warm-up stops in between: first steps on right answers give the skill, then steps on
data with a share of wrong answers spread the probability again while the skill stays. Reinforcement learning
then has something to sharpen in every domain that is neither mastered nor hopeless.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dataflex_events.adapters.verl.cpu.engine import Engine
from dataflex_events.adapters.verl.cpu.generation import Draw, Generation, SamplingParams, uniforms
from dataflex_events.adapters.verl.cpu.tasks import SETTLED, Question, wrong_answer

_IGNORED = -100  # label that Transformers' loss skips


def prompt_ids(tokenizer: Any, question: Question) -> list[int]:
    """Tokens of a question as verl will send it: one user turn and the opening of the assistant's."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": question.text}], tokenize=False, add_generation_prompt=True
    )
    return list(tokenizer.encode(text, add_special_tokens=False))


def _training_batch(
    tokenizer: Any, questions: Sequence[Question], answers: Sequence[str]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels `(rows, longest)`; only answer and end token are trained."""
    ids, labels = [], []
    for question, answer in zip(questions, answers, strict=True):
        prompt = prompt_ids(tokenizer, question)
        response = [*tokenizer.encode(answer, add_special_tokens=False), tokenizer.eos_token_id]
        ids.append(torch.tensor(prompt + response))
        labels.append(torch.tensor([_IGNORED] * len(prompt) + response))
    pad = torch.nn.utils.rnn.pad_sequence
    return (
        pad(ids, batch_first=True, padding_value=tokenizer.pad_token_id),
        pad(labels, batch_first=True, padding_value=_IGNORED),
    )


def _answer(question: Question, wrong_share: float, rng: random.Random) -> str:
    if question.domain not in SETTLED and rng.random() < wrong_share:
        return wrong_answer(question, rng)
    return question.answer


def warm_up(
    model: Any,
    tokenizer: Any,
    draw_questions: Callable[[random.Random], list[Question]],
    *,
    clean_steps: int,
    noisy_steps: int,
    wrong_share: float,
    learning_rate: float,
    rng: random.Random,
    say: Callable[[str], None],
) -> None:
    """Train `model` in place.

    Args:
        model: A causal language model.
        tokenizer: The lab's tokenizer.
        draw_questions: Makes the questions of one batch.
        clean_steps: Steps on right answers.
        noisy_steps: Steps in which a share of the answers is wrong.
        wrong_share: That share, in [0, 1]; domains in `SETTLED` are spared.
        learning_rate: AdamW's, after a linear rise over the first 50 steps.
        rng: Source of randomness for questions and wrong answers.
        say: Receives progress in words.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 50))
    model.train()
    total = clean_steps + noisy_steps
    for step in range(total):
        questions = draw_questions(rng)
        share = wrong_share if step >= clean_steps else 0.0
        answers = [_answer(q, share, rng) for q in questions]
        ids, labels = _training_batch(tokenizer, questions, answers)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        if (step + 1) % 100 == 0 or step + 1 == total:
            say(f"warm-up step {step + 1} of {total}, loss {loss.item():.2f}")
    model.eval()


def solve_rates(
    model: Any, tokenizer: Any, questions: Sequence[Question], *, samples: int, response_length: int, seed: int
) -> dict[str, float]:
    """Share of sampled answers that are right, by domain, at temperature 1."""
    prompts = [prompt_ids(tokenizer, q) for q in questions]
    engine = Engine(
        model,
        end_ids={tokenizer.eos_token_id},
        pad_id=tokenizer.pad_token_id,
        rows=256,
        prompt_length=max(map(len, prompts)),
        response_length=response_length,
    )
    generations = []
    for row, prompt in enumerate(prompts):
        for session in range(samples):
            draw = Draw(step=0, row=row, repeat=0, session=session, prompt_length=len(prompt))
            noise = uniforms(seed, draw, prompt, start=0, count=response_length)
            generations.append(Generation(prompt, SamplingParams(max_tokens=response_length), noise))
    engine.generate(generations)
    right: dict[str, list[bool]] = {}
    for number, generation in enumerate(generations):
        question = questions[number // samples]
        text = tokenizer.decode(generation.token_ids, skip_special_tokens=True)
        right.setdefault(question.domain, []).append(text.strip() == question.answer)
    return {domain: float(np.mean(values)) for domain, values in right.items()}
