"""Mix at its far end: the prompts that the rollout server got, counted by domain there."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from labrun import Run
from mixprobe import prompts
from mixrun import MIX, NAMES, PROMPTS, ROLLOUT, ROLLOUTS, run_mix, worst_prefix, worst_window

pytestmark = pytest.mark.e2e

CUT, STEPS = 4, 5


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Draws of single prompts, with refills: verl's own filter throws away groups whose rewards are all equal.

    From step 4 on the plan ignores the proportions.
    """
    handlers = ["mixprobe:watch_groups", {"path": "mixprobe:IgnoreShares", "params": {"step": CUT}}]
    overrides = ["algorithm.filter_groups.enable=True", f"{ROLLOUT}.n={ROLLOUTS}"]
    return run_mix(tmp_path_factory.mktemp("single"), [MIX], handlers, *overrides, steps=STEPS).succeeded()


def test_batches_and_refills_follow_the_proportions(straight: Run):
    got = prompts(straight.folder)
    assert len(got) > 8 * PROMPTS, "nothing was refilled"
    assert {prompt.rollouts for prompt in got} == {ROLLOUTS}
    assert worst_prefix(got) < 1
    assert worst_window(got) < 2


def test_so_do_those_that_verls_own_filter_asks_for(single: Run):
    got = [prompt for prompt in prompts(single.folder) if prompt.step < CUT]
    assert len(got) > (CUT - 1) * PROMPTS, "nothing was refilled"
    assert worst_prefix(got) < 1
    assert worst_window(got) < 2


def test_a_plan_that_ignores_the_proportions_is_found_out(single: Run):
    assert worst_prefix(prompts(single.folder)) > 1


def test_what_the_filter_throws_away_is_counted_and_once(single: Run):
    sent = Counter({name: 0 for name in NAMES})
    for prompt in prompts(single.folder):
        sent[prompt.domain] += prompt.rollouts
    counted = Counter({name: 0 for name in NAMES})
    for metrics in single.metrics:
        for name in NAMES:
            counted[name] += int(metrics[f"dataflex/domain/{name}/generated"])
    assert counted == sent
    evicted = sum(metrics.get("training/filter_groups/evicted_samples", 0) for metrics in single.metrics)
    fates = Counter(itertools.chain.from_iterable(record["fate"] for record in single.records("groups")))
    assert evicted > 0
    assert fates["filtered"] == evicted
    assert fates.total() == len(prompts(single.folder))
    trained = sum(metrics[f"dataflex/domain/{name}/kept"] for metrics in single.metrics for name in NAMES)
    assert trained == STEPS * PROMPTS * ROLLOUTS < sent.total()


def test_what_a_selector_drops_is_counted(straight: Run):
    sent = Counter(prompt.domain for prompt in prompts(straight.folder))
    counted = {
        name: sum(metrics[f"dataflex/domain/{name}/generated"] for metrics in straight.metrics) for name in NAMES
    }
    trained = {name: sum(metrics[f"dataflex/domain/{name}/kept"] for metrics in straight.metrics) for name in NAMES}
    assert counted == {name: float(ROLLOUTS * sent[name]) for name in NAMES}
    half = 8 * PROMPTS * ROLLOUTS / 2
    assert sum(trained.values()) == sum(metrics["dataflex/rows"] for metrics in straight.metrics) == half
