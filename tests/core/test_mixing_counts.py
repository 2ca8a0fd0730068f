"""A mix policy on the bus: what it counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mixbus import REWARDS, Run, block, named, step
from toys import RowNumber

from dataflex_events import Batch, Groups, GroupsFinished, StepId
from dataflex_events.testing import Recorder, make_batch


def test_statistics_and_metrics_of_a_step_by_hand():
    run = Run(block("static", "group_solve_rate"), ("a", "b"))
    metrics = step(run)
    assert run.mix.stats.latest.tolist() == [0.5, 1.0]
    assert run.mix.stats.count.tolist() == [2, 2]
    ours = {
        name: value for name, value in metrics.items() if "/domain/" in name or "reward_" in name or "prop_" in name
    }
    ours.pop("dataflex/reward_before_select", None)
    assert ours == {
        "dataflex/prop_a": 0.5,
        "dataflex/prop_b": 0.5,
        "dataflex/reward_a": 0.5,
        "dataflex/reward_b": 1.0,
        "dataflex/domain/a/score": 0.5,
        "dataflex/domain/b/score": 1.0,
        "dataflex/domain/a/generated": 2.0,
        "dataflex/domain/b/generated": 2.0,
        "dataflex/domain/a/kept": 2.0,
        "dataflex/domain/b/kept": 2.0,
    }
    assert metrics["dataflex/mix/effective_domains"] == pytest.approx(2.0)


def test_what_a_selector_drops_counts():
    band = {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}}
    run = Run({"policies": [band, block("static", "group_solve_rate")]}, ("a", "b"))
    run.step = 1
    run.next_draw(2)
    batch = named(make_batch(REWARDS, domains=["a", "b"]), ("a", "b"))
    run.finish(batch)
    keep = run.driver.rollout_done(StepId(1), batch).keep
    assert keep is not None
    rows = keep.nonzero().flatten()
    assert rows.tolist() == [0, 1]
    run.driver.advantage_computed(StepId(1), batch.take(rows), rows)
    metrics = run.driver.step_end(StepId(1))
    assert run.mix.stats.count.tolist() == [2, 2]
    assert (metrics["dataflex/domain/b/generated"], metrics["dataflex/domain/b/kept"]) == (2.0, 0.0)


def test_a_scorer_that_two_policies_share_runs_once_an_event():
    kept = {"mechanism": "select", "scorer": {"name": "toys:RowNumber"}, "actuator": {"name": "toys:KeepFrom"}}
    run = Run({"policies": [kept, block("static", "toys:RowNumber")]}, ("a", "b"))
    RowNumber.calls.clear()
    step(run)
    assert RowNumber.calls == [4, 4]  # finished groups, then the batch


def test_rollouts_without_a_score_do_not_count_and_a_session_counts_once():
    run = Run(block("static", "reward"), ("a", "b"))
    run.step = 1
    run.next_draw(2)
    batch = make_batch([[float("nan"), 1], [0, 1]], domains=["a", "b"], sessions=[0, 1, 0, 0])
    with_rows = Batch.build(
        offsets=batch.offsets,
        uid=batch.uid,
        session=batch.session,
        output=torch.tensor([0, 0, 0, 1]),
        token_fields={name: batch[name] for name in ("rm_scores", "response_mask", "advantages")},
        row_fields={"domain": batch["domain"], "row_id": batch.uid},
        domains=batch.domains,
    )
    run.finish(with_rows)
    metrics = run.end(with_rows)
    assert run.mix.stats.count.tolist() == [1, 1]
    assert run.mix.stats.latest.tolist() == [1.0, 1.0]
    assert metrics["dataflex/domain/b/generated"] == 1.0


def test_failed_groups_are_told_of_and_have_no_scores():
    run = Run(block("static"), ("a", "b"))
    seen = Recorder(run.driver.bus, GroupsFinished)
    run.step = 1
    run.next_draw(2)
    batch = named(make_batch([[1, 0]], domains=["a"]), ("a", "b"))
    groups = Groups(torch.tensor([0, 40]), ("finished", "failed"))
    run.driver.groups_finished(StepId(1), batch, groups)
    metrics = run.end(batch)
    assert len(groups) == 2
    (event,) = seen.events
    assert isinstance(event, GroupsFinished)
    assert event.groups.fate == ("finished", "failed")
    assert metrics["dataflex/domain/a/generated"] == 2.0
    assert metrics["dataflex/domain/b/generated"] == 0.0
    assert "dataflex/reward_b" not in metrics, "there is no reward to tell"


def test_rows_of_no_domain_are_not_counted():
    """Without an applied mix verl draws them too."""
    run = Run(block("sec", shadow=True, unlisted="ignore"), ("a", "b"))
    run.step = 1
    run.next_draw(2)
    batch = named(make_batch(REWARDS, domains=["a", "b"]), ("a", "b"))
    stray = batch.build(
        offsets=batch.offsets,
        uid=batch.uid,
        session=batch.session,
        output=torch.zeros(len(batch), dtype=torch.int64),
        token_fields={name: batch[name] for name in ("rm_scores", "response_mask", "advantages")},
        row_fields={"domain": torch.tensor([0, 0, -1, -1]), "row_id": batch.uid},
        domains=("a", "b"),
    )
    run.finish(stray)
    metrics = run.end(stray)
    assert run.mix.stats.count.tolist() == [2, 0]
    assert (metrics["dataflex/domain/a/generated"], metrics["dataflex/domain/b/generated"]) == (2.0, 0.0)


def test_scores_that_are_missing_are_counted_over_the_whole_step():
    run = Run(block("static", "reward"), ("a", "b"))
    run.step = 1
    run.next_draw(2)
    missing = named(make_batch([[float("nan"), 1]], domains=["a"]), ("a", "b"))
    run.finish(missing)
    run.finish(missing)
    assert run.end(missing)["dataflex/nonfinite/reward"] == 2.0


ODD = ("a/b", "two words", "ümläut 域", "min", "max reward", "sum", "numina", "total")


def test_names_survive_into_metrics():
    run = Run(block("static"), ODD)
    run.step = 1
    run.next_draw(8)
    batch = named(make_batch([[1, 0]] * 8, domains=ODD), ODD)
    run.finish(batch)
    metrics = run.end(batch)
    assert {f"dataflex/prop_{name}" for name in ODD} <= metrics.keys()
    assert [metrics[f"dataflex/domain/{name}/generated"] for name in ODD] == [2.0] * 8


def test_names_survive_into_tensorboard(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    tags = [f"dataflex/prop_{name}" for name in ODD]
    with SummaryWriter(str(tmp_path)) as writer:  # as verl's backend does
        for tag in tags:
            writer.add_scalar(tag, 0.5, 1)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == sorted(tags)


def test_ten_thousand_domains_do_not_flood_the_log():
    names = [f"domain {number}" for number in range(10_000)]
    run = Run(block("sec"), names, rows=1)
    run.step = 1
    run.next_draw(8)
    batch = named(make_batch([[1, 0]] * 8, domains=names[:8]), names[:8])
    run.finish(batch)
    metrics = run.end(batch)
    assert not [name for name in metrics if "prop_" in name or "/domain/" in name]
    assert metrics["dataflex/mix/effective_domains"] == pytest.approx(10_000)
