"""What a plan will do, in plain words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataflex_events import RunFacts, StepEnd, make_plan, on
from dataflex_events.describe import WIDTH, describe

SELECT: dict[str, Any] = {
    "mechanism": "select",
    "scorer": {"name": "reward"},
    "actuator": {"name": "threshold_band", "params": {"low": 0.2, "high": 0.8}},
}
REWEIGHT: dict[str, Any] = {
    "mechanism": "reweight",
    "scorer": {"name": "advantage_magnitude"},
    "actuator": {"name": "softmax", "params": {"temperature": 2.0}},
}


@on(StepEnd, fields=["response_mask"])
def watch(event: StepEnd) -> None: ...


def described(run: RunFacts | None = None, **block: Any) -> str:
    """The description in one line, so that it does not matter where lines are broken."""
    return " ".join(describe(make_plan(block), run).split())


def test_a_whole_description() -> None:
    assert describe(make_plan({"policies": [SELECT, REWEIGHT]}), RunFacts()) == (
        "policy 'threshold_band' (select)\n"
        "  score    reward(): one per row, computed at rollout_done, from reward\n"
        "  keep     threshold_band(low=0.2, high=0.8, inclusive=False)\n"
        "  effect   at rollout_done, rows that are not kept leave the batch, before log-probs, reference and update;\n"
        "           group baselines are those of the kept rows\n"
        "\n"
        "policy 'softmax' (reweight)\n"
        "  score    advantage_magnitude(agg='mean'): one per row, computed at advantage_computed, from advantages,\n"
        "           response_mask\n"
        "  weigh    softmax(temperature=2.0)\n"
        "  effect   at advantage_computed, the weights, scaled to mean 1 over valid tokens, are multiplied into the\n"
        "           column `rollout_is_weights` of the policy loss\n"
        "\n"
        "in every step\n"
        "  reads    reward at rollout_done; advantages, response_mask at advantage_computed\n"
        "  errors   a handler that raises stops the run\n"
        "  verified at the first step that changes anything, and then every 50 steps, the batch is read back on the\n"
        "           workers' path and compared with what was decided; a difference stops the run"
    )


@pytest.mark.parametrize(
    ("apply", "effect"),
    [
        ("drop", "at rollout_done, rows that are not kept leave the batch, before log-probs, reference and update"),
        ("weight", "at advantage_computed, what is not kept gets weight 0; the weights, scaled to mean 1"),
        ("mask", "at advantage_computed, what is not kept is masked: it leaves the policy loss, KL, entropy"),
    ],
)
def test_how_a_selection_is_applied(apply: str, effect: str) -> None:
    assert effect in described(**SELECT, apply=apply)


@pytest.mark.parametrize(
    ("normalize", "run", "text"),
    [
        ("none", None, "not normalised"),
        ("row", None, "scaled to mean 1 over rows"),
        ("auto", None, "scaled to mean 1 as the run's loss_agg_mode asks"),
        ("auto", RunFacts(loss_agg_mode="token-mean"), "scaled to mean 1 over valid tokens"),
        ("auto", RunFacts(loss_agg_mode="seq-mean-token-mean"), "scaled to mean 1 over rows"),
    ],
)
def test_how_weights_are_normalised(normalize: str, run: RunFacts | None, text: str) -> None:
    assert f"the weights, {text}, are multiplied into" in described(run, **REWEIGHT, normalize=normalize)


def test_the_column_of_the_weights() -> None:
    text = describe(make_plan(REWEIGHT), channel="advantages")
    assert "the column `advantages` of the policy loss" in " ".join(text.split())


def test_baselines() -> None:
    late = {"apply": "weight"}
    assert "group baselines are those of the kept rows" in described(**SELECT)
    assert "group baselines are those of all rows" in described(**SELECT, **late)
    assert "group baselines are those of the kept rows" in described(**SELECT, **late, advantages="subset")
    assert "baselines" not in described(RunFacts(group_baseline=False), **SELECT)


def test_when_a_policy_acts() -> None:
    assert " when " not in described(**SELECT)
    text = described(**SELECT, warmup_step=3, update_step=2)
    assert " when after the first 3 steps, in one step of 2" in text


def test_shadow() -> None:
    own = described(policies=[{**SELECT, "shadow": True}, REWEIGHT])
    assert own.count("shadow all of it is computed and logged, nothing is applied") == 1
    assert "verified" in own
    whole = described(policies=[SELECT, REWEIGHT], shadow=True)
    assert whole.count("shadow all of it is computed and logged, nothing is applied") == 2
    assert "shadow nothing is applied: training is what it would be without the block" in whole
    assert "verified" not in whole


def test_handlers_and_what_they_read() -> None:
    text = describe(make_plan({"handlers": [f"{__name__}:watch"], "tensorboard": {}}))
    assert "  watch: at step_end, from response_mask\n" in text
    assert "  tensorboard (TensorBoard.write): at step_end, from response_mask\n" in text


def test_a_tensorboard_that_writes_nothing_is_mentioned() -> None:
    nothing = "tensorboard writes nothing: the run does not log to TensorBoard"
    assert nothing in described(RunFacts(), tensorboard={}, **SELECT)
    assert nothing not in described(RunFacts(tensorboard_dir=Path("x")), tensorboard={}, **SELECT)
    assert nothing not in described(None, tensorboard={}, **SELECT)


def test_settings() -> None:
    text = described(**SELECT, on_error="detach", verify_every=0)
    assert "a handler that raises is logged and taken out, and the run goes on" in text
    assert "at the first step that changes anything, the batch is read back" in text


def test_no_line_is_too_long() -> None:
    text = describe(make_plan({"policies": [SELECT, REWEIGHT], "tensorboard": {}}), RunFacts())
    assert max(map(len, text.splitlines())) <= WIDTH
