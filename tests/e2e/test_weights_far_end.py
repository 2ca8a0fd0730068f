"""Weights at the far end: the loss in verl's worker receives what our context resolved times verl's own weights."""

from __future__ import annotations

import pytest
from farcheck import (
    Row,
    Step,
    Weights,
    by_token_by_hand,
    check_received,
    importance_weights,
    policy_loss_by_hand,
    product,
    received_rows,
    resolved_weights,
    rows_of,
    softmax_by_hand,
    step_of,
    valid_tokens,
)
from labrun import PADDED, Run, run_verl

pytestmark = pytest.mark.e2e

# One policy of rows and one handler of tokens, which multiply.
TEMPERATURE = 1.0
WEIGHTS = [
    "trainer.v1.trainer_mode=dataflex_sync",
    "+dataflex.mechanism=reweight",
    "+dataflex.scorer.name=advantage_magnitude",
    f"+dataflex.actuator={{name:softmax,params:{{temperature:{TEMPERATURE}}}}}",
]
HANDLERS = "weighing:by_token,farend:Context"
# Tokens are drawn from the 3 likeliest, and the server reports probabilities among those; the trainer computes them
# among all. So verl's importance weights are visibly below 1, and the threshold truncates some of them. Tokens that are
# less than half as likely for the trainer are rejected: they stay in their row and do not count.
THRESHOLD = 0.95
IMPORTANCE = [
    "actor_rollout_ref.rollout.top_k=3",
    "actor_rollout_ref.rollout.calculate_log_probs=True",
    "algorithm.rollout_correction.rollout_is=token",
    f"algorithm.rollout_correction.rollout_is_threshold={THRESHOLD}",
    "algorithm.rollout_correction.rollout_rs=token_k1",
    "algorithm.rollout_correction.rollout_rs_threshold='0.5_2.0'",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Weights, verl's rollout correction is off. In step 1 and 3 they are written but not listed in `fields`.

    In step 1 nothing verifies it, so that the run goes on; in step 3 something does.
    """
    cut = "{path: 'cut:CutWeights', params: {at: [[append, verify], [], [append]]}}"
    block = [*WEIGHTS, f"+dataflex.handlers=[{HANDLERS},{cut}]", "+dataflex.verify_every=1"]
    off = "algorithm.rollout_correction.rollout_is=null"
    return run_verl(tmp_path_factory.mktemp("weights"), *PADDED, *block, off, steps=3, probe=True).failed()


@pytest.fixture
def invisible(run: Run) -> Step:
    """The step in which no worker could see the weights."""
    return step_of(run, 1)


@pytest.fixture
def weighted(run: Run) -> Step:
    """The step in which all is as it should be."""
    return step_of(run, 2)


@pytest.fixture
def stopped(run: Run) -> Step:
    """The step that stopped the run."""
    return step_of(run, 3)


@pytest.fixture(scope="module")
def run_of_two(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Weights on top of verl's importance weights, two workers, sequence means."""
    folder = tmp_path_factory.mktemp("weighted_twice")
    update = [
        "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=256",  # half the rows, and still several micro-batches
    ]
    block = [*WEIGHTS, f"+dataflex.handlers=[{HANDLERS}]"]
    return run_verl(folder, *PADDED, *block, *IMPORTANCE, *update, ranks=2, probe=True).succeeded()


@pytest.fixture
def weighted_twice(run_of_two: Run) -> Step:
    """Its only step."""
    return step_of(run_of_two, 1)


def expected_by_hand(step: Step, mean_over: str) -> Weights:
    rows = received_rows(step)
    return product(softmax_by_hand(rows, TEMPERATURE, mean_over), by_token_by_hand(rows))


def is_discriminating(expected: Weights) -> bool:
    """A mix-up of rows or tokens would be seen: rows differ, and so do the tokens of a row."""
    tokens = [weight for row in expected.values() for weight in row]
    distinct = {round(weight, 4) for weight in tokens}
    return len(distinct) > len(tokens) / 4 and all(len(set(row)) == len(row) for row in expected.values())


def group_of(row: Row) -> str:
    """Rows of one group may be equal to the last token; rows of different groups answer different prompts."""
    return row.key.rsplit("_", 2)[0]


# ---------------------------------------------------------------- positive


def test_the_loss_receives_the_resolved_weights_in_every_row_and_token(weighted: Step) -> None:
    rows, resolved = received_rows(weighted), resolved_weights(weighted)
    assert len(weighted.calls) >= 4, "several micro-batches in each of the two mini-batches"
    assert is_discriminating(resolved)
    assert check_received(rows, resolved) == sum(len(row) for row in resolved.values())


def test_the_resolved_weights_are_those_computed_by_hand(weighted: Step) -> None:
    check_received(received_rows(weighted), expected_by_hand(weighted, mean_over="token"))


def test_padding_rows_get_weight_one_and_do_not_count(weighted: Step) -> None:
    padding = [row for row in received_rows(weighted) if row.padding]
    assert len(padding) == 8
    assert all(set(row.weights) == {1.0} and not valid_tokens(row) for row in padding)


def test_the_loss_of_the_worker_is_the_weighted_one(weighted: Step) -> None:
    calls, seen = list(weighted.calls), 0
    while seen < 32:  # the first of the two mini-batches: before any optimizer step
        call = calls.pop(0)
        rows = rows_of(call)
        by_hand = policy_loss_by_hand(rows, call["batch_num_tokens"], weighted=True)
        assert call["loss"] == pytest.approx(by_hand, rel=1e-4, abs=1e-6)
        seen += len(rows)
    assert seen == 32


def test_weights_multiply_with_the_importance_weights_of_verl(weighted_twice: Step) -> None:
    rows, resolved = received_rows(weighted_twice), resolved_weights(weighted_twice)
    importance = importance_weights(rows, THRESHOLD)
    assert {row.rank for row in rows} == {0, 1}
    assert len(weighted_twice.calls) >= 8, "several micro-batches for each worker and mini-batch"
    assert is_discriminating(resolved)
    ratios = [importance[row.key][token] for row in rows if not row.padding for token in valid_tokens(row)]
    assert min(ratios) < 0.8, "verl's weights must be visible"
    assert sum(ratio == THRESHOLD for ratio in ratios) > 10, "some of them truncated"
    assert sum(ratio < THRESHOLD for ratio in ratios) > 10, "and some of them not"
    tokens, valid = sum(len(row) for row in importance.values()), len(ratios)
    assert valid < tokens, "verl rejected some tokens"
    assert check_received(rows, product(resolved, importance)) == valid


def test_the_resolved_weights_are_those_computed_by_hand_over_rows(weighted_twice: Step) -> None:
    rows = received_rows(weighted_twice)
    by_hand = expected_by_hand(weighted_twice, mean_over="row")
    check_received(rows, product(by_hand, importance_weights(rows, THRESHOLD)))


def test_padding_rows_keep_what_the_rollout_correction_gave_them(weighted_twice: Step) -> None:
    padding = [row for row in received_rows(weighted_twice) if row.padding]
    assert len(padding) == 8
    assert all(set(row.weights) == {0.0} and not valid_tokens(row) for row in padding)


def test_the_run_verified_the_weights(weighted: Step, weighted_twice: Step) -> None:
    assert weighted.metrics["dataflex/verified"] == 1
    assert weighted_twice.metrics["dataflex/verified"] == 1


@pytest.mark.parametrize("mix_up", ["tokens", "rows", "lost"])
def test_a_mix_up_would_be_seen(weighted: Step, mix_up: str) -> None:
    rows, resolved = received_rows(weighted), resolved_weights(weighted)
    first = next(row for row in rows if not row.padding)
    second = next(row for row in rows if len(row.mask) == len(first.mask) and group_of(row) != group_of(first))
    if mix_up == "tokens":
        first.weights[0], first.weights[1] = first.weights[1], first.weights[0]
    elif mix_up == "rows":
        first.weights, second.weights = second.weights, first.weights
    else:
        rows.remove(first)
    with pytest.raises(AssertionError):
        check_received(rows, resolved)


# ---------------------------------------------------------------- negative: the append to `fields` is cut


def test_without_the_append_the_loss_receives_nothing(invisible: Step) -> None:
    resolved = resolved_weights(invisible)
    assert is_discriminating(resolved), "the context resolved weights as before"
    assert invisible.metrics["dataflex/weight_std"] > 0.1, "and our own metrics look alive"
    with pytest.raises(AssertionError, match="the loss received no weights for 64 of 64 rows"):
        check_received(received_rows(invisible), resolved)


def test_without_the_append_training_is_that_of_plain_verl(invisible: Step, plain: Run) -> None:
    assert invisible.metrics["actor/grad_norm"] == plain.metrics[0]["actor/grad_norm"]


def test_without_the_append_the_run_is_stopped(run: Run, stopped: Step) -> None:
    assert "VerificationError: the worker does not receive the column 'rollout_is_weights'" in run.log
    assert "does not list it in `fields`" in run.log
    assert not stopped.calls, "before the worker computed a loss"
    assert len(run.metrics) == 2, "and not earlier"


# ---------------------------------------------------------------- gradient


def test_weights_change_the_gradient(weighted: Step, plain: Run) -> None:
    """Up to this step the run was that of plain verl, since no worker saw its weights."""
    assert "rollout_is_weights" not in plain.records("loss")[0]
    theirs = step_of(plain, 2)
    assert old_log_probs(weighted) == old_log_probs(theirs), "same batch, same parameters"
    ours, other = weighted.metrics["actor/grad_norm"], theirs.metrics["actor/grad_norm"]
    assert abs(ours - other) > 0.01 * other


def old_log_probs(step: Step) -> list[list[float]]:
    """Before the update, in the order in which the workers got the rows."""
    return [row.old_log_probs for row in received_rows(step)]


def test_weights_that_are_all_one_leave_the_gradient_as_it_is(changes_nothing: Run, plain: Run) -> None:
    rows = [row for number in (1, 2, 3) for row in received_rows(step_of(changes_nothing, number))]
    assert all(weight == 1.0 for row in rows for weight in row.weights)
    assert changes_nothing.metrics[0]["actor/grad_norm"] == plain.metrics[0]["actor/grad_norm"]
