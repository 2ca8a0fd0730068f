"""Off is off: without a block, or with one that changes nothing, a run is bit-identical to verl's own trainer."""

from __future__ import annotations

from typing import Any

import pytest
from farcheck import step_of
from labrun import PADDED, Run, run_verl

pytestmark = pytest.mark.e2e

# Metrics of time and memory, the only ones that may differ.
MEASURED = (
    "timing_s/",
    "timing_per_token_ms/",
    "perf/time_per_step",
    "perf/throughput",
    "perf/mfu/",
    "actor/perf/max_memory_allocated_gb",
    "actor/perf/max_memory_reserved_gb",
    "actor/perf/cpu_memory_used_gb",
)
OURS = "dataflex/"


@pytest.fixture(scope="module")
def no_block(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same steps with our trainer, without a block."""
    folder = tmp_path_factory.mktemp("no_block")
    return run_verl(folder, *PADDED, "trainer.v1.trainer_mode=dataflex_sync", steps=5, probe=True).succeeded()


def comparable(run: Run) -> list[dict[str, Any]]:
    """The metrics of each step that must not differ."""
    return [{name: value for name, value in step.items() if not name.startswith(MEASURED)} for step in run.metrics]


def without_ours(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in step.items() if not name.startswith(OURS)} for step in steps]


def test_metrics_without_a_block_are_those_of_verl(no_block: Run, plain: Run) -> None:
    ours, theirs = comparable(no_block), comparable(plain)
    assert len(theirs) == 5
    assert all(len(step) >= 40 for step in theirs)
    assert ours == theirs


def test_the_steps_are_worth_comparing(plain: Run) -> None:
    norms = [step["actor/grad_norm"] for step in plain.metrics]
    assert len(set(norms)) == 5 and min(norms) > 0, "every step has a gradient of its own"


def test_no_metric_of_ours_without_a_block(no_block: Run) -> None:
    assert [name for step in no_block.metrics for name in step if "dataflex" in name] == []


def test_setup_without_a_block_is_that_of_verl(no_block: Run, plain: Run) -> None:
    (ours,), (theirs,) = no_block.records("trainer"), plain.records("trainer")
    assert (ours.pop("trainer"), theirs.pop("trainer")) == ("DataflexSync", "PPOTrainerSync")
    for record in (ours, theirs):
        del record["config"]["trainer"]["default_local_dir"]  # each run has its own folder
    assert ours["buffer"] == "verl.trainer.ppo.v1.replay_buffer.ReplayBuffer"
    assert ours["dataloader_batch_size"] == 7
    assert ours == theirs, "buffer, sampler, gen_batch_size and all of the configuration"


def test_weights_that_are_all_one_change_nothing(changes_nothing: Run, plain: Run) -> None:
    assert without_ours(comparable(changes_nothing))[:3] == comparable(plain)[:3]


def test_a_detached_handler_leaves_nothing_behind(changes_nothing: Run) -> None:
    steps = changes_nothing.metrics[:3]
    assert [step["dataflex/handler_errors"] for step in steps] == [0, 1, 1]
    assert all(step["dataflex/weight_min"] == step["dataflex/weight_max"] == 1 for step in steps)
    assert not any("weighing/half_done" in step for step in steps)
    assert "handler 'Raises.break_down' failed at advantage_computed, step 2" in changes_nothing.log
    assert changes_nothing.log.count("RuntimeError: out of luck") == 1, "its traceback, once"


def test_a_run_in_shadow_is_that_of_verl(changes_nothing: Run, plain: Run) -> None:
    assert without_ours(comparable(changes_nothing))[3] == comparable(plain)[3]
    assert step_of(changes_nothing, 4).calls[0].keys() == step_of(plain, 4).calls[0].keys(), "and no column more"


def test_a_run_in_shadow_logs_what_would_happen(changes_nothing: Run) -> None:
    metrics = changes_nothing.metrics[3]
    (generated,) = (record for record in changes_nothing.records("generated") if record["step"] == 4)
    solved: dict[str, list[bool]] = {}
    for key, scores in zip(generated["keys"], generated["rm_scores"], strict=True):
        solved.setdefault(key.rsplit("_", 2)[0], []).append(float(scores.sum()) > 0.5)
    kept = sum(len(group) for group in solved.values() if len(set(group)) == 2)
    assert 0 < kept < 56
    assert metrics["dataflex/shadow"] == 1
    assert metrics["dataflex/kept_rows"] == kept
    assert metrics["dataflex/rows"] == 56, "and all of them were trained on"
    assert metrics["dataflex/weight_std"] > 0.01
    assert metrics["dataflex/kept_token_frac"] == pytest.approx(0.2, abs=0.02)
    assert "dataflex/verified" not in metrics


def test_out_of_the_shadow_the_worker_computes_another_loss(changes_nothing: Run, plain: Run) -> None:
    ours, theirs = step_of(changes_nothing, 5), step_of(plain, 5)
    kept = changes_nothing.metrics[4]["dataflex/kept_rows"]
    real = [uid for call in ours.calls for uid in call["uid"] if not uid.startswith("pad")]
    assert len(real) == kept < 56
    assert all("rollout_is_weights" in call for call in ours.calls)
    assert changes_nothing.metrics[4]["dataflex/verified"] == 1
    ours_loss, theirs_loss = ours.metrics["actor/pg_loss"], theirs.metrics["actor/pg_loss"]
    assert abs(ours_loss - theirs_loss) > 0.01 * abs(theirs_loss)
