"""A stand-in for verl's trainer and its workers: it reads and writes what the real ones do, at the same places."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeAlias

import torch
import transfer_queue as tq
from fakequeue import FakeQueue
from omegaconf import DictConfig
from tensordict import TensorDict
from transfer_queue.metadata import KVBatchMeta
from verl.protocol import BatchData

from dataflex_events.adapters.verl.advantages import estimate
from dataflex_events.adapters.verl.rows import response_offsets
from dataflex_events.adapters.verl.trainer import DataflexMixin

RANKS = 2

Columns: TypeAlias = dict[str, torch.Tensor]  # of one row


class Workers:
    """The actor's worker group. Remembers what it was sent and what it read.

    Attributes:
        sent: For each update, the batch's `extra_info`.
        received: For each update, the columns of every row by its key, padding left out.
        computed: What the model computes for a row, by its key: `old_log_probs` and `entropy`.
    """

    def __init__(self, queue: FakeQueue) -> None:
        self._queue = queue
        self._dispatch_info = {"actor": list(range(RANKS))}
        self.sent: list[dict[str, Any]] = []
        self.received: list[dict[str, Columns]] = []
        self.computed: dict[str, Columns] = {}

    def update_actor(self, batch: KVBatchMeta) -> None:
        if batch.extra_info.pop("fail", False):
            raise RuntimeError("worker died")
        self.sent.append(dict(batch.extra_info))
        rows: dict[str, Columns] = {}
        for part in BatchData(batch).chunk(RANKS):
            data = self._queue.read(part)
            columns = {name: data[name].unbind() for name in data.keys() if torch.is_tensor(data[name])}  # noqa: SIM118
            for at, (key, tag) in enumerate(zip(part.keys, part.tags, strict=True)):
                if not tag.get("is_padding"):
                    rows[key] = {name: values[at] for name, values in columns.items()}
        self.received.append(rows)


class OwnTrainer:
    """What of verl's trainer our hooks meet.

    Attributes:
        queue: Where the rows are.
        actor_rollout_wg: The workers.
    """

    queue: FakeQueue
    actor_rollout_wg: Workers

    def __init__(self, config: DictConfig) -> None:
        self.config = config
        self.global_steps, self.local_trigger_step, self.use_critic = 1, 0, False

    def connect(self, queue: FakeQueue) -> None:
        """Take rows from there."""
        self.queue, self.actor_rollout_wg = queue, Workers(queue)

    def generate(self) -> Iterator[None]:
        """Put the rows of each step into the queue; the run ends with them."""
        raise NotImplementedError

    def fit(self, agent_loop_manager: Any) -> None:
        for step, _ in enumerate(self.generate(), start=1):
            self.global_steps = step
            metrics: dict[str, Any] = {}
            batch = self._step_once(metrics, {}, len(self.queue.rows))
            self._compute_metrics(batch, metrics, {}, global_steps=step, epoch=0)
            tq.kv_clear(keys=batch.keys, partition_id=batch.partition_id)
            assert not self.queue.rows, "what is left in TransferQueue stays there for ever"

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> KVBatchMeta:
        batch = self._balance_batch(self.queue.meta(), metrics=metrics)
        batch = self._compute_old_log_prob(batch, metrics=metrics)
        batch = self._compute_advantage(batch, metrics=metrics)
        return self._update_actor(batch, metrics=metrics)

    def _compute_metrics(self, *args: Any, **kwargs: Any) -> None:
        pass

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        return math.lcm(dp_size, self._mini_batch)

    @property
    def _mini_batch(self) -> int:
        roles = self.config.actor_rollout_ref
        return int(roles.actor.ppo_mini_batch_size * roles.rollout.n)

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        like = self.queue.rows[batch.keys[0]]
        padding = {name: torch.zeros(1, dtype=value.dtype) for name, value in like.items() if torch.is_tensor(value)}
        for number in range(-len(batch) % self._get_required_batch_multiple(RANKS)):
            self.queue.put(f"pad0_{number}_0", **{**like, **padding, "uid": "pad0"})
            batch.keys.append(f"pad0_{number}_0")
            batch.tags.append({"response_len": 1, "is_padding": True})
        batch = KVBatchMeta(batch.keys, batch.tags, batch.partition_id, list(like))
        lengths = response_offsets(batch).diff()
        batch.reorder(lengths.argsort(descending=True, stable=True).tolist())  # verl balances lengths among ranks
        return batch

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        computed = self.actor_rollout_wg.computed
        lengths = response_offsets(batch).diff().tolist()
        made = [computed.get(key, {}) for key in batch.keys]
        return self._put(
            batch,
            {
                name: torch.cat([row.get(name, torch.zeros(n)) for row, n in zip(made, lengths, strict=True)])
                for name in ("old_log_probs", "entropy")
            },
        )

    def _compute_ref_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        return batch

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        names = ["rm_scores", "response_mask"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        rewards, mask = (data[name].values() for name in names)
        return self._put(batch, estimate(self.config, batch.keys, response_offsets(batch), rewards, mask))

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        shuffle = self.config.actor_rollout_ref.actor.shuffle
        sizes = {"mini_batch_size": self._mini_batch, "global_batch_size": self._mini_batch}
        batch.extra_info.update(**sizes, dataloader_kwargs={"shuffle": shuffle})
        self.actor_rollout_wg.update_actor(batch)
        return batch

    def _put(self, batch: KVBatchMeta, columns: Columns) -> KVBatchMeta:
        """Write columns and hand on a batch that lists all there are, and has lost its `extra_info`."""
        offsets = response_offsets(batch)
        ragged = {name: torch.nested.nested_tensor_from_jagged(values, offsets) for name, values in columns.items()}
        fields = TensorDict(ragged, batch_size=len(batch))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
        return KVBatchMeta(batch.keys, batch.tags, batch.partition_id, list(self.queue.rows[batch.keys[0]]))


class FakeTrainer(DataflexMixin, OwnTrainer):
    """Our trainer on the stand-in: a whole run, from its configuration to what the workers got."""

    base_mode = "sync"
