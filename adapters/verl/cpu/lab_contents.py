"""What is in a lab: data, reward, router, and the warmed-up model. See `lab`, which decides where it goes."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from dataflex_events.adapters.verl.cpu import reward as reward_module
from dataflex_events.adapters.verl.cpu.lab import RESPONSE_LENGTH, LabSettings
from dataflex_events.adapters.verl.cpu.model import build_model, save_model
from dataflex_events.adapters.verl.cpu.router import Router
from dataflex_events.adapters.verl.cpu.tasks import DOMAINS, Question, make_questions
from dataflex_events.adapters.verl.cpu.tokenizer import build_tokenizer, save_tokenizer
from dataflex_events.adapters.verl.cpu.warmup import solve_rates, warm_up


def _rows(questions: Sequence[Question], split: str) -> list[dict[str, object]]:
    return [
        {
            "data_source": f"lab/{q.domain}",
            "domain": q.domain,
            "prompt": [{"role": "user", "content": q.text}],
            "reward_model": {"style": "rule", "ground_truth": q.answer},
            "extra_info": {"index": number, "split": split},
        }
        for number, q in enumerate(questions)
    ]


def write_lab(settings: LabSettings, folder: Path, say: Callable[[str], None]) -> None:
    """Write a lab's files.

    Args:
        settings: What to build.
        folder: An empty folder.
        say: Receives progress in words.
    """
    rng = random.Random(settings.seed)
    held_out = [q for d in DOMAINS for q in make_questions(d, settings.held_out_per_domain, rng)]
    hidden = {q.text for q in held_out}
    train = [q for d in DOMAINS for q in make_questions(d, settings.train_per_domain, rng, exclude=hidden)]
    for name, questions in (("train", train), ("held_out", held_out)):
        pq.write_table(pa.Table.from_pylist(_rows(questions, name)), folder / f"{name}.parquet")
    shutil.copyfile(reward_module.__file__, folder / "reward.py")
    (folder / "router.yaml").write_text(f"router_class: {Router.__module__}.{Router.__name__}\n", encoding="utf-8")

    # More threads would be slower where other work runs, and would make the lab depend on the number of cores.
    torch.set_num_threads(1)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer, hidden_size=settings.hidden_size, layers=settings.layers, seed=settings.seed)
    domains = list(DOMAINS)

    def batch(source: random.Random) -> list[Question]:
        wanted = [domains[n % len(domains)] for n in range(settings.warm_up_batch)]
        return [make_questions(domain, 1, source, exclude=hidden)[0] for domain in wanted]

    warm_up(
        model,
        tokenizer,
        batch,
        clean_steps=settings.clean_steps,
        noisy_steps=settings.noisy_steps,
        wrong_share=settings.wrong_share,
        learning_rate=settings.learning_rate,
        rng=rng,
        say=say,
    )
    rates = solve_rates(
        model,
        tokenizer,
        held_out,
        samples=settings.measured_samples,
        response_length=RESPONSE_LENGTH,
        seed=settings.seed,
    )
    say("solve rates: " + ", ".join(f"{domain} {rate:.2f}" for domain, rate in rates.items()))
    save_model(model, folder / "model")
    save_tokenizer(folder / "model")
    facts = {"settings": dataclasses.asdict(settings), "solve_rates": rates}
    (folder / "lab.json").write_text(json.dumps(facts, indent=2), encoding="utf-8")
