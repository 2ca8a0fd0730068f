"""What gates and refill do to the bill, in the CPU lab: the share of rollouts that teach, what is generated, the time.

    python benchmarks/draw_bill.py runs/bill --variants uniform learnability mopps --seeds 0 1 2 --steps 40

Every variant draws from the same prompts of the lab with the same seeds; `uniform` is verl's own draw, with a gate in
shadow so that the same counts are logged. Writes `bill.jsonl` into the folder, leaves out runs that are there already,
and prints a table: mean over seeds and, for the share, Student's 95% interval of the mean and of the difference to
`uniform`, seed by seed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dataflex_events.adapters.verl.cpu.lab import LabSettings, build_lab
from dataflex_events.adapters.verl.cpu.overrides import lab_environment, lab_overrides

BAND = "mechanism:select,scorer:{name:group_solve_rate},actuator:{name:threshold_band}"
VARIANTS = {
    "uniform": ["{mechanism:gate,actuator:{name:learnability},shadow:true}"],
    "learnability": ["{mechanism:gate,actuator:{name:learnability}}"],
    "mopps": ["{mechanism:gate,actuator:{name:mopps}}"],
    "greso": ["{mechanism:gate,actuator:{name:greso}}"],
    "difficulty_pools": ["{mechanism:gate,actuator:{name:difficulty_pools}}"],
    "refill_eager": ["{" + BAND + ",refill:{eager:true}}"],
    "refill_frugal": ["{" + BAND + ",refill:{eager:false}}"],
    "greso_refill": ["{mechanism:gate,actuator:{name:greso}}", "{" + BAND + ",refill:{eager:false}}"],
}
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""97.5% quantiles of Student's t by degrees of freedom."""


def run(folder: Path, variant: str, seed: int, steps: int, prompts: int, batch: int) -> dict[str, Any]:
    """One run of verl in the lab; the sums of its bill."""
    folder.mkdir(parents=True, exist_ok=True)
    log, metrics = folder / "log.txt", folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    arguments = [
        *lab_overrides(build_lab(LabSettings()), seed=seed),
        f"data.train_max_samples={prompts}",
        f"data.train_batch_size={batch}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={batch}",
        f"trainer.total_training_steps={steps}",
        "trainer.total_epochs=1000",
        "trainer.logger=[file]",
        "trainer.v1.trainer_mode=dataflex_sync",
        f"+dataflex.policies=[{','.join(VARIANTS[variant])}]",
        f"trainer.default_local_dir={folder}/checkpoints",
        f"hydra.run.dir={folder}/hydra",
    ]
    environment = {**os.environ, **lab_environment(), "VERL_FILE_LOGGER_PATH": str(metrics)}
    with log.open("w") as out:
        subprocess.run(
            [sys.executable, "-m", "verl.trainer.main_ppo", *arguments],
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            check=True,
        )
    lines = [json.loads(line)["data"] for line in metrics.read_text().splitlines()]
    rows = [line for line in lines if "training/global_step" in line]
    generated, useful = (sum(row[f"dataflex/rollouts_{name}"] for row in rows) for name in ("generated", "useful"))
    return {
        "variant": variant,
        "seed": seed,
        "steps": len(rows),
        "generated": generated,
        "useful": useful,
        "share": useful / generated,
        "reward": statistics.mean(row["dataflex/reward_before_select"] for row in rows)
        if "dataflex/reward_before_select" in rows[0]
        else statistics.mean(row["critic/rewards/mean"] for row in rows),
        "discarded": sum(row.get("training/filter_groups/discarded_surplus_samples", 0) for row in rows),
        "gen_seconds": statistics.median(row["timing_s/gen"] for row in rows),
        "step_seconds": statistics.median(row["timing_s/step"] for row in rows),
    }


def interval(values: Sequence[float]) -> str:
    """Mean and half the width of Student's 95% interval."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return f"{mean:.3f}"
    half = STUDENT[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:+.3f} +- {half:.3f}" if mean < 0 else f"{mean:.3f} +- {half:.3f}"


def table(results: Sequence[dict[str, Any]]) -> str:
    """The results of all runs as Markdown."""
    by_variant: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for result in results:
        by_variant[result["variant"]][result["seed"]] = result
    uniform = by_variant.get("uniform", {})
    lines = [
        "| variant | seeds | share of rollouts that teach | more than uniform | groups discarded as surplus "
        "| rollouts generated | useful | s generating, s a step (median) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for variant, runs in by_variant.items():
        both = [seed for seed in runs if seed in uniform]
        more = interval([runs[seed]["share"] - uniform[seed]["share"] for seed in both]) if both else ""

        def mean(name: str, runs: dict[int, dict[str, Any]] = runs) -> float:
            return statistics.mean(run[name] for run in runs.values())

        share = interval([result["share"] for result in runs.values()])
        lines.append(
            f"| {variant} | {len(runs)} | {share} | {more if variant != 'uniform' else ''} | {mean('discarded'):.0f} "
            f"| {mean('generated'):.0f} | {mean('useful'):.0f} | {mean('gen_seconds'):.1f}, {mean('step_seconds'):.1f} "
            "|"
        )
    return "\n".join(lines)


def main() -> None:
    """Make the runs that are missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["uniform", "learnability", "mopps"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--prompts", type=int, default=256, help="prompts of the data")
    parser.add_argument("--batch", type=int, default=32, help="prompts a step")
    args = parser.parse_args()
    folder = args.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "bill.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    there = {(result["variant"], result["seed"]) for result in results}
    for seed in args.seeds:
        for variant in args.variants:
            if (variant, seed) not in there:
                name = f"{variant}-{seed}"
                results.append(run(folder / name, variant, seed, args.steps, args.prompts, args.batch))
                with file.open("a") as out:
                    print(json.dumps(results[-1]), file=out)
    print(table(results))


if __name__ == "__main__":
    main()
