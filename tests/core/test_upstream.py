"""DataFlex-RL's blocks for Select and Reweight: they run as they are, and say what differs.

The blocks are those of its README, documentation, examples and experiments, as YAML or as the overrides of a script.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import yaml

from dataflex_events import RunFacts, StepDriver, StepId
from dataflex_events.plan import make_plan
from dataflex_events.testing import make_batch
from dataflex_events.upstream import differences


def block(text: str) -> dict[str, Any]:
    """A block in YAML, or as the overrides `+dataflex.a.b=1` of a script."""
    if not text.lstrip().startswith("+"):
        return dict(yaml.safe_load(text))
    found: dict[str, Any] = {}
    for override in text.split():
        path, _, value = override.removeprefix("+dataflex.").partition("=")
        *parents, key = path.split(".")
        inner = found
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[key] = yaml.safe_load(value)
    return found


RATE = "+dataflex.scorer.name=group_solve_rate +dataflex.scorer.params.success_threshold=0.5"
BAND = f"+dataflex.mechanism=select {RATE} +dataflex.actuator.name=threshold_band"
OF_REWARD = "+dataflex.mechanism=select +dataflex.scorer.name=reward_difficulty"
MAGNITUDE = "+dataflex.mechanism=reweight +dataflex.scorer.name=advantage_magnitude"
NOW = "+dataflex.warmup_step=0"

# Two prompts of four rollouts: rewards 1, 0, 0, 0 and 1, 1, 1, 1; three tokens each.
REWARDS = [[1, 0, 0, 0], [1, 1, 1, 1]]
PROBS = [[0.1, 0.5, 0.9]] * 8

# By name: the block, and by hand the rows that stay or the mean weight of the first token of rows 0, 1 and 4.
BLOCKS: dict[str, tuple[str, Any]] = {
    # README and the pages of its documentation
    "README reweight": (
        "{mechanism: reweight, scorer: {name: advantage_magnitude, params: {agg: mean}}, "
        "actuator: {name: softmax, params: {temperature: 1.0}}, warmup_step: 0}",
        # e^.75, e^.25 three times, e^0 four times; mean (2.1170 + 3 * 1.2840 + 4) / 8 = 1.24614
        [2.1170 / 1.24614, 1.2840 / 1.24614, 1 / 1.24614],
    ),
    "README select": (
        "{mechanism: select, scorer: {name: group_solve_rate, params: {success_threshold: 0.5}}, "
        "actuator: {name: threshold_band, params: {low: 0.0, high: 1.0}}}",
        [0, 1, 2, 3],
    ),
    "guide, advantage_reweight": (
        "{mechanism: reweight, scorer: {name: token_prob}, "
        "actuator: {name: advantage_reweight, params: {alpha: 0.5}}, warmup_step: 0}",
        [0.55, 0.55, 0.55],
    ),
    "guide, reweighter tutorial": (
        "{mechanism: reweight, scorer: {name: advantage_magnitude}, "
        "actuator: {name: softmax, params: {temperature: 1.0}}}",
        [2.1170 / 1.24614, 1.2840 / 1.24614, 1 / 1.24614],
    ),
    "guide, difficulty_filtering": (
        "{mechanism: select, scorer: {name: group_solve_rate, params: {success_threshold: 0.5}}, "
        "actuator: {name: threshold_band, params: {low: 0.2, high: 0.8}}, warmup_step: 0}",
        [0, 1, 2, 3],
    ),
    # examples/run_*_grpo.sh, and the same in experiments/run_all.sh
    "run_select_grpo.sh": (
        f"{BAND} +dataflex.actuator.params.low=0.0 +dataflex.actuator.params.high=1.0 {NOW}",
        [0, 1, 2, 3],
    ),
    "run_reweight_grpo.sh": (
        f"{MAGNITUDE} +dataflex.scorer.params.agg=mean +dataflex.actuator.name=softmax "
        f"+dataflex.actuator.params.temperature=1.0 {NOW}",
        [2.1170 / 1.24614, 1.2840 / 1.24614, 1 / 1.24614],
    ),
    # experiments/gen_jobs.sh, and the same in run_all_7b.sh, run_seeds_7b.sh, run_local_6.sh and run_new_algos_7b.sh
    "ar": (
        "+dataflex.mechanism=reweight +dataflex.scorer.name=token_prob +dataflex.actuator.name=advantage_reweight "
        f"+dataflex.actuator.params.alpha=0.5 {NOW}",
        [0.55, 0.55, 0.55],
    ),
    "difffilter": (
        f"{BAND} +dataflex.actuator.params.low=0.2 +dataflex.actuator.params.high=0.8 {NOW}",
        [0, 1, 2, 3],
    ),
    "gfpo": (
        f"{OF_REWARD} +dataflex.actuator.name=gfpo +dataflex.actuator.params.k=3 "
        f"+dataflex.actuator.params.metric=efficiency {NOW}",
        [0, 1, 2, 4, 5, 6],
    ),
    "maxvar": (
        f"{OF_REWARD} +dataflex.actuator.name=max_variance +dataflex.actuator.params.keep_fraction=0.5 {NOW}",
        [0, 1, 4, 5],
    ),
    "topk": (  # too late to drop rows: they get weight 0, and four of eight are scaled up to 2
        "+dataflex.mechanism=select +dataflex.scorer.name=advantage_magnitude +dataflex.actuator.name=topk_fraction "
        f"+dataflex.actuator.params.fraction=0.5 {NOW}",
        [2.0, 2.0, 0.0],
    ),
    "per": (  # square roots of .75, .25 three times, 0 four times: .86603, .5, 0; mean 2.36603 / 8 = .295753
        f"{MAGNITUDE} +dataflex.actuator.name=per_advantage +dataflex.actuator.params.alpha=0.5 {NOW}",
        [0.86603 / 0.295753, 0.5 / 0.295753, 0.0],
    ),
    "softmax": (
        f"{MAGNITUDE} +dataflex.actuator.name=softmax +dataflex.actuator.params.temperature=1.0 {NOW}",
        [2.1170 / 1.24614, 1.2840 / 1.24614, 1 / 1.24614],
    ),
    "diffband": (  # rewards 0, 0, 0, 1, ...: quantiles 0 and 1, all inside
        "+dataflex.mechanism=reweight +dataflex.scorer.name=reward_difficulty "
        f"+dataflex.actuator.name=difficulty_band {NOW}",
        [1.0, 1.0, 1.0],
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_dataflex_rl_runs_as_it_is(name: str) -> None:
    text, expected = BLOCKS[name]
    plan = make_plan(block(text))
    driver = StepDriver(plan.bus(), RunFacts(rollouts_per_prompt=4), baseline=plan.baseline)
    batch = make_batch(REWARDS, tokens={"old_log_probs": torch.tensor(PROBS).log().tolist()})
    result = driver.step(StepId(1), batch)
    if plan.drops:
        assert result.keep is not None and result.keep.nonzero().flatten().tolist() == expected
        assert result.weights is None
    else:
        assert result.keep is None and result.weights is not None
        assert result.weights[[0, 3, 12]].tolist() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 1 for the kept group, 0 for the other, and nothing is scaled up
        ("{SELECT, apply: weight, normalize: none}", [[1.0], [1.0, 1.0], [1.0, 1.0, 1.0], [0.0]]),
        # magnitudes 2/3, 1/3, 1/3, 0: roots .81650, .57735, .57735, 0 have the mean .49280 over rows
        ("{PER, normalize: row}", [[1.65686], [1.17158] * 2, [1.17158] * 3, [0.0]]),
        # alpha .5 makes .55 of .1 and .95 of .9; over the seven tokens they have the mean (5 * .55 + 2 * .95) / 7
        ("{AR, normalize: token}", [[0.82796], [0.82796, 1.43011], [0.82796] * 3, [1.43011]]),
    ],
    ids=["select", "per_advantage", "advantage_reweight"],
)
def test_what_to_add_for_its_numbers(text: str, expected: list[list[float]]) -> None:
    """As docs/migration.md says; a prompt with three rollouts of 1, 2 and 3 tokens, and one with a lone token."""
    short = {
        "SELECT": "mechanism: select, scorer: {name: group_solve_rate}, actuator: {name: threshold_band}",
        "PER": "mechanism: reweight, scorer: {name: advantage_magnitude}, actuator: {name: per_advantage}",
        "AR": "mechanism: reweight, scorer: {name: token_prob}, "
        "actuator: {name: advantage_reweight, params: {alpha: 0.5}}",
    }
    for name, words in short.items():
        text = text.replace(f"{{{name},", f"{{{words},")
    probs = torch.tensor([0.1, 0.1, 0.9, 0.1, 0.1, 0.1, 0.9]).log().split([1, 2, 3, 1])
    batch = make_batch(
        [[1, 0, 0], [1]],
        lengths=[1, 2, 3, 1],
        tokens={"old_log_probs": [part.tolist() for part in probs]},
    )
    plan = make_plan(block(text))
    result = StepDriver(plan.bus(), RunFacts(), baseline=plan.baseline).step(StepId(1), batch)
    assert result.keep is None and result.weights is not None
    assert result.weights.tolist() == pytest.approx([value for row in expected for value in row], abs=1e-4)


def said(text: str) -> list[str]:
    """The topics of what differs."""
    found = block(text)
    return [line.split(":")[0] for line in differences(make_plan(found), found)]


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("README reweight", ["reweight", "softmax"]),
        ("README select", ["select", "group_solve_rate"]),
        ("ar", ["reweight", "advantage_reweight"]),
        ("difffilter", ["select", "group_solve_rate", "threshold_band"]),
        ("gfpo", ["select", "select", "reward_difficulty"]),
        ("maxvar", ["select", "select", "reward_difficulty", "max_variance"]),
        ("topk", ["select", "topk_fraction"]),
        ("per", ["reweight", "per_advantage"]),
        ("diffband", ["reweight", "reward_difficulty", "difficulty_band"]),
    ],
)
def test_what_differs_for_a_block(name: str, topics: list[str]) -> None:
    assert said(BLOCKS[name][0]) == topics


AR = "mechanism: reweight, scorer: {name: token_prob}, actuator: {name: advantage_reweight"
GFPO = "mechanism: select, scorer: {name: reward_difficulty}, actuator: {name: gfpo, params: {k: 3}}"


def test_what_the_block_says_itself_does_not_differ() -> None:
    plain = block(f"{{{AR}}}}}")
    assert differences(make_plan(plain), plain) == [
        "reweight: weights multiply verl's importance weights, theirs replace them",
        "advantage_reweight: alpha is 0.2, theirs 0.5",
        "advantage_reweight: weights are as they are, theirs are divided by their mean (`normalize: token`)",
    ]
    assert said(f"{{{AR}, params: {{alpha: 0.2}}}}}}") == ["reweight", "advantage_reweight"]
    assert said(f"{{{AR}, params: {{alpha: 0.5}}}}, normalize: token}}") == ["reweight"]
    assert said(f"{{{GFPO}, advantages: full}}") == ["select", "reward_difficulty"]
    assert said(f"{{{GFPO}, advantages: full, apply: weight, normalize: none}}") == ["reward_difficulty"]


def test_when_a_policy_acts_is_mentioned_only_if_the_block_says_when() -> None:
    assert said(f"{{{GFPO}, advantages: full, apply: weight, normalize: none, warmup_step: 5, update_step: 2}}") == [
        "reward_difficulty",
        "warmup_step",
        "update_step",
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"{{policies: [{{{GFPO}}}]}}",
        "{mechanism: select, scorer: {name: reward}, actuator: {name: threshold_band}}",
        "{mechanism: select, scorer: {name: token_entropy}, actuator: {name: top_entropy_tokens}}",
    ],
    ids=["not its form", "not its scorer", "not its actuator"],
)
def test_a_block_that_was_not_written_for_it(text: str) -> None:
    assert said(text) == []


def test_no_block() -> None:
    assert differences(make_plan({"policies": [block(BLOCKS["ar"][0])]}), None) == []
