"""Gate and refill at their far end: the prompts that the rollout server got, and the batches that the worker received.

One run. Its data are the 64 prompts of one domain, so that they come back; a gate that never draws a prompt again whose
rollouts all had the same outcome; groups of which 1 or 7 of 8 rollouts succeed are replaced, and by verl's own filter
those of which none or all do. In step 10 the gate is blind, in step 11 no group is good enough.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pyarrow.compute
import pyarrow.parquet
import pytest
from gateprobe import rewards_by_step
from labrun import Run
from mixprobe import prompts
from mixrun import ACTOR, BAND, ROLLOUT, run_mix

from dataflex_events.adapters.verl.cpu.lab import LabSettings, build_lab

pytestmark = pytest.mark.e2e

DOMAIN = "range"
BLIND, REFUSED = 10, 11
PROMPTS, ROLLOUTS, FACTOR = 8, 8, 6


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("gated")
    lab = pyarrow.parquet.read_table(build_lab(LabSettings.tiny()).train)
    data = folder / "train.parquet"
    pyarrow.parquet.write_table(lab.filter(pyarrow.compute.equal(lab["domain"], DOMAIN)), data)
    gate = {"mechanism": "gate", "actuator": {"name": "learnability", "params": {"explore": 0.0}}}
    middle = {"name": "threshold_band", "params": {"low": 0.2, "high": 0.8}}
    band = {**BAND, "actuator": middle, "refill": {"max_generated_factor": FACTOR}}
    handlers = [
        "gateprobe:outcomes",
        {"path": "gateprobe:Blind", "params": {"step": BLIND}},
        {"path": "gateprobe:Refuse", "params": {"step": REFUSED}},
    ]
    return run_mix(
        folder,
        [gate, band],
        handlers,
        f"{ACTOR}.optim.lr=5e-5",
        f"{ROLLOUT}.n={ROLLOUTS}",
        f"data.train_files={data}",
        "algorithm.filter_groups.enable=True",
        "trainer.total_epochs=100",
        steps=REFUSED,
        environment={"VERL_USE_EXTERNAL_MODULES": "farend,mixprobe,gateprobe"},
    )


def test_what_the_gate_skips_never_reaches_the_server(gated: Run):
    again = redrawn(gated)
    early = [equal for step, equal in again if step < BLIND]
    assert len(early) > PROMPTS, "prompts come back"
    assert not any(early)


def test_a_blind_gate_is_found_out(gated: Run):
    assert any(equal for step, equal in redrawn(gated) if step >= BLIND)


def redrawn(run: Run) -> list[tuple[int, bool]]:
    """For each prompt that the server got and that an earlier step had generated: the step, and whether all of its
    rollouts had the same outcome when it was generated last."""
    rewards = rewards_by_step(run.folder, run.records("groups"))
    found = []
    for prompt in prompts(run.folder):
        before = [step for step in rewards.get(prompt.text, {}) if step < prompt.step]
        if before:
            found.append((prompt.step, len(set(rewards[prompt.text][max(before)])) == 1))
    return found


def test_every_batch_of_the_worker_is_full_and_in_the_band(gated: Run):
    steps = {key.split("_")[0]: record["step"] for record in gated.records("sent") for key in record["keys"]}
    rewards: dict[int, dict[str, list[float]]] = {}
    for record in gated.records("loss"):
        for uid, scores in zip(record["uid"], record["rm_scores"], strict=True):
            rewards.setdefault(steps[uid], {}).setdefault(uid, []).append(float(scores.sum()))
    assert sorted(rewards) == list(range(1, REFUSED))
    for groups in rewards.values():
        assert len(groups) == PROMPTS
        for group in groups.values():
            assert len(group) == ROLLOUTS
            assert 2 <= sum(value > 0.5 for value in group) <= 6


def test_what_is_replaced_was_counted_before_and_once(gated: Run):
    early = [record for record in gated.records("groups") if record["step"] < REFUSED]
    fates = Counter(itertools.chain.from_iterable(record["fate"] for record in early))
    assert fates.total() == sum(prompt.step < REFUSED for prompt in prompts(gated.folder))
    filtered = fates["filtered"]
    evicted = sum(metrics.get("training/filter_groups/evicted_samples", 0) for metrics in gated.metrics)
    assert 0 < filtered < evicted, "verl's filter and ours"


def test_the_bill_is_that_of_the_server(gated: Run):
    sent = Counter[int]()
    for prompt in prompts(gated.folder):
        sent[prompt.step] += prompt.rollouts
    for step, metrics in enumerate(gated.metrics, 1):
        assert metrics["dataflex/rollouts_generated"] == sent[step]
        assert metrics["dataflex/gate/drawn"] == metrics["dataflex/refill/generated"] == sent[step] / ROLLOUTS
        assert metrics["dataflex/rollouts_useful"] == PROMPTS * ROLLOUTS
        discarded = metrics.get("training/filter_groups/discarded_surplus_samples", 0)
        evicted = metrics.get("training/filter_groups/evicted_samples", 0)
        assert sent[step] / ROLLOUTS == PROMPTS + evicted + discarded
    assert any(metrics["dataflex/gate/skipped"] for metrics in gated.metrics)


def test_a_band_that_nothing_meets_stops_at_the_bound(gated: Run):
    gated.failed()
    assert len(gated.metrics) == REFUSED - 1
    sent = sum(prompt.step == REFUSED for prompt in prompts(gated.folder))
    (generated, *_) = map(int, re.findall(rf"step {REFUSED}: (\d+) prompts were generated", gated.log))
    assert PROMPTS < sent <= generated <= FACTOR * PROMPTS  # some may be on their way
    assert "'Refuse.refuse' dropped" in gated.log
    assert "max_generated_factor=6 allows no full batch any more" in gated.log
