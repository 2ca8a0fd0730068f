"""One run through all ways to apply a policy, all policy losses, and all kinds of bad numbers, step by step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from droplab import mixed_prompts
from labrun import MODULES, SUPPORT, Run, run_verl

Block = dict[str, Any]
Call = dict[str, Any]

PROMPTS, ROLLOUTS, MINI_BATCHES = 8, 8, 2
ACTOR = "actor_rollout_ref.actor"


def policy(mechanism: str, scorer: str, actuator: str, params: dict[str, Any] | None = None, **keys: Any) -> Block:
    """A policy of the `dataflex:` block."""
    named = {"name": actuator, "params": params or {}}
    return {"mechanism": mechanism, "scorer": {"name": scorer}, "actuator": named, **keys}


def topk(fraction: float = 0.5, **keys: Any) -> Block:
    return policy("select", "advantage_magnitude", "topk_fraction", {"fraction": fraction}, **keys)


def recipe(name: str, **keys: Any) -> Block:
    """The policy of one of the recipes, with other keys."""
    text = (SUPPORT.parents[1] / "examples" / "recipes" / f"{name}.yaml").read_text()
    block: Block = yaml.safe_load(text)["dataflex"]
    return block | keys


TOKENS = recipe("advantage_reweight")
ROWS = policy("reweight", "advantage_magnitude", "softmax", {"temperature": 2.0})
BAND = recipe("dapo_band")
OUTCOME = BAND | {"scorer": {"name": "group_solve_rate", "params": {"signal": "acc"}}}
CONTRAST = policy("select", "group_reward_std", "threshold_band", {"low": 0.0, "high": 1e9})

LOSSES = ("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "geo_mean", "dro", "cispo")


@dataclass(frozen=True)
class Way:
    """One step of the run.

    Attributes:
        policies: The policies of its block.
        loss: `loss_agg_mode`.
        loss_mode: Policy loss.
        odd: What is wrong with the rewards of the first half of the prompts.
        settings: Further settings of the actor.
        algorithm: Settings of the algorithm.
        cut: A mechanism of ours that is taken away.
    """

    policies: tuple[Block, ...]
    loss: str = "token-mean"
    loss_mode: str = "vanilla"
    odd: str | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    algorithm: tuple[tuple[str, Any], ...] = ()
    cut: str | None = None

    def schedule(self) -> dict[str, Any]:
        """Its settings."""
        cut = {"path": "cut:CutWeights", "params": {"at": [[self.cut]]}}
        handlers = ["dropkit:Watch", *([cut] if self.cut else [])]
        block = {"policies": list(self.policies), "handlers": handlers, "verify_every": 1}
        return {
            "dataflex": block,
            f"{ACTOR}.loss_agg_mode": self.loss,
            f"{ACTOR}.policy_loss.loss_mode": self.loss_mode,
            **{f"{ACTOR}.{name}": value for name, value in self.settings},
            **{f"algorithm.{name}": value for name, value in self.algorithm},
        }


BYPASS = (("policy_loss.rollout_correction", {"loss_type": "ppo_clip"}),)

WAYS: dict[str, Way] = {
    "mask, token-mean": Way((topk(apply="mask"),)),
    "mask, seq-mean": Way((topk(apply="mask"),), "seq-mean-token-mean"),
    "mask, one row": Way((topk(1 / 64, apply="mask"),)),
    "weight, token-mean": Way((topk(),)),
    "weight, seq-mean": Way((topk(),), "seq-mean-token-mean"),
    "weight, seq-sum": Way((topk(),), "seq-mean-token-sum"),
    "weight, seq-sum-norm": Way((topk(),), "seq-mean-token-sum-norm"),
    "weight, token-sum": Way((topk(),), "token-sum"),
    "drop, subset": Way((recipe("gfpo_efficient"),)),
    "drop, full": Way((recipe("gfpo_efficient", advantages="full"),), "seq-mean-token-mean"),
    "weight, subset": Way((recipe("pods", apply="weight"),)),
    "mask, subset": Way((recipe("pods", apply="mask"),), "seq-mean-token-mean"),
    "mask, full": Way((recipe("gfpo_efficient", apply="mask", advantages="full"),)),
    "tokens masked": Way((recipe("top_entropy_tokens", apply="mask"),), "seq-mean-token-mean"),
    "tokens weighted": Way((recipe("top_entropy_tokens"),)),
    **{f"loss {name}": Way((TOKENS, ROWS), loss_mode=name) for name in LOSSES if name != "dro"},
    "loss dro": Way((TOKENS, ROWS), loss_mode="dro", settings=(("policy_loss.dro_beta", 0.1),)),
    "loss bypass_mode": Way((TOKENS, ROWS), loss_mode="bypass_mode", settings=BYPASS),
    "bypass": Way((TOKENS, ROWS), algorithm=(("rollout_correction.bypass_mode", True),)),
    "outcome": Way((OUTCOME,)),
    "no loss mask": Way((topk(apply="mask"),), cut="loss mask"),
    "no baseline": Way((recipe("pods", apply="weight"),), cut="baseline"),
    "no channel": Way((TOKENS, ROWS), loss_mode="geo_mean", cut="channel"),
    "rewards nan, dropped": Way((BAND,), odd="nan"),
    "rewards nan, weighted": Way((ROWS,), odd="nan"),
    "rewards inf": Way((ROWS, topk()), odd="inf"),
    "rewards huge": Way((recipe("gfpo_efficient"),), odd="huge"),
    "rewards negative": Way((recipe("gfpo_efficient"),), odd="negative"),
    "rewards equal": Way((CONTRAST,), odd="equal"),
}


def run_ways(folder: Path) -> Run:
    """All of them, in one run."""
    data, ways = folder / "prompts.parquet", list(WAYS.values())
    rows = mixed_prompts() * 2
    prompts = [
        row
        | {"agent_name": "even_sessions"}
        | {"extra_info": {"index": number, "split": "train", "drawn_as": None, "constant": None, "odd": _odd(number)}}
        for number, row in enumerate(rows[: len(ways) * PROMPTS])
    ]
    pq.write_table(pa.Table.from_pylist(prompts), data)
    return run_verl(
        folder,
        "trainer.v1.trainer_mode=dataflex_sync",
        f"data.train_files={data}",
        "data.shuffle=False",
        f"data.train_batch_size={PROMPTS}",
        f"{ACTOR}.ppo_mini_batch_size={PROMPTS // MINI_BATCHES}",
        f"{ACTOR}.ppo_max_token_len_per_gpu=512",
        f"{ACTOR}.use_kl_loss=True",
        f"{ACTOR}.kl_loss_coef=0.1",
        f"{ACTOR}.entropy_coeff=0.05",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        f"reward.custom_reward_function.path={SUPPORT / 'oddrewards.py'}",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={SUPPORT / 'dropagents.yaml'}",
        "+dataflex.handlers=[dropkit:Watch]",
        steps=len(ways),
        schedule=[way.schedule() for way in ways],
        environment={MODULES: "lossprobe"},
    )


def _odd(number: int) -> str | None:
    way, place = list(WAYS.values())[number // PROMPTS], number % PROMPTS
    return way.odd if place < PROMPTS // 2 else None


@dataclass(frozen=True, eq=False)
class Story:
    """What happened in one step.

    Attributes:
        generated: Reward by key of the trajectory.
        lengths: Tokens by key.
        index: Number of the prompt by key.
        sent: Keys that the trainer sent, padding left out.
        calls: What each call of the loss got and returned, in order.
        metrics: What verl logged.
    """

    generated: dict[str, float]
    lengths: dict[str, int]
    index: dict[str, int]
    sent: list[str]
    calls: list[Call]
    metrics: dict[str, Any]

    @cached_property
    def rows(self) -> dict[str, Call]:
        """What arrived, by key: the columns of the row."""
        return {
            key: {name: column[at] for name, column in call.items() if isinstance(column, list)}
            for call in self.calls
            for at, key in enumerate(call["keys"])
            if not key.startswith("pad")
        }

    @property
    def groups(self) -> dict[str, list[str]]:
        """Keys of all trajectories by prompt, in the order of sessions."""
        found: dict[str, list[str]] = defaultdict(list)
        for key in sorted(self.generated, key=lambda key: int(key.rsplit("_", 2)[1])):
            found[key.rsplit("_", 2)[0]].append(key)
        return found

    def mini_batches(self) -> list[list[Call]]:
        """The calls of each mini-batch: their rows are as many as the trainer sent, divided evenly."""
        return list(self._by_denominator().values())

    def _by_denominator(self) -> dict[int, list[Call]]:
        rows = sum(len(call["keys"]) for call in self.calls)
        steps = int(self.metrics["dataflex/optimizer_steps"])
        found: dict[int, list[Call]] = defaultdict(list)
        seen = 0
        for call in self.calls:
            found[seen * steps // rows].append(call)
            seen += len(call["keys"])
        return found


def stories(run: Run) -> dict[str, Story]:
    """The steps of a run by the name of their way."""
    calls: dict[int, list[Call]] = defaultdict(list)
    for call in run.records("call"):
        calls[call["step"]].append(call)
    generated, sent = (_by_step(run, name) for name in ("generated", "sent"))
    found = {}
    for number, (name, metrics) in enumerate(zip(WAYS, run.metrics, strict=True), start=1):
        record, keys = generated[number], sent[number]
        found[name] = Story(
            {key: float(scores.sum()) for key, scores in zip(record["keys"], record["rm_scores"], strict=True)},
            {key: len(row) for key, row in zip(record["keys"], record["responses"], strict=True)},
            dict(zip(record["keys"], record["index"], strict=True)),
            [key for key, padding in zip(keys["keys"], keys["padding"], strict=True) if not padding],
            calls[number],
            metrics,
        )
    return found


def _by_step(run: Run, name: str) -> dict[int, dict[str, Any]]:
    return {record["step"]: record for record in run.records(name)}
