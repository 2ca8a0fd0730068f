"""A mix policy on the bus: what it learns from finished groups, and what it proposes at draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from mixlearner import IMPOSSIBLE, MASTERED, Learner, Skill
from torch import Tensor
from toys import Called, RowNumber

from dataflex_events import (
    Batch,
    ConfigError,
    Groups,
    GroupsFinished,
    HandlerError,
    RunFacts,
    StepDriver,
    StepId,
)
from dataflex_events.checkpoint import collect, distribute
from dataflex_events.plan import Plan, make_plan
from dataflex_events.pools import DomainTable
from dataflex_events.prompts import PromptDraw
from dataflex_events.testing import Recorder, make_batch


class Run:
    """Steps of a run that draws from its domains, in the order that a synchronous trainer has."""

    def __init__(self, block: Mapping[str, Any], names: Sequence[str], *, rows: int = 40) -> None:
        self.plan: Plan = make_plan(block)
        assert self.plan.mix is not None
        self.mix = self.plan.mix
        codes = np.repeat(np.arange(len(names)), rows)
        self.table = DomainTable.from_codes(codes, names)
        self.mix.begin(self.table.names, torch.from_numpy(self.table.shares))
        self.draw = PromptDraw(self.table, seed=0)
        self.driver = StepDriver(self.plan.bus(), RunFacts(), shadow=self.plan.settings.shadow)
        self.step = 0

    def next_draw(self, prompts: int) -> tuple[list[str], Tensor | None]:
        sizes = torch.from_numpy(self.table.sizes)
        shares = self.driver.buffer_sample(StepId(self.step), prompts, self.table.names, sizes)
        self.planned = self.draw.plan(prompts, None if shares is None else shares.numpy())
        return [self.table.names[code] for code in self.planned.domains], shares

    def finish(self, batch: Batch) -> None:
        groups = Groups(torch.from_numpy(self.planned.rows), ("finished",) * batch.groups)
        self.driver.groups_finished(StepId(self.step), batch, groups)

    def end(self, batch: Batch) -> dict[str, float]:
        self.driver.rollout_done(StepId(self.step), batch)
        self.driver.advantage_computed(StepId(self.step), batch)
        return self.driver.step_end(StepId(self.step))

    def take_step(self, learner: Learner, prompts: int = 16, rollouts: int = 8) -> dict[str, float]:
        self.step += 1
        domains, _ = self.next_draw(prompts)
        batch = named(learner.answer(domains, rollouts), self.table.names)
        self.finish(batch)
        return self.end(batch)


def named(batch: Batch, names: Sequence[str], rows: Sequence[int] | None = None) -> Batch:
    """The batch with the codes of the run's domains, and a dataset row for each group."""
    code = torch.tensor([names.index(name) for name in batch.domains], dtype=torch.int64)[batch["domain"]]
    row_id = batch.uid if rows is None else torch.tensor(rows)[batch.uid]
    fields = {name: batch[name] for name in ("rm_scores", "response_mask", "advantages")}
    return Batch.build(
        offsets=batch.offsets,
        uid=batch.uid,
        session=batch.session,
        output=torch.zeros(len(batch), dtype=torch.int64),
        token_fields=fields,
        row_fields={"domain": code, "row_id": row_id},
        domains=names,
    )


def block(name: str, scorer: str | None = None, /, **more: Any) -> dict[str, Any]:
    params = more.pop("params", {})
    if scorer is not None:
        more.setdefault("scorer", {"name": scorer})
    return {"mechanism": "mix", "actuator": {"name": name, "params": params}, **more}


REWARDS = [[1, 0], [1, 1]]  # a group of domain a, a group of domain b


def step(run: Run, rewards: Sequence[Sequence[float]] = REWARDS, rows: Sequence[int] = (0, 40)) -> dict[str, float]:
    run.step += 1
    run.next_draw(2)
    batch = named(make_batch(rewards, domains=["a", "b"]), ("a", "b"), rows)
    run.finish(batch)
    return run.end(batch)


# ---------------------------------------------------------------- what is proposed


def test_static_shares_are_drawn():
    run = Run(block("static", params={"proportions": [0.2, 0.3, 0.5]}), ("a", "b", "c"))
    run.step = 1
    domains, shares = run.next_draw(100)
    assert shares is not None
    assert shares.tolist() == pytest.approx([0.2, 0.3, 0.5])
    assert [domains.count(name) for name in "abc"] == [20, 30, 50]


def test_all_draws_of_a_step_follow_one_decision():
    run = Run(block("toys:Called"), ("a", "b"))
    run.step = 1
    first = run.next_draw(4)[1]
    assert first is not None
    run.finish(named(make_batch(REWARDS, domains=["a", "b"]), ("a", "b")))
    again = run.next_draw(4)[1]
    assert again is not None
    assert first.tolist() == again.tolist() == [0.5, 0.5]
    run.end(named(make_batch(REWARDS, domains=["a", "b"]), ("a", "b")))
    run.step = 2
    later = run.next_draw(4)[1]
    assert later is not None
    assert later.tolist() == pytest.approx([1 / 3, 2 / 3])


def test_the_mixer_learns_at_the_end_of_each_step_and_decides_when_it_is_due():
    run = Run(block("toys:Called", warmup_step=2, update_step=3, initial={"a": 3, "b": 1}), ("a", "b"))
    shares = []
    for _ in range(8):
        step(run)
        shares.append(run.mix.proportions.tolist())
    mixer = run.mix.mixer
    assert isinstance(mixer, Called)
    assert mixer.updates == [4, 8, 12, 16, 20, 24, 28, 32]  # four rollouts a step
    third = pytest.approx([1 / 3, 2 / 3])
    # Steps 1 and 2 are the warm-up; decisions at steps 3 and 6.
    assert shares == [[0.75, 0.25]] * 2 + [[0.5, 0.5]] * 3 + [third] * 3


def test_the_data_decides_until_the_mixer_does():
    run = Run(block("toys:Called", warmup_step=1), ("a", "b"))
    run.table = DomainTable.from_codes(np.array([0, 0, 0, 1]), ("a", "b"))
    run.mix.begin(("a", "b"), torch.from_numpy(run.table.shares))
    assert run.mix.proportions.tolist() == [0.75, 0.25]


@pytest.mark.parametrize("where", ["policy", "run"])
def test_in_shadow_nothing_is_proposed_and_all_is_logged(where: str):
    of_policy = {"policies": [block("static", params={"proportions": [1, 3]}, shadow=True)]}
    of_run = block("static", params={"proportions": [1, 3]}, shadow=True)
    run = Run(of_policy if where == "policy" else of_run, ("a", "b"))
    run.step = 1
    assert run.next_draw(4)[1] is None
    run.finish(named(make_batch(REWARDS, domains=["a", "b"]), ("a", "b")))
    metrics = run.end(named(make_batch(REWARDS, domains=["a", "b"]), ("a", "b")))
    assert metrics["dataflex/prop_a"] == 0.25
    assert metrics["dataflex/policy/static/shadow"] == 1
    assert run.mix.stats.proportions.tolist() == [0.5, 0.5], "what was drawn by is the data"


def test_a_mixer_that_raises_stops_the_run_with_its_name():
    run = Run(block("toys:Called", params={"raises": True}), ("a", "b"))
    with pytest.raises(HandlerError, match=r"'toys:Called'.*buffer_sample.*step 1"):
        step(run)


def test_a_mixer_that_is_detached_leaves_the_draw_to_the_data():
    run = Run({**block("toys:Called", params={"raises": True}), "on_error": "detach"}, ("a", "b"))
    run.step = 1
    assert run.next_draw(4)[1] is None


# ---------------------------------------------------------------- what is counted


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


# ---------------------------------------------------------------- what it is good for


def after(block: dict[str, Any], skills: Mapping[str, Skill], steps: int, seed: int) -> dict[str, float]:
    """Mean proportions over a run."""
    run, learner = Run(block, tuple(skills), rows=200), Learner(skills, seed)
    shares = []
    for _ in range(steps):
        run.take_step(learner)
        shares.append(run.mix.proportions)
    return dict(zip(skills, torch.stack(shares).mean(dim=0).tolist(), strict=True))


FOUR = {
    "mastered": MASTERED,
    "impossible": IMPOSSIBLE,
    "ahead": Skill(0.5, 0.95, 4000),
    "behind": Skill(0.1, 0.9, 4000),
}


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("mixer", ["dump_ucb", "sec"])
def test_what_is_mastered_or_hopeless_loses_share(mixer: str, seed: int):
    share = after(block(mixer), FOUR, 60, seed)
    assert max(share["mastered"], share["impossible"]) < 0.2
    assert min(share["ahead"], share["behind"]) > 0.3


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_lags_gains_under_reward_gap(seed: int):
    share = after(
        block("reward_gap", params={"temperature": 0.3}), {"ahead": MASTERED, "behind": Skill(0.2, 0.3)}, 20, seed
    )
    assert share["behind"] > 0.6


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_moves_gains_under_tscl(seed: int):
    moving = {"still": Skill(0.5, 0.5), "moving": Skill(0.0, 1.0, needed=600)}
    run, learner = Run(block("tscl", params={"temperature": 0.02}), tuple(moving), rows=200), Learner(moving, seed)
    best = 0.0
    for _ in range(8):
        run.take_step(learner, prompts=32)
        best = max(best, run.mix.proportions[1].item())
    assert best > 0.6


# ---------------------------------------------------------------- restarts


@pytest.mark.parametrize("mixer", ["static", "reward_gap", "dump_ucb", "tscl", "sec", "exp3"])
def test_a_restart_at_any_step_changes_nothing(mixer: str):
    skills = {"a": Skill(0.2, 0.9, 500), "b": Skill(0.5, 0.5), "c": IMPOSSIBLE}
    straight, learner = Run(block(mixer, warmup_step=1, update_step=2), tuple(skills)), Learner(skills, 3)
    restarted, other = Run(block(mixer, warmup_step=1, update_step=2), tuple(skills)), Learner(skills, 3)
    for _ in range(7):
        expected = straight.take_step(learner)
        metrics = restarted.take_step(other)
        expected.pop("timing_s/dataflex"), metrics.pop("timing_s/dataflex")
        assert metrics == expected
        saved, drawn = collect(restarted.plan.parts()), restarted.draw.state_dict()
        again = Run(block(mixer, warmup_step=1, update_step=2), tuple(skills))
        assert distribute(again.plan.parts(), saved) == []
        again.draw.load_state_dict(drawn)
        again.step, restarted = restarted.step, again


def test_what_has_changed_starts_fresh_and_is_told():
    run = Run({"policies": [block("sec", name="m")]}, ("a", "b"))
    step(run)
    saved = collect(run.plan.parts())
    other = Run({"policies": [block("sec", name="m", params={"alpha": 0.1})]}, ("a", "b"))
    (told,) = distribute(other.plan.parts(), saved)
    assert told.startswith("mixer: starts fresh, because the checkpoint has the state of ")
    assert "alpha=0.5" in told and "alpha=0.1" in told
    assert other.mix.stats.count.tolist() == [2, 2], "the statistics are still about the same"
    renamed = Run({"policies": [block("sec", name="n")]}, ("a", "b"))
    assert distribute(renamed.plan.parts(), saved) == [], "a name makes no difference: a run has one mix"
    another = Run({"policies": [block("sec", "reward", name="m")]}, ("a", "b"))
    assert len(distribute(another.plan.parts(), saved)) == 2
    assert another.mix.mixer.state_dict()["q"].tolist() == [0, 0], "what was learnt from other scores is no use"
    others = Run({"policies": [block("sec", name="m")]}, ("b", "a"))
    assert len(distribute(others.plan.parts(), saved)) == 2
    assert others.mix.stats.count.tolist() == [0, 0]


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (block("stattic"), "dataflex.actuator.name: unknown mixer 'stattic' (did you mean 'static'?)"),
        (block("sec", window=3), "dataflex.window: the mixer 'sec' has no window"),
        (block("sec", "token_prob"), "dataflex.scorer.name: scores tokens; a mixer needs a score per rollout"),
        (block("sec", apply="drop"), "dataflex.apply: is not for `mechanism: mix`, which decides what is drawn"),
        (block("sec", initial=3), "dataflex.initial: should be 'data', 'uniform' or a mapping from domains to numbers"),
        (block("sec", initial={"a": -1}), "dataflex.initial: should be 'data', 'uniform' or a mapping from domains"),
        (block("sec", initial={"a": 0}), "dataflex.initial: should give some domain more than 0"),
        (block("sec", initial="uniform"), "dataflex.initial: holds during the warm-up, and `warmup_step` is 0"),
        (block("sec", unlisted="keep"), "dataflex.unlisted: is 'keep', and without `domains` all domains are kept"),
        (block("sec", domains=[]), "dataflex.domains: should not be empty, not []"),
        (block("sec", domains=["a", "a"]), "dataflex.domains: should name each domain once; 'a' is there more often"),
        (
            block("sec", "advantage_magnitude", scorer={"name": "advantage_magnitude", "params": {"agg": "max"}}),
            "dataflex.scorer.params.agg: is for tokens",
        ),
        (
            block("sec", domains=["a", "b"], initial={"a": 1, "c": 1}, warmup_step=1),
            "dataflex.initial: unknown domain 'c' (known: a, b); no proportion for 'b'",
        ),
        (
            block("reward_gap", domains=list("abc"), params={"floor": 0.5}),
            "dataflex.actuator.params: floor",
        ),
        (
            block("reward_gap", window=3, params={"window": 4}),
            "dataflex.actuator.params.window: is 4, but 3 in the policy",
        ),
        (
            {**block("sec"), "mechanism": "select", "scorer": {"name": "reward"}, "domains": ["a"]},
            "dataflex.domains: is for `mechanism: mix`",
        ),
    ],
)
def test_mistakes(wrong: dict[str, Any], message: str):
    with pytest.raises(ConfigError) as refused:
        make_plan(wrong)
    assert message in str(refused.value)


def test_a_score_that_comes_too_late_is_refused():
    with pytest.raises(ConfigError, match="can run only after advantages are computed"):
        make_plan(block("sec", "toys:LateScore"))


def test_the_magnitude_of_advantages_means_that_of_groups_here():
    plan = make_plan(block("sec", "advantage_magnitude"))
    assert plan.mix is not None
    assert plan.mix.key.name == "group_advantage"


def test_all_domains_can_be_named_where_unlisted_ones_are_kept():
    shares = {"proportions": {"a": 1, "b": 3}}
    plan = make_plan(block("static", domains=["a"], unlisted="keep", params=shares))
    assert plan.mix is not None
    plan.mix.begin(("a", "b"), torch.tensor([0.5, 0.5]))
    assert plan.mix.mixer.mix(plan.mix.stats).tolist() == [0.25, 0.75]


def test_a_window_of_the_policy_is_that_of_the_mixer():
    plan = make_plan(block("reward_gap", window=7))
    assert plan.mix is not None
    assert plan.mix.mixer.keeps_steps == 7
    assert make_plan(block("static", window=7)).mix is not None, "DataFlex-RL's files have one there too"
