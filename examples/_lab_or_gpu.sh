# shellcheck shell=bash disable=SC2034 # what is set here is used by the script that sources this file
# Sourced by the examples. Expects OUT, the folder for everything that the run writes. Sets ARGS, verl's arguments, and
# DEVICE, `gpu` or `cpu`:
#   with a GPU     verl's GRPO smoke test: Qwen2.5-0.5B-Instruct on GSM8K, rollouts with vLLM.
#                  Environment: MODEL (name or folder), DATA (folder of verl's GSM8K files), GPUS (number of GPUs).
#   without a GPU  the CPU lab, a tiny model with tasks of its own. It is built on first use, which takes about a minute.
#                  Environment: LAB_OPTIONS=--tiny builds a smaller one in seconds.

OUT=$(cd "$OUT" && pwd) # the processes of the run do not share a working folder
export TENSORBOARD_DIR=$OUT/tensorboard

if command -v nvidia-smi > /dev/null && nvidia-smi -L 2> /dev/null | grep -q '^GPU'; then
    DEVICE=gpu
    MODEL=${MODEL:-Qwen/Qwen2.5-0.5B-Instruct}
    DATA=${DATA:-$HOME/data/gsm8k}
    ARGS=(
        algorithm.adv_estimator=grpo
        data.train_files="$DATA/train.parquet"
        data.val_files="$DATA/test.parquet"
        data.train_batch_size=64
        data.max_prompt_length=512
        data.max_response_length=512
        actor_rollout_ref.model.path="$MODEL"
        actor_rollout_ref.model.use_remove_padding=True
        actor_rollout_ref.actor.optim.lr=1e-6
        actor_rollout_ref.actor.ppo_mini_batch_size=64
        actor_rollout_ref.actor.use_dynamic_bsz=True
        actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384
        actor_rollout_ref.actor.use_kl_loss=False
        actor_rollout_ref.rollout.name=vllm
        actor_rollout_ref.rollout.tensor_model_parallel_size=1
        actor_rollout_ref.rollout.gpu_memory_utilization=0.5
        actor_rollout_ref.rollout.n=8
        trainer.nnodes=1
        trainer.n_gpus_per_node="${GPUS:-1}"
        trainer.val_before_train=False
        trainer.test_freq=-1
        trainer.save_freq=-1
        trainer.resume_mode=disable
    )
else
    DEVICE=cpu
    export VERL_PLATFORM=cpu # the lab sets the other variables that it needs
    # shellcheck disable=SC2086 # LAB_OPTIONS may hold several options, or none
    lab=$(python -m dataflex_events.adapters.verl.cpu.lab --print-overrides ${LAB_OPTIONS:-})
    ARGS=()
    while IFS= read -r argument; do ARGS+=("$argument"); done <<< "$lab"
fi

ARGS+=(
    trainer.total_training_steps=5
    "trainer.logger=[console,tensorboard]"
    trainer.project_name=dataflex_examples
    trainer.experiment_name="$(basename "$OUT")"
    trainer.default_local_dir="$OUT/checkpoints"
    hydra.run.dir="$OUT/hydra"
)
