"""What the demo says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dataflex_events.adapters.verl.commands._demo_run import LOG, METRICS, TENSORBOARD
from dataflex_events.adapters.verl.cpu.lab import Lab

GENERATED, USEFUL = "dataflex/rollouts_generated", "dataflex/rollouts_useful"


def introduction(lab: Lab, block: str, steps: int) -> str:
    """What is about to be trained, and the YAML that decides what counts."""
    rates = ", ".join(f"{domain} {rate:.0%}" for domain, rate in lab.solve_rates.items())
    indented = "".join(f"    {line}" for line in block.splitlines(keepends=True))
    return (
        f"The model solves before training: {rates}.\n"
        f"verl trains it for {steps} steps of GRPO, with this in its configuration:\n\n{indented}\n"
        "Starting Ray and verl takes about half a minute ..."
    )


def print_step(record: dict[str, Any]) -> None:
    """One line for a step, one for a validation."""
    metrics = record["data"]
    parts = [f"step {record['step']:3d}"]
    reward = "dataflex/reward_before_select"
    shown = {
        "reward": reward if reward in metrics else "critic/score/mean",  # of all that was generated
        "rollouts kept": "dataflex/kept_frac",
        "largest weight": "dataflex/weight_max",
        "gradient norm": "actor/grad_norm",
    }
    parts += [f"{label} {metrics[name]:.2f}" for label, name in shown.items() if name in metrics]
    if USEFUL in metrics:
        parts.append(f"rollouts that taught {metrics[USEFUL] / metrics[GENERATED]:.2f}")
    if drawn := shares(metrics):
        parts.append("drawn " + " ".join(f"{domain} {share:.2f}" for domain, share in drawn.items()))
    held_out = pass_rate(metrics)
    if held_out is not None:
        parts.append(f"held-out pass rate {held_out:.3f}")
    print("  ".join(parts), flush=True)


def pass_rate(metrics: dict[str, Any]) -> float | None:
    """Mean held-out pass rate over the domains, which all have as many prompts; None if nothing was validated."""
    rates = list(pass_rates(metrics).values())
    return sum(rates) / len(rates) if rates else None


def pass_rates(metrics: dict[str, Any]) -> dict[str, float]:
    """Held-out pass rate by domain."""
    prefix, suffix = "val-core/", "/acc/mean@1"
    return {
        name[len(prefix) : -len(suffix)].removeprefix("lab/"): value
        for name, value in metrics.items()
        if name.startswith(prefix) and name.endswith(suffix)
    }


def shares(metrics: dict[str, Any]) -> dict[str, float]:
    """The share of each domain in the prompts of a step; nothing without Mix."""
    prefix = "dataflex/prop_"
    return {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}


def summary(out: Path) -> str:
    """What the run did, from the metrics that verl logged."""
    records = [json.loads(line)["data"] for line in (out / METRICS).read_text().splitlines()]
    steps = [record for record in records if "training/global_step" in record]
    validations = [pass_rates(record) for record in records if pass_rates(record)]
    lines = [""]
    if len(validations) > 1:
        before, after = validations[0], validations[-1]
        lines.append(f"held-out pass rate     {_mean(before.values()):.3f} -> {_mean(after.values()):.3f}")
        lines += [f"  {domain:20s} {before[domain]:.3f} -> {after[domain]:.3f}" for domain in before]
    lines += _mix(steps)
    lines += _bill(steps)
    rewards = [step["dataflex/reward_before_select"] for step in steps if "dataflex/reward_before_select" in step]
    if rewards and not shares(steps[0]):  # of other domains, rewards are others
        lines.append(f"reward of rollouts     {rewards[0]:.3f} -> {rewards[-1]:.3f}   (first and last step)")
    kept = [step["dataflex/kept_frac"] for step in steps if "dataflex/kept_frac" in step]
    if kept:
        lines.append(f"rollouts trained on    {_mean(kept):.0%}")
    weighed = [step for step in steps if "dataflex/weight_max" in step]
    if weighed:
        low = min(step["dataflex/weight_min"] for step in weighed)
        high = max(step["dataflex/weight_max"] for step in weighed)
        mean = _mean(step["dataflex/weight_mean"] for step in weighed)
        lines.append(f"token weights          {low:.2f} to {high:.2f}, mean {mean:.2f}")
    verified = sum(step.get("dataflex/verified", 0) for step in steps)
    if verified:
        lines.append(f"verified               {verified:.0f} times: the workers' batch was read back and compared")
    lines += [
        "",
        f"TensorBoard            tensorboard --logdir {out / TENSORBOARD}",
        f"verl's own log         {out / LOG}",
    ]
    return "\n".join(lines)


def _mix(steps: Sequence[dict[str, Any]]) -> list[str]:
    first, last = (shares(steps[at]) if steps else {} for at in (0, -1))
    if not first:
        return []
    generated = {name: sum(step.get(f"dataflex/domain/{name}/generated", 0) for step in steps) for name in first}
    return [
        "prompts by domain      share in the first and the last step, rollouts generated in all",
        *(f"  {name:20s} {first[name]:.3f} -> {last[name]:.3f}   {generated[name]:5.0f}" for name in first),
    ]


def _bill(steps: Sequence[dict[str, Any]]) -> list[str]:
    billed = [step for step in steps if USEFUL in step]
    if not billed:
        return []
    third = max(1, len(billed) // 3)
    first, last = (
        sum(step[USEFUL] for step in part) / sum(step[GENERATED] for step in part)
        for part in (billed[:third], billed[-third:])
    )
    lines = [f"rollouts that taught   {first:.0%} -> {last:.0%}   (first and last {third} step{'s' * (third > 1)})"]
    if any("dataflex/gate/skipped" in step for step in billed):
        drawn, skipped = (sum(step.get(f"dataflex/gate/{name}", 0) for step in billed) for name in ("drawn", "skipped"))
        lines.append(f"prompts                {drawn:.0f} generated, {skipped:.0f} passed over by the gate")
    return lines


def failure(out: Path, code: int) -> str:
    """The end of verl's log, and where the rest is."""
    log = out / LOG
    tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
    return f"{tail}\n\nverl ended with exit status {code}; its log is {log}"


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
