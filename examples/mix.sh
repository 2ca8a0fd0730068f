#!/usr/bin/env bash
# Mix: more prompts are drawn from the domains whose rollouts have large advantages, that is from those that the model
# solves sometimes, and from those that were rarely tried. A domain is a value of the data's column `domain`: on a GPU
# GSM8K's short and long questions, in the lab its four kinds of tasks.
#
#   examples/mix.sh                                      # 5 steps; on a GPU if there is one, else in the CPU lab
#   examples/mix.sh trainer.total_training_steps=50 dataflex.actuator.params.temperature=0.5
set -euo pipefail

OUT=${OUT:-runs/mix}
mkdir -p "$OUT"
cat > "$OUT/mix.yaml" << 'YAML'
defaults: [ppo_trainer, _self_]
trainer: {v1: {trainer_mode: dataflex_sync}}
dataflex:
  mechanism: mix
  domain_key: domain
  scorer: {name: group_advantage}
  actuator: {name: dump_ucb, params: {temperature: 0.1}}
YAML

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=examples/_lab_or_gpu.sh
source "$here/_lab_or_gpu.sh"
if [ "$DEVICE" = gpu ]; then
    python "$here/data/gsm8k_by_length.py" "$DATA" "$OUT/data"
    ARGS+=(data.train_files="$OUT/data/train.parquet" data.val_files="$OUT/data/test.parquet")
fi
python -m verl.trainer.main_ppo --config-dir "$OUT" --config-name mix "${ARGS[@]}" "$@"
