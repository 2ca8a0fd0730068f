"""A batch in which 40% of the groups have constant rewards, and `threshold_band(0, 1)`: the step is not shrunk.

Under GRPO such groups have no gradient, and still count in the denominators of the loss. By hand: the gradient of plain
GRPO is that of the informative groups, times their share of the tokens (token-mean) or rows (seq-mean-token-mean).
"""

from __future__ import annotations

import pytest
import torch
from droplab import CONSTANT, HELD, LOSSES, PROMPTS, ROLLOUTS, Runs
from dropstory import Step, expected_kept, initial_model, real
from plaingrpo import PlainGrpo, Row, advantages, difference, norm

pytestmark = pytest.mark.e2e

TOLERANCE = 1e-4  # rounding of sums in float32


@pytest.fixture(scope="module", params=LOSSES)
def loss(request: pytest.FixtureRequest) -> str:
    """How token losses are averaged."""
    return request.param


@pytest.fixture(scope="module")
def plain(loss: str, drop_runs: Runs) -> Step:
    """The batch without a selector."""
    return drop_runs.steps(HELD[loss, "none"])[0]


@pytest.fixture(scope="module")
def dropped(loss: str, drop_runs: Runs) -> Step:
    """The batch with `apply: drop`."""
    return drop_runs.steps(HELD[loss, "drop"])[0]


@pytest.fixture(scope="module")
def weighted(loss: str, drop_runs: Runs) -> Step:
    """The batch with `apply: weight`."""
    return drop_runs.steps(HELD[loss, "weight"])[0]


def informative(step: Step) -> list[Row]:
    """The rows of groups with different rewards."""
    kept = expected_kept(step, band=True)
    return [row for row in step.generated if row.key in kept]


def factor(step: Step, loss: str) -> float:
    """By how much plain GRPO is smaller than it is on the informative groups alone."""
    if loss == "token-mean":
        return float(sum(row.mask.sum() for row in step.generated) / sum(row.mask.sum() for row in informative(step)))
    return len(step.generated) / len(informative(step))


def by_hand(loss: str, step: Step, rows: list[Row]) -> dict[str, object]:
    """Gradient of plain GRPO on rows, with the parameters of a step."""
    hand = PlainGrpo(initial_model(), loss)
    hand.load(step.updates[0].before)
    return hand.gradient(rows, advantages(rows), hand.fixed_log_probs(rows))


def test_the_batches_are_the_same(plain: Step, dropped: Step, weighted: Step) -> None:
    for step in (plain, dropped, weighted):
        constant = {row.uid for row in step.generated} - {row.uid for row in informative(step)}
        assert {step.index[uid] for uid in constant} == set(CONSTANT)
        assert len(CONSTANT) == 0.4 * PROMPTS
    responses = [[row.tokens.tolist() for row in step.generated] for step in (plain, dropped, weighted)]
    assert responses[0] == responses[1] == responses[2]


def test_so_are_the_parameters(plain: Step, dropped: Step, weighted: Step) -> None:
    start = plain.updates[0].before
    for step in (plain, dropped, weighted):
        for name, value in start.items():
            assert torch.equal(step.updates[0].before[name], value)
            assert torch.equal(step.updates[0].after[name], value)


def test_drop_is_plain_grpo_on_the_informative_groups(loss: str, dropped: Step) -> None:
    (update,) = dropped.updates
    assert len(dropped.received(update)) == (PROMPTS - len(CONSTANT)) * ROLLOUTS
    assert difference(update.gradients, by_hand(loss, dropped, informative(dropped))) < TOLERANCE


def test_without_a_selector_the_step_is_shrunk(loss: str, plain: Step) -> None:
    (update,) = plain.updates
    assert difference(update.gradients, by_hand(loss, plain, plain.generated)) < TOLERANCE
    shrunk = by_hand(loss, plain, informative(plain))
    assert norm(shrunk) / norm(update.gradients) == pytest.approx(factor(plain, loss), rel=TOLERANCE)


@pytest.mark.parametrize("apply", ["drop", "weight"])
def test_with_the_selector_it_is_not(
    loss: str, apply: str, plain: Step, dropped: Step, weighted: Step, capsys: pytest.CaptureFixture[str]
) -> None:
    selected = dropped if apply == "drop" else weighted
    ratio = norm(selected.updates[0].gradients) / norm(plain.updates[0].gradients)
    with capsys.disabled():
        print(f"\n{loss}, apply: {apply}: gradient {ratio:.4f} times as long, by hand {factor(plain, loss):.4f}")
    assert ratio == pytest.approx(factor(plain, loss), rel=TOLERANCE)
    logged = selected.metrics["actor/grad_norm"] / plain.metrics["actor/grad_norm"]
    assert logged == pytest.approx(factor(plain, loss), rel=TOLERANCE)


def test_weight_has_the_gradient_of_drop(loss: str, dropped: Step, weighted: Step) -> None:
    assert difference(weighted.updates[0].gradients, dropped.updates[0].gradients) < TOLERANCE
    assert difference(weighted.updates[0].gradients, by_hand(loss, weighted, informative(weighted))) < TOLERANCE


def test_weight_keeps_all_rows_and_weighs_them(loss: str, weighted: Step) -> None:
    kept = {row.key for row in informative(weighted)}
    (update,) = weighted.updates
    assert sorted(row.key for row in weighted.trained) == sorted(row.key for row in weighted.generated)
    for call in update.calls:
        for i in real(call):
            expected = factor(weighted, loss) if weighted.find(call, i).key in kept else 0.0
            assert call["rollout_is_weights"][i].tolist() == pytest.approx([expected] * len(call["responses"][i]))
    assert weighted.metrics["dataflex/kept_frac"] == 0.6
    assert weighted.metrics["dataflex/verified"] == 1


def test_both_log_that_nothing_but_informative_groups_counted(dropped: Step, weighted: Step) -> None:
    for step in (dropped, weighted):
        assert step.metrics["dataflex/policy/band/kept_frac"] == pytest.approx(0.6)
        assert step.metrics["dataflex/kept_rows"] == (PROMPTS - len(CONSTANT)) * ROLLOUTS
