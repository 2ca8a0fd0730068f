"""Mix at its far end: the prompts that the rollout server got, counted by domain there."""

from __future__ import annotations

from collections import Counter

import pytest
from labrun import Run
from mixprobe import prompts
from mixrun import CUT, NAMES, PROMPTS, ROLLOUTS, STEPS, worst_prefix, worst_window

pytestmark = pytest.mark.e2e


def test_batches_and_refills_follow_the_proportions(straight: Run):
    got = [prompt for prompt in prompts(straight.folder) if prompt.step < CUT]
    assert len(got) > STEPS * PROMPTS, "nothing was refilled"
    assert {prompt.rollouts for prompt in got} == {ROLLOUTS}
    assert worst_prefix(got) < 1
    assert worst_window(got) < 2


def test_a_plan_that_ignores_the_proportions_is_found_out(straight: Run):
    assert worst_prefix([prompt for prompt in prompts(straight.folder) if prompt.step <= CUT]) > 1


def test_what_is_replaced_or_dropped_is_counted_and_once(straight: Run):
    sent = Counter(prompt.domain for prompt in prompts(straight.folder) if prompt.step <= CUT)
    counted, trained = (
        {name: sum(metrics[f"dataflex/domain/{name}/{what}"] for metrics in straight.metrics) for name in NAMES}
        for what in ("generated", "kept")
    )
    assert counted == {name: float(ROLLOUTS * sent[name]) for name in NAMES}
    half = CUT * PROMPTS * ROLLOUTS / 2  # full batches, of which a selector drops one rollout in two
    assert sum(trained.values()) == sum(metrics["dataflex/rows"] for metrics in straight.metrics) == half
