"""A mix policy on the bus: what it proposes at draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mixbus import REWARDS, Run, block, named, step
from toys import Called

from dataflex_events import BufferSample, EventBus, HandlerError, HandlerOutputError, RunFacts, StepDriver, StepId
from dataflex_events.pools import DomainTable
from dataflex_events.testing import make_batch


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


def test_a_driver_in_shadow_decides_nothing_whoever_proposes():
    bus = EventBus()
    bus.subscribe(BufferSample, lambda event: event.context.mix(torch.tensor([1.0, 3.0])), name="somebody")
    drawn = [
        StepDriver(bus, RunFacts(), shadow=shadow)
        .buffer_sample(StepId(1), 4, ("a", "b"), torch.tensor([2, 2]))
        .proportions
        for shadow in (False, True)
    ]
    assert drawn[0] is not None
    assert drawn[0].tolist() == [0.25, 0.75]
    assert drawn[1] is None


def test_two_who_propose_are_named():
    bus = EventBus()
    for name in ("one", "other"):
        bus.subscribe(BufferSample, lambda event: event.context.mix(torch.tensor([1.0])), name=name)
    with pytest.raises(HandlerOutputError, match="'one' and 'other' both propose proportions"):
        StepDriver(bus, RunFacts()).buffer_sample(StepId(1), 4, ("a",), torch.tensor([2]))
