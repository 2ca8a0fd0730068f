"""Draw what a Mix run did, as SVG: proportions and mean rewards of the domains over its steps.

VERL_FILE_LOGGER_PATH=run.jsonl examples/mix.sh trainer.total_training_steps=40 'trainer.logger=[console,file]'
python benchmarks/mix_curve.py run.jsonl docs/images/mix.svg
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, TOP, GAP = 360, 220, 48, 36, 70
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")


def read(file: Path, prefix: str) -> dict[str, list[tuple[int, float]]]:
    """Points `(step, value)` of each metric with this prefix, by the rest of its name."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for line in file.read_text().splitlines():
        record = json.loads(line)
        for name, value in record["data"].items():
            if name.startswith(prefix):
                curves.setdefault(name.removeprefix(prefix), []).append((record["step"], value))
    return curves


def panel(title: str, curves: dict[str, list[tuple[int, float]]], names: Sequence[str], left: int) -> list[str]:
    """One chart, with values from 0 to 1."""
    last = max(step for name in names for step, _ in curves.get(name, [(1, 0.0)]))

    def x(step: float) -> float:
        return left + (step - 1) / max(last - 1, 1) * WIDTH

    def y(value: float) -> float:
        return TOP + (1 - value) * HEIGHT

    parts = [f'<text x="{left}" y="{TOP - 14}" font-weight="bold">{escape(title)}</text>']
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f'<path d="M{left} {y(value):.1f}h{WIDTH}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    for step in sorted({1, *range(10, last + 1, 10)}):
        parts.append(f'<text x="{x(step):.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{step}</text>')
    for name, colour in zip(names, COLOURS, strict=False):
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in curves.get(name, []))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def draw(file: Path) -> str:
    """The picture of a run from verl's metrics file."""
    shares, rewards = read(file, "dataflex/prop_"), read(file, "dataflex/reward_")
    names = list(shares)[: len(COLOURS)]
    parts = panel("proportions", shares, names, LEFT)
    parts += panel("mean reward of the rollouts", rewards, names, LEFT + WIDTH + GAP)
    bottom = TOP + HEIGHT + 42
    for number, (name, colour) in enumerate(zip(names, COLOURS, strict=False)):
        at = LEFT + number * 120
        parts.append(f'<path d="M{at} {bottom}h24" stroke="{colour}" stroke-width="3"/>')
        parts.append(f'<text x="{at + 30}" y="{bottom + 4}">{escape(name)}</text>')
    parts.append(f'<text x="{LEFT + 2 * WIDTH + GAP}" y="{bottom + 4}" text-anchor="end">step</text>')
    size = f'width="{LEFT + 2 * WIDTH + GAP + 20}" height="{bottom + 20}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metrics", type=Path, help="verl's metrics file, one JSON object a line")
    parser.add_argument("picture", type=Path, help="SVG file to write")
    args = parser.parse_args()
    args.picture.write_text(draw(args.metrics))


if __name__ == "__main__":
    main()
