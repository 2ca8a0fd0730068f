#!/usr/bin/env bash
# Gate: prompts whose rollouts had all the same outcome when they were generated last are hardly generated again; what is
# left of groups like that is replaced by fresh prompts, so that every batch is full.
#
#   examples/gate.sh                                     # 5 steps; on a GPU if there is one, else in the CPU lab
#   examples/gate.sh trainer.total_training_steps=50 dataflex.policies.gate.actuator.params.explore=0.2
set -euo pipefail

OUT=${OUT:-runs/gate}
mkdir -p "$OUT"
cat > "$OUT/gate.yaml" << 'YAML'
defaults: [ppo_trainer, _self_]
trainer: {v1: {trainer_mode: dataflex_sync}}
dataflex:
  policies:
    gate:
      mechanism: gate
      actuator: {name: learnability, params: {explore: 0.1}}
    band:
      mechanism: select
      scorer: {name: group_solve_rate}
      actuator: {name: threshold_band, params: {low: 0.0, high: 1.0}}
      refill: {eager: true, max_generated_factor: 10}
YAML

# shellcheck source=examples/_lab_or_gpu.sh
source "$(dirname "${BASH_SOURCE[0]}")/_lab_or_gpu.sh"
if [ "$DEVICE" = cpu ]; then
    ARGS+=(data.train_max_samples=256 trainer.total_epochs=100) # so that prompts come back within a short run
fi
python -m verl.trainer.main_ppo --config-dir "$OUT" --config-name gate "${ARGS[@]}" "$@"
