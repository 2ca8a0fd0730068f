#!/usr/bin/env bash
# Reweight: rollouts with a large advantage count more in the policy loss. The weights have mean 1 over all tokens, so the
# step size stays.
#
#   examples/reweight.sh                                 # 5 steps; on a GPU if there is one, else in the CPU lab
#   examples/reweight.sh trainer.total_training_steps=50 dataflex.actuator.params.temperature=2.0
set -euo pipefail

OUT=${OUT:-runs/reweight}
mkdir -p "$OUT"
cat > "$OUT/reweight.yaml" << 'YAML'
defaults: [ppo_trainer, _self_]
trainer: {v1: {trainer_mode: dataflex_sync}}
dataflex:
  mechanism: reweight
  scorer: {name: advantage_magnitude, params: {agg: mean}}
  actuator: {name: softmax, params: {temperature: 1.0}}
  tensorboard: {histograms_every: 1}
YAML

# shellcheck source=examples/_lab_or_gpu.sh
source "$(dirname "${BASH_SOURCE[0]}")/_lab_or_gpu.sh"
python -m verl.trainer.main_ppo --config-dir "$OUT" --config-name reweight "${ARGS[@]}" "$@"
