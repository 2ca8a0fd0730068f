"""What verl has to be told to run on the lab: overrides for its command line and environment variables."""

from __future__ import annotations

from dataflex_events.adapters.verl.cpu.environment import ENVIRONMENT
from dataflex_events.adapters.verl.cpu.install import AGENT_NAME, CHECKPOINT_ENGINE, ROLLOUT_NAME
from dataflex_events.adapters.verl.cpu.lab import PROMPT_LENGTH, RESPONSE_LENGTH, Lab


def lab_environment() -> dict[str, str]:
    """Environment variables of a run. Only the first has to be set: the plugin sets the others."""
    return {"VERL_PLATFORM": "cpu", **ENVIRONMENT}


def lab_overrides(lab: Lab, *, ranks: int = 1, servers: int = 0, seed: int = 0) -> list[str]:
    """Hydra overrides for `python -m verl.trainer.main_ppo`; later ones on the command line win.

    Args:
        lab: Built by `build_lab`.
        ranks: Trainer processes (data parallel), each with a rollout server of its own.
        servers: Further rollout servers that do not wait for the trainer, for `trainer_mode=separate_async`.
        seed: Seed of the prompt order and of all sampling.
    """
    model, actor, rollout = "actor_rollout_ref.model", "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    float32 = "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}"
    separate = [f"{rollout}.nnodes=1", f"{rollout}.n_gpus_per_node={servers}"] if servers else []
    return [
        # hardware: Ray is told of as many GPUs as there are ranks, the platform runs them on the CPU
        "trainer.device=cpu",
        "trainer.nnodes=1",
        f"trainer.n_gpus_per_node={ranks}",
        f"+ray_kwargs.ray_init.num_gpus={ranks + servers}",
        "ray_kwargs.ray_init.num_cpus=8",
        "+ray_kwargs.ray_init.include_dashboard=false",
        "+ray_kwargs.ray_init.object_store_memory=300000000",
        "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        # data
        f"data.train_files={lab.train}",
        f"data.val_files={lab.held_out}",
        "data.train_batch_size=32",
        f"data.max_prompt_length={PROMPT_LENGTH}",
        f"data.max_response_length={RESPONSE_LENGTH}",
        "data.dataloader_num_workers=0",
        f"data.seed={seed}",
        # model and trainer; bfloat16, verl's default, is too coarse for steps of this size
        f"{model}.path={lab.model}",
        f"+{model}.override_config.attn_implementation=sdpa",
        f"{model}.use_remove_padding=False",
        f"{model}.enable_gradient_checkpointing=False",
        f"{actor}.strategy=fsdp2",
        f"{actor}.use_torch_compile=False",
        f"{actor}.fsdp_config.use_torch_compile=False",
        f"+{actor}.fsdp_config.mixed_precision={float32}",
        f"+actor_rollout_ref.ref.fsdp_config.mixed_precision={float32}",
        f"{actor}.ppo_mini_batch_size=32",
        # micro-batches by tokens: any number of rows fits, and a lab batch is one micro-batch
        f"{actor}.use_dynamic_bsz=True",
        f"{actor}.ppo_max_token_len_per_gpu=16384",
        f"{actor}.optim.lr=4e-4",
        f"{actor}.use_kl_loss=False",
        "algorithm.adv_estimator=grpo",
        # rollouts
        f"{rollout}.name={ROLLOUT_NAME}",
        f"{rollout}.agent.default_agent_loop={AGENT_NAME}",
        f"{rollout}.agent.num_workers=1",
        f"{rollout}.checkpoint_engine.backend={CHECKPOINT_ENGINE}",
        f"{rollout}.tensor_model_parallel_size=1",
        f"{rollout}.max_num_seqs=64",
        f"{rollout}.router_config_path={lab.router}",
        f"{rollout}.n=8",
        f"{rollout}.seed={seed}",
        f"{rollout}.val_kwargs.do_sample=True",
        f"{rollout}.val_kwargs.temperature=1.0",
        *separate,
        # reward
        "reward.num_workers=1",
        f"reward.custom_reward_function.path={lab.reward}",
        "reward.custom_reward_function.name=compute_score",
        # bookkeeping
        "trainer.logger=[console]",
        "trainer.val_before_train=False",
        "trainer.test_freq=-1",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        "trainer.project_name=dataflex_lab",
        "trainer.experiment_name=lab",
    ]
