"""A run that is killed goes on as if it had not been. So a run can be repeated, too: verl's own numbers included."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from labrun import Run
from mixprobe import prompts
from mixrun import ENDLESS, NAMES, PROMPTS, ROLLOUTS, SAVED, STEPS

from dataflex_events.state import read_state

pytestmark = pytest.mark.e2e

MEASURED = ("timing", "perf/", "memory", "dataflex/verified")
"""Parts of the names of metrics that measure this machine, and the one that says that a new process has verified."""


def values(run: Run) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in step.items() if not any(part in name for part in MEASURED)}
        for step in run.metrics
    ]


def test_it_was_killed_after_its_checkpoint(killed: Run):
    assert killed.code != 0
    assert len(killed.metrics) == SAVED
    assert (killed.folder / "checkpoints" / "latest_checkpointed_iteration.txt").exists()


def test_the_server_gets_the_same_prompts(straight: Run, killed: Run, resumed: Run):
    whole = [prompt for prompt in prompts(straight.folder) if prompt.step <= STEPS]
    halves = [*prompts(killed.folder), *prompts(resumed.folder)]
    assert Counter(halves) == Counter(whole)  # which of two neighbours came first is a matter of microseconds


def test_every_metric_is_the_same_to_the_last_bit(straight: Run, killed: Run, resumed: Run):
    expected = values(straight)[:STEPS]
    assert len(expected) == STEPS
    assert all(len(step) > 100 for step in expected)
    assert [*values(killed), *values(resumed)] == expected


def test_the_steps_are_worth_comparing(straight: Run):
    for step in straight.metrics[:STEPS]:
        assert step["actor/grad_norm"] > 0
        assert step["actor/kl_loss"] >= 0
        assert step["training/rollout_probs_diff_max"] < 1e-5, "the server's log-probs are those of the trainer"
        assert math.isclose(step["rollout_corr/rollout_is_mean"], 1.0, abs_tol=1e-5)
    assert sum(0 < step["critic/rewards/mean"] < 1 for step in straight.metrics[:STEPS]) > STEPS // 2
    assert len({step["actor/grad_norm"] for step in straight.metrics[:STEPS]}) == STEPS
    assert len({step["dataflex/prop_range"] for step in straight.metrics[:STEPS]}) == 4


def test_statistics_and_draw_are_the_same_to_the_last_bit(straight: Run, killed: Run, resumed: Run):
    folders = (straight.folder, killed.folder)  # the resumed run saves where the killed one did
    one, other = (read_state(folder / "checkpoints" / f"global_step_{STEPS}" / "dataflex") for folder in folders)
    assert_same(one, other)
    generated = sum(prompt.step <= STEPS for prompt in prompts(straight.folder))
    assert one["parts"]["mix"]["state"]["stats"]["count"].sum() == generated * ROLLOUTS
    visits = one["parts"]["prompts"]["state"]["visits"]
    assert visits.sum() == generated > len(visits), "some prompts came back"


def test_gate_and_refill_had_something_to_do(straight: Run):
    steps = straight.metrics[:STEPS]
    assert sum(step["dataflex/refill/evicted"] for step in steps) > PROMPTS
    assert not any(step["dataflex/refill/exhausted"] for step in steps)
    assert all(step["dataflex/gate/skipped"] for step in steps)
    assert sum(step["dataflex/gate/explored"] for step in steps) > 0


def test_ctrl_c_during_a_refill_leaves_nothing(straight: Run):
    endless = [prompt for prompt in prompts(straight.folder) if prompt.step == ENDLESS]
    assert len(endless) > 2 * PROMPTS, "it was refilling"
    assert straight.code != 0
    assert "KeyboardInterrupt" in straight.log
    assert not straight.leftovers


def test_validation_reports_every_domain(straight: Run):
    for domain in NAMES:
        assert 0 <= straight.metrics[SAVED - 1][f"val-core/lab/{domain}/acc/mean@1"] <= 1


def test_tensorboard_has_the_steps(straight: Run):
    assert list((straight.folder / "tensorboard").glob("events.*"))


def test_no_process_listens_beyond_this_machine(straight_and_heard: Any, killed_and_heard: Any):
    for _, found in (straight_and_heard, killed_and_heard):
        assert len(found) > 6, "Ray, TransferQueue and torch all listen"
        assert {ip for ip, _ in found} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, sorted(found)


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert one.numpy().tobytes() == other.numpy().tobytes()
    else:
        assert one == other
