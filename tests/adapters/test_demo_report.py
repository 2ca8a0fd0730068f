"""What the demo says, from metrics that are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataflex_events.adapters.verl.commands._demo_report import print_step, shares, summary
from dataflex_events.adapters.verl.commands._demo_run import METRICS

pytestmark = pytest.mark.verl

DRAWN = [{"sort": 0.25, "a/b": 0.75}, {"sort": 0.5, "a/b": 0.5}, {"sort": 0.625, "a/b": 0.375}]
GENERATED = [{"sort": 64, "a/b": 192}, {"sort": 128, "a/b": 128}, {"sort": 160, "a/b": 96}]


def mixed(number: int) -> dict[str, float]:
    drawn = {f"dataflex/prop_{name}": share for name, share in DRAWN[number].items()}
    generated = {f"dataflex/domain/{name}/generated": float(count) for name, count in GENERATED[number].items()}
    return {"critic/score/mean": 0.4 + number / 10, "actor/grad_norm": 1.0, **drawn, **generated}


def selected(number: int) -> dict[str, float]:
    rewards = {"dataflex/reward_before_select": 0.2 + number / 10, "critic/score/mean": 0.9}
    return {**rewards, "dataflex/kept_frac": 0.25 * (number + 1), "actor/grad_norm": 1.0}


def weighed(number: int) -> dict[str, float]:
    return {"dataflex/weight_min": 0.5, "dataflex/weight_max": 2.0 + number, "dataflex/weight_mean": 1.0}


def summary_of(folder: Path, *steps: dict[str, Any]) -> list[str]:
    records = [{"step": 0, "data": {"val-core/lab/sort/acc/mean@1": 0.25, "val-core/lab/add/acc/mean@1": 0.75}}]
    for number, metrics in enumerate(steps, 1):
        records.append({"step": number, "data": {"training/global_step": number, **metrics}})
    records[-1]["data"] |= {"val-core/lab/sort/acc/mean@1": 0.5, "val-core/lab/add/acc/mean@1": 1.0}
    (folder / METRICS).write_text("".join(json.dumps(record) + "\n" for record in records))
    return summary(folder).splitlines()


def test_mix(tmp_path: Path) -> None:
    lines = summary_of(tmp_path, *map(mixed, range(3)))
    assert lines[1:8] == [
        "held-out pass rate     0.500 -> 0.750",
        "  sort                 0.250 -> 0.500",
        "  add                  0.750 -> 1.000",
        "prompts by domain      share in the first and the last step, rollouts generated in all",
        "  sort                 0.250 -> 0.625     352",
        "  a/b                  0.750 -> 0.375     416",
        "",
    ]


def gated(number: int) -> dict[str, float]:
    bill = {"dataflex/rollouts_generated": 64.0, "dataflex/rollouts_useful": 16.0 * (number + 1)}
    return {"critic/score/mean": 0.5, **bill, "dataflex/gate/drawn": 8.0, "dataflex/gate/skipped": 5.0 * number}


def test_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = summary_of(tmp_path, *map(gated, range(3)))
    assert lines[4:6] == [
        "rollouts that taught   25% -> 75%   (first and last 1 step)",
        "prompts                24 generated, 15 passed over by the gate",
    ]
    print_step({"step": 2, "data": gated(1)})
    assert capsys.readouterr().out == "step   2  reward 0.50  rollouts that taught 0.50\n"


def test_select_and_reweight(tmp_path: Path) -> None:
    lines = summary_of(tmp_path, *({**selected(number), **weighed(number)} for number in range(3)))
    assert lines[4:7] == [
        "reward of rollouts     0.200 -> 0.400   (first and last step)",
        "rollouts trained on    50%",
        "token weights          0.50 to 4.00, mean 1.00",
    ]
    assert not any("domain" in line for line in lines)


def test_everything(tmp_path: Path) -> None:
    lines = summary_of(
        tmp_path, *({**mixed(number), **selected(number), "dataflex/verified": 1.0} for number in range(2))
    )
    text = "\n".join(lines)
    assert "  sort                 0.250 -> 0.500     192" in lines
    assert "rollouts trained on    38%" in lines
    assert "verified               2 times" in text
    assert "reward of rollouts" not in text, "the last step's rollouts are of other domains than the first's"


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        (mixed(1), "step   7  reward 0.50  gradient norm 1.00  drawn sort 0.50 a/b 0.50"),
        (selected(1), "step   7  reward 0.30  rollouts kept 0.50  gradient norm 1.00"),
        (weighed(1), "step   7  largest weight 3.00"),
        ({"val-core/lab/sort/acc/mean@1": 0.25}, "step   7  held-out pass rate 0.250"),
    ],
    ids=["mix", "select", "reweight", "validation"],
)
def test_the_line_of_a_step(metrics: dict[str, float], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_step({"step": 7, "data": metrics})
    assert capsys.readouterr().out == f"{line}\n"


def test_shares_keep_the_names_of_domains() -> None:
    assert shares({"dataflex/prop_min/max sum": 0.5, "dataflex/reward_sort": 1.0}) == {"min/max sum": 0.5}
