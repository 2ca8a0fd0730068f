"""verl's handle on one rollout server."""

from __future__ import annotations

import ray
from verl.utils.fs import copy_to_local
from verl.workers.rollout.replica import RolloutReplica

from dataflex_events.adapters.verl.cpu.protocol import ServerSettings
from dataflex_events.adapters.verl.cpu.server import RolloutServer


def server_name(replica_rank: int) -> str:
    """Ray name of a server; trainer processes find it by this name to send weights."""
    return f"dataflex_cpu_rollout_{replica_rank}"


class TransformersReplica(RolloutReplica):
    """Starts a `RolloutServer` beside the workers that verl has already placed."""

    async def launch_servers(self) -> None:
        if self.world_size != 1:
            raise ValueError(
                "The CPU rollout server runs in one process: set tensor, data and pipeline parallel sizes to 1"
            )
        if self.config.logprobs_mode != "processed_logprobs":
            raise ValueError("The CPU rollout server knows only logprobs_mode=processed_logprobs")
        settings = ServerSettings(
            model_path=copy_to_local(self.model_config.path),
            seed=self.config.seed,
            rows=self.config.max_num_seqs,
            prompt_length=self.config.prompt_length,
            response_length=self.config.response_length,
            ignore_eos=self.config.ignore_eos,
        )
        server = (
            ray.remote(RolloutServer)
            .options(name=server_name(self.replica_rank), num_cpus=0, max_concurrency=self.max_concurrency)
            .remote(settings)
        )
        await server.start.remote()
        self.servers = [server]
        self._server_handle = server
        self._server_address = server_name(self.replica_rank)
