"""Batched generation with a Transformers model and a key/value cache.

The numbers that a matrix product gives for one row may differ in the last bit with the number of rows next to
it. So every batch has the same shape, filled up with idle rows where requests are few, and prompts are padded
to a fixed width. On one thread (`torch.set_num_threads(1)`) a row's logits then depend on that row alone,
whatever it was batched with; with several, they also depend on which thread got the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dataflex_events.adapters.verl.cpu.generation import Generation, SamplingParams
from dataflex_events.adapters.verl.cpu.sampling import pick


class Batch:
    """Generations that are decoded together, one token a `step()`."""

    def __init__(self, engine: Engine, generations: Sequence[Generation]) -> None:
        longest = max(len(g.prompt_ids) for g in generations)
        width = next((w for w in engine.widths if w >= longest), None)
        if width is None:
            raise ValueError(f"A prompt of {longest} tokens is longer than prompt_length + response_length allows")
        self._engine = engine
        self._generations = list(generations)
        idle = engine.rows - len(generations)
        # Padding is on the left: all rows then write their next token in the same column.
        self._ids = torch.full((engine.rows, width), engine.pad_id)
        self._mask = torch.zeros((engine.rows, width), dtype=torch.int64)
        for row, prompt in enumerate([*(g.prompt_ids for g in generations), *([[engine.pad_id]] * idle)]):
            self._ids[row, width - len(prompt) :] = torch.tensor(prompt)
            self._mask[row, width - len(prompt) :] = 1
        self._positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        self._params = [g.params for g in generations] + [SamplingParams()] * idle
        self._cache: Any = None
        self._length = 0

    @property
    def finished(self) -> bool:
        return all(g.finished for g in self._generations)

    @torch.inference_mode()
    def step(self) -> list[Generation]:
        """Generate the next token of every row.

        Returns:
            The generations that ended with this token.
        """
        output = self._engine.model(
            input_ids=self._ids,
            attention_mask=self._mask,
            position_ids=self._positions,
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache = output.past_key_values
        uniform = torch.full((self._engine.rows,), 0.5, dtype=torch.float64)
        for row, generation in enumerate(self._generations):
            if not generation.finished:
                uniform[row] = float(generation.uniforms[self._length])
        tokens, log_probs = pick(output.logits[:, -1], self._params, uniform)
        self._length += 1
        self._ids = tokens[:, None]
        self._mask = torch.cat([self._mask, torch.ones_like(self._ids)], dim=-1)
        self._positions = self._positions[:, -1:] + 1
        return self._record(tokens.tolist(), log_probs.tolist())

    def _record(self, tokens: list[int], log_probs: list[float]) -> list[Generation]:
        ended = []
        for generation, token, log_prob in zip(self._generations, tokens, log_probs, strict=False):
            if generation.finished:
                continue
            generation.token_ids.append(token)
            generation.log_probs.append(log_prob)
            end = token in self._engine.end_ids and not generation.params.ignore_eos
            if end or self._length >= generation.params.max_tokens:
                generation.finished = True
                ended.append(generation)
        return ended


class Engine:
    """A causal language model and the shape of its batches.

    Args:
        model: A Transformers model in float32.
        end_ids: Tokens that end a response.
        pad_id: Token for padding; its value does not matter.
        rows: Rows of every batch.
        prompt_length: Longest prompt, in tokens.
        response_length: Longest response, in tokens.
    """

    def __init__(
        self, model: Any, end_ids: set[int], pad_id: int, rows: int, prompt_length: int, response_length: int
    ) -> None:
        self.model = model.eval()
        self.end_ids = end_ids
        self.pad_id = pad_id
        self.rows = rows
        # The second width is for interrupted rollouts that come back with a part of their response.
        self.widths = (prompt_length, prompt_length + response_length)

    def start(self, generations: Sequence[Generation]) -> Batch:
        """Begin a batch of at most `rows` generations."""
        if not 0 < len(generations) <= self.rows:
            raise ValueError(f"A batch takes 1 to {self.rows} generations, got {len(generations)}")
        return Batch(self, generations)

    def generate(self, generations: Sequence[Generation]) -> None:
        """Decode any number of generations to their end."""
        for first in range(0, len(generations), self.rows):
            batch = self.start(generations[first : first + self.rows])
            while not batch.finished:
                batch.step()

    def load_weights(self, weights: dict[str, torch.Tensor]) -> None:
        """Overwrite parameters by name; names that the model lacks are an error."""
        own = self.model.state_dict()
        unknown = sorted(weights.keys() - own.keys())
        if unknown:
            raise KeyError(f"The trainer sent weights that the rollout model does not have: {unknown[:5]}")
        with torch.no_grad():
            for name, value in weights.items():
                own[name].copy_(value)
