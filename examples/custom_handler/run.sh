#!/usr/bin/env bash
# A scorer and an observer of your own, from my_handlers.py next to this file, named in the block by import strings.
#
#   examples/custom_handler/run.sh                       # 5 steps; on a GPU if there is one, else in the CPU lab
set -euo pipefail

OUT=${OUT:-runs/custom_handler}
mkdir -p "$OUT"
cat > "$OUT/custom_handler.yaml" << 'YAML'
defaults: [ppo_trainer, _self_]
trainer: {v1: {trainer_mode: dataflex_sync}}
dataflex:
  mechanism: reweight
  scorer: {name: "my_handlers:Brevity", params: {free_tokens: 2}}
  actuator: {name: softmax, params: {temperature: 0.5}}
  handlers: ["my_handlers:WrongAnswers"]
  tensorboard: {histograms_every: 1}
YAML

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$here${PYTHONPATH:+:$PYTHONPATH} # every process of the run must find my_handlers
# shellcheck source=examples/_lab_or_gpu.sh
source "$here/../_lab_or_gpu.sh"
python -m verl.trainer.main_ppo --config-dir "$OUT" --config-name custom_handler "${ARGS[@]}" "$@"
