#!/usr/bin/env bash
# Select: train only on prompts that some rollouts solve and some do not (the filter of DAPO). The other rows leave the
# batch before log-probs and update, so their compute is saved.
#
#   examples/select.sh                                   # 5 steps; on a GPU if there is one, else in the CPU lab
#   examples/select.sh trainer.total_training_steps=50 dataflex.actuator.params.low=0.2
set -euo pipefail

OUT=${OUT:-runs/select}
mkdir -p "$OUT"
cat > "$OUT/select.yaml" << 'YAML'
defaults: [ppo_trainer, _self_]
trainer: {v1: {trainer_mode: dataflex_sync}}
dataflex:
  mechanism: select
  scorer: {name: group_solve_rate, params: {success_threshold: 0.5}}
  actuator: {name: threshold_band, params: {low: 0.0, high: 1.0}}
YAML

# shellcheck source=examples/_lab_or_gpu.sh
source "$(dirname "${BASH_SOURCE[0]}")/_lab_or_gpu.sh"
python -m verl.trainer.main_ppo --config-dir "$OUT" --config-name select "${ARGS[@]}" "$@"
