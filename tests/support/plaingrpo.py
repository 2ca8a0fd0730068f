"""Plain GRPO by hand: baselines, losses, gradients and AdamW steps of given rows, on the same Transformers model.

Written from the papers' formulas and verl's documented defaults. It shares no code with the package or with verl, and
knows neither padding rows nor ranks: a mini-batch is the list of its rows.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

CLIP, CLIP_DUAL, MAX_NORM = 0.2, 3.0, 1.0
KL_MOST = 10.0  # of a token: verl's `low_var_kl` is cut there, and has no gradient beyond
ADAMW: dict[str, Any] = {"lr": 4e-4, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}


@dataclass(frozen=True, eq=False)
class Row:
    """One trajectory as it was generated, named by its TransferQueue key `{uid}_{session}_{output}`."""

    key: str
    tokens: Tensor  # prompt and response
    mask: Tensor  # (response length,)
    reward: float

    @property
    def uid(self) -> str:
        return self.key.rsplit("_", 2)[0]

    @property
    def session(self) -> str:
        return self.key.rsplit("_", 1)[0]

    @property
    def output(self) -> int:
        return int(self.key.rsplit("_", 1)[1])


def advantages(rows: Sequence[Row]) -> dict[str, float]:
    """GRPO's advantage of each row: `(r - mean) / (std + 1e-6)` over the sessions of its group among `rows`.

    A session's reward is that of its final output; all of its outputs share the advantage.
    """
    final: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.output):
        final[row.session] = row
    groups: dict[str, list[float]] = defaultdict(list)
    for row in final.values():
        groups[row.uid].append(row.reward)
    result = {}
    for row in rows:
        rewards = torch.tensor(groups[row.uid], dtype=torch.float64)
        value = (final[row.session].reward - rewards.mean()) / (rewards.std() + 1e-6)
        result[row.key] = float(value)
    return result


class PlainGrpo:
    """Trains a model on mini-batches of rows.

    Args:
        model: Folder of the model.
        loss: "token-mean" or "seq-mean-token-mean".
        kl: Coefficient of the KL loss against the initial model.
    """

    def __init__(self, model: Path, loss: str, kl: float = 0.0) -> None:
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
        self.loss = loss
        self.kl = kl
        self.reference = copy.deepcopy(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **ADAMW)

    def go_on(self, loss: str, kl: float, rate: float = ADAMW["lr"]) -> None:
        """Train on with another loss or learning rate."""
        self.loss, self.kl = loss, kl
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def log_probs(self, rows: Sequence[Row], model: Any = None) -> list[Tensor]:
        """Log-probabilities of the response tokens of each row."""
        ids = torch.nn.utils.rnn.pad_sequence([row.tokens for row in rows], batch_first=True)
        # Attention looks back only, so that what follows a row's end does not matter.
        logits = (model or self.model)(input_ids=ids).logits.float()
        every = torch.log_softmax(logits[:, :-1], dim=-1).gather(-1, ids[:, 1:, None])[..., 0]
        ends = [len(row.tokens) - 1 for row in rows]
        return [every[i, end - len(row.mask) : end] for i, (row, end) in enumerate(zip(rows, ends, strict=True))]

    def fixed_log_probs(self, rows: Sequence[Row], model: Any = None) -> dict[str, Tensor]:
        """Log-probabilities by key, without a gradient."""
        with torch.no_grad():
            return dict(zip((row.key for row in rows), self.log_probs(rows, model), strict=True))

    def gradient(
        self,
        rows: Sequence[Row],
        advantage: Mapping[str, float],
        old: Mapping[str, Tensor],
        divisor: float | None = None,
    ) -> dict[str, Tensor]:
        """Gradient of the loss of one mini-batch at the present parameters.

        Args:
            rows: The mini-batch.
            advantage: By key.
            old: Log-probabilities before the step, by key.
            divisor: What the sum of token losses (token-mean) or of row means (seq-mean-token-mean) is divided by; by
                default the mini-batch's number of tokens or rows.
        """
        if divisor is None:
            divisor = float(sum(row.mask.sum() for row in rows) if self.loss == "token-mean" else len(rows))
        reference = self.fixed_log_probs(rows, self.reference) if self.kl else {}
        total = torch.zeros(())
        for row, log_probs in zip(rows, self.log_probs(rows), strict=True):
            mask = row.mask.to(torch.bool)
            new, a = log_probs[mask], advantage[row.key]
            ratio = (new - old[row.key][mask]).exp()
            losses = torch.maximum(-a * ratio, -a * ratio.clamp(1 - CLIP, 1 + CLIP))
            if a < 0:
                losses = losses.clamp(max=-a * CLIP_DUAL)
            if reference:
                gap = reference[row.key][mask] - new
                losses = losses + self.kl * (gap.exp() - gap - 1).clamp(max=KL_MOST)
            total = total + (losses.sum() if self.loss == "token-mean" else losses.mean())
        self.model.zero_grad()
        (total / divisor).backward()
        return {name: value.grad.clone() for name, value in self.model.named_parameters()}

    def step(self) -> float:
        """Clip the gradient and make an AdamW step. Returns the norm before clipping."""
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
        self.optimizer.step()
        return float(norm)

    def load(self, parameters: Mapping[str, Tensor]) -> None:
        """Take over parameters."""
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                value.copy_(parameters[name])

    def parameters(self) -> dict[str, Tensor]:
        """A copy of the parameters."""
        return {name: value.detach().clone() for name, value in self.model.named_parameters()}


def norm(tensors: dict[str, Tensor]) -> float:
    """Euclidean norm over all tensors."""
    return float(torch.stack([value.double().norm() for value in tensors.values()]).norm())


def difference(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """Norm of a - b over the norm of b."""
    assert a.keys() == b.keys()
    return norm({name: a[name] - b[name] for name in a}) / norm(b)
