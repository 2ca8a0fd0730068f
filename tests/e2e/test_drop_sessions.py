"""Sessions with several outputs, sessions that fail, and groups without any: counted and selected by session."""

from __future__ import annotations

from collections import Counter

import pytest
from dropagents import EMPTY_GROUPS, FAILING, has_two_outputs
from droplab import PROMPTS, ROLLOUTS, SESSIONS, Runs
from dropstory import Step, expected_kept
from labrun import Run
from plaingrpo import Row

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def run(drop_runs: Runs) -> Run:
    """The run of its steps."""
    return drop_runs.run(SESSIONS)


@pytest.fixture(scope="module")
def steps(drop_runs: Runs) -> list[Step]:
    """Two steps; in the first one sessions fail and at most five sessions of each group are kept."""
    return drop_runs.steps(SESSIONS)


@pytest.fixture(scope="module")
def step(steps: list[Step]) -> Step:
    """The first one."""
    return steps[0]


def final_outputs(step: Step) -> list[Row]:
    """The last output of each session."""
    return list({row.session: row for row in step.generated}.values())


def test_sessions_are_as_uneven_as_they_should_be(step: Step) -> None:
    outputs = Counter(row.session for row in step.generated)
    expected = {}
    for uid, index in step.index.items():
        for session in set(range(ROLLOUTS)) - set(FAILING.get(index, ())):
            expected[f"{uid}_{session}"] = 2 if has_two_outputs(index, session) else 1
    assert outputs == expected
    assert set(step.index.values()) == set(range(PROMPTS)) - set(EMPTY_GROUPS)


def test_the_reward_of_a_session_counts_once(step: Step) -> None:
    rewards = [row.reward for row in final_outputs(step)]
    by_session, by_row = sum(rewards) / len(rewards), sum(row.reward for row in step.generated) / len(step.generated)
    assert step.metrics["dataflex/reward_before_select"] == pytest.approx(by_session, rel=1e-5)
    assert abs(by_row - by_session) > 1e-3, "counting outputs would have given another number"


def test_a_session_counts_once_in_the_solve_rate(step: Step) -> None:
    solved: dict[str, list[float]] = {}
    for row in final_outputs(step):
        solved.setdefault(row.uid, []).append(float(row.reward > 0.5))
    rates = [sum(solved[row.uid]) / len(solved[row.uid]) for row in step.generated]
    assert step.metrics["dataflex/policy/band/score_mean"] == pytest.approx(sum(rates) / len(rates), rel=1e-5)


def test_sessions_are_kept_or_dropped_whole(step: Step) -> None:
    kept = {row.key for row in step.trained}
    assert kept == expected_kept(step, SESSIONS.sizes[0], band=True)
    assert len(kept) == len(step.trained) < len(step.generated)
    sessions = {row.session for row in step.trained}
    assert kept == {row.key for row in step.generated if row.session in sessions}
    assert max(Counter(row.session for row in step.trained).values()) == 2


def test_the_update_is_plain_grpo_on_the_kept_sessions(drop_runs: Runs) -> None:
    deviations = drop_runs.deviations(SESSIONS)[0]
    assert len(deviations) == SESSIONS.mini_batches
    assert max(deviation.gradient for deviation in deviations) < 1e-4


def test_the_run_goes_on_and_leaves_nothing_behind(run: Run, steps: list[Step]) -> None:
    assert len(steps) == 2
    assert sorted(row.key for row in steps[1].trained) == sorted(row.key for row in steps[1].generated)
    ends = [over for over in run.records("over") if not over["failed"]]  # a later case may stop the run
    assert ends and all(over["tags"] == {} for over in ends)
