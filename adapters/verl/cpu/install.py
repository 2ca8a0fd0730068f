"""Teach verl to run on a CPU. Called in every process that imports verl, but only when `VERL_PLATFORM=cpu`.

Nothing of verl's trainer or workers is imported here: that would cost seconds in processes that need neither.
What depends on those modules is left behind as callbacks that run when, and only if, the module is imported.
"""

from __future__ import annotations

import functools
import gc
import importlib
from types import ModuleType, SimpleNamespace
from typing import Any

from dataflex_events.adapters.verl.cpu.environment import set_environment
from dataflex_events.adapters.verl.post_import import when_imported

ROLLOUT_NAME = "transformers_cpu"
"""Value of `actor_rollout_ref.rollout.name` that selects the lab's rollout server."""

AGENT_NAME = "repeatable_single_turn"
"""Value of `actor_rollout_ref.rollout.agent.default_agent_loop` that selects the lab's agent loop."""

CHECKPOINT_ENGINE = "dataflex_mailbox"
"""Value of `actor_rollout_ref.rollout.checkpoint_engine.backend` that selects the lab's checkpoint engine."""

_HERE = "dataflex_events.adapters.verl.cpu"


def install() -> None:
    """Register what the CPU needs and repair the few places of verl that assume an accelerator."""
    set_environment()
    gc.freeze()  # a short run is mostly imports: collections and the exit need not look at those of verl again

    from verl.plugin.platform import PlatformRegistry

    from dataflex_events.adapters.verl.cpu.device import CpuPlatform

    PlatformRegistry.register(platform="cpu")(CpuPlatform)

    when_imported("ray._private.node", _small_ray)
    when_imported("verl.utils.distributed", _plain_gloo)
    when_imported("verl.workers.engine.fsdp.transformer_impl", _no_pinned_memory)
    when_imported("verl.utils.model", _value_heads_without_flash_attention)
    when_imported("verl.workers.rollout.base", _register_weight_receiver)
    when_imported("verl.workers.rollout.replica", _register_replica)
    when_imported("verl.experimental.agent_loop.agent_loop", _register_agent_loop)
    when_imported("verl.trainer.ppo.v1.replay_buffer", _order_replay_buffer)
    when_imported("transfer_queue", _order_prompts)
    when_imported("transfer_queue.utils.common", _count_cores_once)
    when_imported("verl.checkpoint_engine", _register_checkpoint_engine)


def _small_ray(module: ModuleType) -> None:
    from dataflex_events.adapters.verl.cpu.small_ray import without_dashboard

    without_dashboard(module, importlib.import_module("ray._private.utils"))


def _plain_gloo(module: ModuleType) -> None:
    from dataflex_events.adapters.verl.cpu.process_group import initialize_process_group

    module.initialize_global_process_group_ray = initialize_process_group


def _no_pinned_memory(module: ModuleType) -> None:
    """The reference policy's offload policy pins host memory, which needs an accelerator."""
    original = module.CPUOffloadPolicy

    def cpu_offload_policy(pin_memory: bool = True) -> Any:
        return original(pin_memory=False)

    module.CPUOffloadPolicy = cpu_offload_policy


def _value_heads_without_flash_attention(module: ModuleType) -> None:
    """A critic's model is loaded with flash attention, which there is only for GPUs."""

    def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
        from transformers import AutoModelForTokenClassification

        return AutoModelForTokenClassification.from_pretrained(
            local_path,
            dtype=torch_dtype,
            config=model_config,
            attn_implementation="sdpa",
            trust_remote_code=trust_remote_code,
        )

    module.load_valuehead_model = load_valuehead_model


def _register_weight_receiver(module: ModuleType) -> None:
    module._ROLLOUT_REGISTRY[(ROLLOUT_NAME, "async")] = f"{_HERE}.weights.WeightSender"


def _register_replica(module: ModuleType) -> None:
    def load() -> type:
        from dataflex_events.adapters.verl.cpu.replica import TransformersReplica

        return TransformersReplica

    module.RolloutReplicaRegistry.register(ROLLOUT_NAME, load)


def _register_agent_loop(module: ModuleType) -> None:
    # By name: the class derives from one of this module's, so it can only be imported later.
    target = f"{_HERE}.agent_loop.RepeatableSingleTurn"
    module._agent_loop_registry[AGENT_NAME] = {"_target_": target}
    instantiate = module.hydra.utils.instantiate

    def directly(config: Any, **arguments: Any) -> Any:
        """Hydra looks into all arguments, for every rollout: a fifth of what the agent loop does in the lab."""
        if config.get("_target_") != target:
            return instantiate(config=config, **arguments)
        return importlib.import_module(f"{_HERE}.agent_loop").RepeatableSingleTurn(**arguments)

    module.hydra = SimpleNamespace(utils=SimpleNamespace(instantiate=directly))


def _order_replay_buffer(module: ModuleType) -> None:
    from dataflex_events.adapters.verl.cpu.replay_order import order_replay_buffer

    order_replay_buffer(module)


def _order_prompts(module: ModuleType) -> None:
    from dataflex_events.adapters.verl.cpu.prompt_order import order_prompts

    order_prompts(module)


def _count_cores_once(module: ModuleType) -> None:
    """TransferQueue asks the system before each transfer, of which there are several for every rollout."""
    module.psutil = SimpleNamespace(**vars(module.psutil) | {"cpu_count": functools.cache(module.psutil.cpu_count)})


def _register_checkpoint_engine(module: ModuleType) -> None:
    importlib.import_module(f"{_HERE}.checkpoint_engine")  # registers itself
