"""A mix policy after a restart."""

from __future__ import annotations

import pytest
from mixbus import Run, block, step
from mixlearner import IMPOSSIBLE, Learner, Skill

from dataflex_events.checkpoint import collect, distribute


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
