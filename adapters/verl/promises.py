"""What we rely on in verl and TransferQueue: names, parameters and texts, in one table.

`tests/adapters/test_contract.py` holds it complete: all that the adapter overrides in verl or imports from it is there.
"""

from __future__ import annotations

# Module -> `function(parameters)`, `Class.method(parameters)`, `Class` or `Class.attribute`. `self` is left out. With
# `...` at the end verl may add parameters that have a default; without it our override would not pass them on.
DEFINITIONS: dict[str, tuple[str, ...]] = {
    "verl.trainer.ppo.v1.trainer_base": (
        "register_trainer(name, ...)",
        "TRAINER_REGISTRY",
    ),
    # The class that our trainer derives from. What it inherits is looked up in its bases.
    "verl.trainer.ppo.v1.trainer_sync": (
        "PPOTrainerSync",
        # overridden
        "PPOTrainerSync.__init__(config)",
        "PPOTrainerSync.fit(agent_loop_manager)",
        "PPOTrainerSync._step_once(metrics, timing_raw, sample_batch_size)",
        "PPOTrainerSync._balance_batch(batch, metrics, ...)",
        "PPOTrainerSync._get_required_batch_multiple(dp_size)",
        "PPOTrainerSync._compute_old_log_prob(batch, metrics)",
        "PPOTrainerSync._compute_ref_log_prob(batch, metrics)",
        "PPOTrainerSync._compute_advantage(batch, metrics)",
        "PPOTrainerSync._update_actor(batch, metrics)",
        "PPOTrainerSync._update_critic(batch, metrics)",
        "PPOTrainerSync._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)",
        "PPOTrainerSync._init_dataloader()",
        "PPOTrainerSync._next_train_batch(num_prompts)",
        "PPOTrainerSync._build_replay_buffer()",
        "PPOTrainerSync._save_checkpoint()",
        "PPOTrainerSync._load_checkpoint()",
        # read
        "PPOTrainerSync.config",
        "PPOTrainerSync.use_critic",
        "PPOTrainerSync.global_steps",
        "PPOTrainerSync.local_trigger_step",
        "PPOTrainerSync.actor_rollout_wg",
        "PPOTrainerSync.critic_wg",
        "PPOTrainerSync.train_dataset",
        "PPOTrainerSync.train_dataloader",
        "PPOTrainerSync.train_dataloader_it",
        "PPOTrainerSync.total_training_steps",
    ),
    # which groups have ended, before any is thrown away
    "verl.trainer.ppo.v1.replay_buffer": (
        "ReplayBuffer._terminal_eviction_reasons(global_steps, partition_id)",
        "ReplayBuffer.finished_keys",
        "ReplayBuffer.failure_keys",
        "ReplayBuffer.partitions",
        # groups that a policy drops are replaced as those that verl's own filter drops
        "ReplayBuffer.sample(global_steps, partition_id, batch_size)",
        "ReplayBuffer._dapo_filtered_keys(partition_id)",
        "ReplayBuffer.refill_fn",
        "ReplayBuffer.filter_groups_metric",
        "ReplayBuffer.max_inflight_gen_batches",
    ),
    # how advantages are computed anew
    "verl.trainer.ppo.v1.utils": (
        "compute_advantage_for_multi_trajectories("
        "data, batch_keys, adv_estimator, gamma, lam, num_repeat, norm_adv_by_std_in_grpo, config, ...)",
    ),
    "verl.trainer.ppo.core_algos": ("POLICY_LOSS_REGISTRY",),
    "verl": ("DataProto.batch", "DataProto.non_tensor_batch"),
    "verl.trainer.ppo.utils": ("need_critic(config, ...)", "need_reference_policy(config, ...)"),
    "verl.utils.config": ("validate_config(config, use_reference_policy, use_critic, ...)",),
    "verl.protocol": ("BatchData.__init__(data, ...)", "BatchData.chunk(chunks, ...)"),
    "verl.utils.transferqueue_utils": (
        "kv_batch_meta2batch_meta(meta, ...)",
        "async_kv_batch_meta2batch_meta(meta, ...)",
        "_meta_to_realdata(meta, ...)",
        "_async_meta_to_realdata(meta, ...)",
    ),
    "verl.workers.engine_workers": ("ActorRolloutRefWorker.update_actor",),
    "transfer_queue": (
        "kv_batch_get(keys, partition_id, select_fields, ...)",
        "kv_batch_put(keys, partition_id, fields, ...)",
        "kv_clear(keys, partition_id, ...)",
        "kv_list(partition_id, ...)",
    ),
    "transfer_queue.metadata": (
        "KVBatchMeta.keys",
        "KVBatchMeta.tags",
        "KVBatchMeta.partition_id",
        "KVBatchMeta.fields",
        "KVBatchMeta.extra_info",
        "KVBatchMeta.select_keys(keys_to_select, ...)",
        "KVBatchMeta.reorder(indexes, ...)",
    ),
}

# Module -> keys by which it looks up what we write; a renamed one would be ignored in silence.
TEXTS: dict[str, tuple[str, ...]] = {
    # the columns of a step, and what sequence means are divided by
    "verl.workers.utils.losses": ("rollout_is_weights", "advantages", "response_mask", "global_batch_size"),
    # the shape of a step with dropped rows
    "verl.workers.engine_workers": ("mini_batch_size", "dataloader_kwargs"),
    "verl.workers.engine.utils": ("micro_batch_size_per_gpu",),
    # the tags of rows; how many prompts are fetched at once, and verl's own filter beside ours
    "verl.trainer.ppo.v1.trainer_base": ("is_padding", "gen_batch_size", "filter_groups", "max_inflight_gen_batches"),
    "verl.trainer.ppo.v1.agent_loop_tq": ("response_len",),
}
