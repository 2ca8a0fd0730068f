"""Far-end probe of the draw: which prompts reached the rollout server, in the order in which it got them.

Loaded into every process of a run by `VERL_USE_EXTERNAL_MODULES=mixprobe`; writes a line for each rollout to
`$FAREND_DIR/server.jsonl`. Also the mixer with which the runs of these tests draw.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dataflex_events import BufferSample, DomainStats, Mixer, Observer, StepEnd, on
from dataflex_events.adapters.verl.cpu.lab import LabSettings, build_lab
from dataflex_events.adapters.verl.post_import import when_imported
from dataflex_events.prompts import PromptDraw

FILE = "server.jsonl"


@dataclass
class InTurn(Mixer):
    """Other proportions at every draw: the rows of `turns`, over and over."""

    turns: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._decisions = 0

    def mix(self, stats: DomainStats) -> Tensor:
        self._decisions += 1
        return torch.tensor(self.turns[(self._decisions - 1) % len(self.turns)])

    def state_dict(self) -> dict[str, Any]:
        return {"decisions": self._decisions}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._decisions = state["decisions"]


@dataclass
class IgnoreShares(Observer):
    """From a step on the plan follows the data, whatever the mixer says: what the tests must not let pass."""

    step: int

    @on(StepEnd)
    def cut(self, event: StepEnd) -> None:
        if event.step.global_step == self.step - 1:
            plan = PromptDraw.plan
            PromptDraw.plan = lambda draw, n, shares=None, *rest: plan(draw, n, None, *rest)  # type: ignore[method-assign]


@dataclass
class KillAt(Observer):
    """Ends the trainer's process with SIGKILL when it draws for a step; 0: never."""

    step: int = 0

    @on(BufferSample)
    def kill(self, event: BufferSample) -> None:
        if event.step.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Prompt:
    """One prompt that the server got.

    Attributes:
        step: Of the draw.
        text: The question, decoded from the tokens.
        domain: The domain of that question in the data.
        rollouts: How many times the server got it for this draw.
    """

    step: int
    text: str
    domain: str
    rollouts: int


def prompts(folder: Path) -> list[Prompt]:
    """The training prompts that the rollout server got, in the order in which the first rollout of each came."""
    import pyarrow.parquet
    from transformers import AutoTokenizer

    lab = build_lab(LabSettings.tiny())
    rows = pyarrow.parquet.read_table(lab.train, columns=["prompt", "domain"]).to_pylist()
    domains = {row["prompt"][-1]["content"]: row["domain"] for row in rows}
    tokenizer = AutoTokenizer.from_pretrained(lab.model)
    got: dict[tuple[int, ...], int] = {}
    for line in (folder / "farend" / FILE).read_text().splitlines():
        record = json.loads(line)
        key = (record["step"], record["repeat"], *record["prompt_ids"])
        got[key] = got.get(key, 0) + 1
    found = []
    for (step, _, *prompt_ids), rollouts in got.items():
        decoded = tokenizer.decode(prompt_ids)
        for text in [text for text in domains if f"\n{text}<" in decoded]:  # none for a prompt of the validation
            found.append(Prompt(step, text, domains[text], rollouts))
    return found


def _watch(module: Any) -> None:
    (server,) = [item for item in vars(module).values() if isinstance(item, type) and hasattr(item, "generate_many")]
    generate = server.generate

    async def probe(self: Any, prompt_ids: Any, *args: Any, draw: Any = None, **kwargs: Any) -> Any:
        record = {"step": draw.step, "repeat": draw.repeat, "prompt_ids": [int(token) for token in prompt_ids]}
        with open(Path(os.environ["FAREND_DIR"]) / FILE, "a") as out:
            out.write(json.dumps(record) + "\n")
        return await generate(self, prompt_ids, *args, draw=draw, **kwargs)

    server.generate = probe


if "FAREND_DIR" in os.environ and "VERL_USE_EXTERNAL_MODULES" in os.environ:
    when_imported("dataflex_events.adapters.verl.cpu.server", _watch)
