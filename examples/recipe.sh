#!/usr/bin/env bash
# Run one of the recipes, the files in recipes/.
#
#   examples/recipe.sh pods                              # 5 steps; on a GPU if there is one, else in the CPU lab
#   examples/recipe.sh pods trainer.total_training_steps=50 dataflex.actuator.params.keep_fraction=0.25
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
NAME=${1:-}
if [ ! -f "$here/recipes/$NAME.yaml" ]; then
    echo "usage: $0 RECIPE [OVERRIDE ...]; recipes: $(cd "$here/recipes" && echo *.yaml | sed 's/\.yaml//g')" >&2
    exit 2
fi
shift

OUT=${OUT:-runs/$NAME}
mkdir -p "$OUT"
# shellcheck source=examples/_lab_or_gpu.sh
source "$here/_lab_or_gpu.sh"
python -m verl.trainer.main_ppo --config-dir "$here/recipes" --config-name "$NAME" "${ARGS[@]}" "$@"
