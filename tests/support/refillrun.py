"""Steps of a run that refills: our hooks on verl's own buffer, with prompts that are generated as a script says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, TypeAlias

from groupqueue import GroupQueue
from omegaconf import OmegaConf
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from dataflex_events import GroupsFinished, RunFacts, StepDriver
from dataflex_events.adapters.verl.drawing import DrawnPrompts
from dataflex_events.adapters.verl.groups import uid_of
from dataflex_events.plan import make_plan

ROLLOUTS = 4

# What becomes of a prompt: its pass rate, a multiple of 1/4; None: all of its rollouts fail.
Rate: TypeAlias = float | None
# Which of the prompts that are being generated finish at the next look.
Finish: TypeAlias = Callable[[list[str]], Sequence[str]]


def together(running: list[str]) -> Sequence[str]:
    return running


def oldest(running: list[str]) -> Sequence[str]:
    return running[:1]


def newest(running: list[str]) -> Sequence[str]:
    return running[-1:]


def names(*numbers: int) -> set[str]:
    """The groups of prompts with these numbers."""
    return {f"p{number:04}" for number in numbers}


def at_random(seed: int) -> Finish:
    """Some of the prompts finish at each look, in any order."""
    rng = Random(seed)
    return lambda running: rng.sample(running, rng.randint(1, len(running)))


def band(refill: Any, low: float = 0.0, high: float = 1.0, **options: Any) -> dict[str, Any]:
    """A policy that keeps the groups with a pass rate in a band and replaces the others."""
    inclusive = options.pop("inclusive", False)
    params = {"low": low, "high": high, "inclusive": inclusive}
    actuator = {"name": "threshold_band", "params": params}
    return {
        "mechanism": "select",
        "scorer": {"name": "group_solve_rate"},
        "actuator": actuator,
        "refill": refill,
        **options,
    }


class VerlsPart:
    """Of verl's trainer what is about its buffer."""

    config: Any
    _add_prompts_to_generate: Callable[[int], None]

    def _build_replay_buffer(self) -> ReplayBuffer:
        groups, failed = self.config.algorithm.filter_groups, self.config.sync_refill_failed_groups
        return ReplayBuffer(
            "sync",
            {},
            None,
            "drop",
            {},
            poll_interval=0.0,
            refill_fn=self._add_prompts_to_generate,
            filter_groups_metric="reward" if groups.enable else None,
            sync_refill_failed_groups=failed,
            train_batch_size=self.config.data.train_batch_size,
            gen_batch_size=1,
            max_inflight_gen_batches=groups.max_inflight_gen_batches,
        )


class RefillRun(DrawnPrompts, VerlsPart):
    """Takes one training batch a step. The prompt number i is called `p000i` and has the row i of the data.

    Args:
        block: The `dataflex:` block; None for one that only watches.
        rates: What becomes of each prompt, in the order in which they are generated.
        then: What becomes of all further ones.
        finish: Which prompts finish when.
        batch: Prompts of a training batch.
        filters: verl's own filter is on.
        failed: verl replaces groups whose rollouts all failed.
        in_flight: `algorithm.filter_groups.max_inflight_gen_batches`.

    Attributes:
        asked: How many prompts each refill of the last step added.
        most: The highest number of prompts that were generated at the same time in the last step.
        told: The fate of each group that was told of, in order, and whether its trajectories were still there.
        metrics: Of the last step, verl's and ours.
    """

    global_steps, local_trigger_step = 0, 0

    def __init__(
        self,
        block: dict[str, Any] | None,
        rates: Sequence[Rate] = (),
        *,
        then: Rate = 0.5,
        finish: Finish = together,
        batch: int = 4,
        filters: bool = False,
        failed: bool = False,
        in_flight: int = 1,
    ) -> None:
        groups = {"enable": filters, "metric": "reward", "max_inflight_gen_batches": in_flight}
        self.config = OmegaConf.create(
            {
                "data": {"train_batch_size": batch},
                "algorithm": {"filter_groups": groups},
                "sync_refill_failed_groups": failed,
            }
        )
        self.queue = GroupQueue()
        self.rates, self.then, self.finish, self.batch = list(rates), then, finish, batch
        self.number = self.most = 0
        self.asked: list[int] = []
        self.told: list[tuple[str, str, bool]] = []
        self.metrics: dict[str, float] = {}
        self._rows: dict[str, int] = {}
        self._plan = make_plan(block or {"handlers": ["toys:watch"]})
        self._driver = StepDriver(
            self._plan.bus(),
            RunFacts(rollouts_per_prompt=ROLLOUTS),
            shadow=self._plan.settings.shadow,
            refills=self._plan.refill is not None,
        )
        self._driver.bus.subscribe(GroupsFinished, self._hear, name="ear")
        self.buffer = self._build_replay_buffer()
        self.buffer._wait_for_next_poll = self._poll

    # ------------------------------------------------------------------ a step

    def step(self) -> list[str]:
        """Returns the groups of the training batch."""
        self.global_steps += 1
        self.asked, self.told, self.most = [], [], 0
        with self.queue.connected():
            self._generate(self.batch)
            batch, metrics = self.buffer.sample(
                global_steps=self.global_steps, partition_id="train", batch_size=self.batch
            )
            ours = {} if self._refilling is None else self._refilling.metrics
            self.metrics = {**metrics, **self._driver.step_end(self._step_id()), **ours}
            self.queue.kv_clear(batch.keys, "train")
        assert self.queue.tags["train"] == {}, "what is left in TransferQueue stays there for ever"
        return sorted(set(map(uid_of, batch.keys)))

    @property
    def fates(self) -> dict[str, str]:
        """Of the groups that were told of in the last step."""
        twice = [uid for uid, count in Counter(uid for uid, _, _ in self.told).items() if count > 1]
        assert not twice, "each is told of once"
        return {uid: fate for uid, fate, _ in self.told}

    def count(self, name: str) -> int:
        """A scalar of the last step, 0 without any."""
        return int(self.metrics.get(name, 0))

    def rate(self, uid: str) -> Rate:
        """What becomes of a prompt."""
        number = int(uid[1:])
        return self.rates[number] if number < len(self.rates) else self.then

    # ------------------------------------------------------------------ generation

    def _generate(self, count: int) -> None:
        for _ in range(count):
            uid = f"p{self.number:04}"
            self._rows[uid] = self.number
            self.queue.group(uid, "pending", rollouts=0, step=self.global_steps)
            self.number += 1
        self.most = max(self.most, len(self._running()))

    def _add_prompts_to_generate(self, count: int) -> None:
        self.asked.append(count)
        self._generate(count)

    def _running(self) -> list[str]:
        return sorted(uid for uid, tag in self.queue.tags["train"].items() if tag["status"] in ("pending", "running"))

    def _poll(self, *_: Any) -> float:
        running = self._running()
        assert running, "verl waits, and nothing is generated"
        for uid in self.finish(running):
            number, rate = int(uid[1:]), self.rate(uid)
            solved = 0 if rate is None else round(rate * ROLLOUTS)
            rewards = [] if rate is None else [1.0] * solved + [0.0] * (ROLLOUTS - solved)
            self.queue.group(uid, "failure" if rate is None else "finished", len(rewards), step=self.global_steps)
            self.queue.rewards(uid, rewards, number)
        return 0.0

    def _hear(self, event: GroupsFinished) -> None:
        tags = self.queue.tags["train"]
        for row, fate in zip(event.groups.row_id.tolist(), event.groups.fate, strict=True):
            uid = f"p{row:04}"
            self.told.append((uid, fate, uid in tags))
