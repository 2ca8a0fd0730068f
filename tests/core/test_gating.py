"""A gate policy on the bus: what it counts, when it acts, what it logs."""

import math

import numpy as np
import pytest
from gatebus import GateRun, gate_block
from gatekit import Fixed, held, table_of

from dataflex_events import (
    BufferSample,
    EventBus,
    HandlerError,
    HandlerOutputError,
    RunFacts,
    StepDriver,
    StepId,
)
from dataflex_events.checkpoint import collect, distribute
from dataflex_events.prompts import PromptDraw
from dataflex_events.testing import make_batch

NAN = math.nan


def counts(run, rows):
    known = run.known(rows)
    return list(zip(known.visits.tolist(), known.rollouts.tolist(), known.successes.tolist(), strict=True))


def test_outcomes_are_counted_by_row_at_the_end_of_the_step():
    run = GateRun(gate_block())
    batch = make_batch([[1, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]], row_ids=[7, 3, 9])
    run.finish(batch)
    assert counts(run, [3, 7, 9]) == [(0, 0, 0)] * 3
    run.end(batch)
    assert counts(run, [3, 7, 9, 0]) == [(1, 4, 4), (1, 4, 2), (1, 4, 0), (0, 0, 0)]
    assert run.known([3, 7, 9]).streak.tolist() == [1, 0, -1]
    assert run.known([3, 7, 9]).latest.tolist() == [1, 0.5, 0]


def test_groups_that_come_in_parts_count_in_one_step():
    run = GateRun(gate_block())
    run.finish(make_batch([[1, 0]], row_ids=[7]))
    batch = make_batch([[0, 0], [1, 1]], row_ids=[7, 8])
    run.finish(batch)
    run.end(batch)
    assert counts(run, [7, 8]) == [(2, 4, 1), (1, 2, 2)]


def test_failed_groups_count_with_what_there_is():
    run = GateRun(gate_block())
    # Of row 7 one rollout is missing, of row 8 all, and nobody knows which row the last group was of.
    batch = make_batch([[1, 0, 1]], row_ids=[7])
    run.finish(batch, [7, 8, -1])
    run.end(batch)
    assert counts(run, [7, 8]) == [(1, 3, 2), (0, 0, 0)]
    assert int(run.known(range(40)).visits.sum()) == 1


def test_rewards_that_are_not_finite_do_not_count():
    run = GateRun(gate_block())
    run.take_step([[NAN, 1, 1], [NAN, math.inf], [0, NAN]], [7, 8, 9])
    assert counts(run, [7, 8, 9]) == [(1, 2, 2), (0, 0, 0), (1, 1, 0)]
    assert run.known([7, 8, 9]).streak.tolist() == [1, 0, 0]


def test_a_session_with_several_outputs_is_one_rollout():
    run = GateRun(gate_block())
    # Rollouts of sessions 0, 0, 1: the last output of each decides.
    run.take_step([[0, 1, 0], [1, 0, 0]], [7, 8], sessions=[0, 0, 1, 0, 0, 1])
    assert counts(run, [7, 8]) == [(1, 2, 1), (1, 2, 0)]
    assert run.known([7, 8]).streak.tolist() == [0, -1]


def test_float_noise_is_no_difference():
    run = GateRun(gate_block())
    noisy = np.float32(0.9) + np.float32(6e-8)
    assert noisy != np.float32(0.9)
    run.take_step([[0.9, noisy, 0.9], [0.1, 0.1, 0.1 + 1e-7], [0.9, 0.9, 0.89]], [7, 8, 9])
    assert run.known([7, 8, 9]).streak.tolist() == [1, -1, 0]
    assert counts(run, [9]) == [(1, 3, 3)]  # all succeeded, and not equally well


@pytest.mark.parametrize(("threshold", "solved"), [(0.5, 1), (0.1, 2), (0.0, 3), (0.9, 0), (-1.0, 4)])
def test_a_success_is_above_the_threshold(threshold, solved):
    run = GateRun(gate_block(success_threshold=threshold))
    run.take_step([[0.0, 0.1, 0.5, 0.9]], [7])
    assert counts(run, [7]) == [(1, 4, solved)]


@pytest.mark.parametrize("signal", ["acc", "outcome/acc"])
def test_another_signal(signal):
    run = GateRun(gate_block(signal=signal))
    assert run.driver.group_fields == {"outcome/acc", "row_id"}
    run.take_step([[0.9, 0.8], [0.7, 0.9]], [7, 8], outcomes={"acc": [[0, 1], [0, 0]]})
    assert counts(run, [7, 8]) == [(1, 2, 1), (1, 2, 0)]
    assert run.known([7, 8]).streak.tolist() == [0, -1]  # rewards differ, and what counts does not


def test_the_gate_is_due_after_the_warm_up_in_one_step_of_so_many():
    run, due = GateRun(gate_block(warmup_step=2, update_step=3)), []
    for _ in range(9):
        run.next_draw(2)
        due.append(run.decision.gate is run.gate)
        run.take_step([[1, 0]], [7])
    assert due == [False, False, True, False, False, True, False, False, True]
    assert counts(run, [7]) == [(9, 18, 9)], "what is generated counts in every step"


def test_what_is_known_decides_what_is_drawn():
    run = GateRun(gate_block(params={"explore": 0.0}), sizes=(12,))
    solved = [0, 1, 2, 3, 4, 5]
    run.take_step([[1, 1]] * 6, solved)
    rows = run.next_draw(6)
    assert sorted(rows) == [6, 7, 8, 9, 10, 11]
    run.end(make_batch([[1, 0]], row_ids=[6]))


def test_the_metrics_by_hand():
    run = GateRun(gate_block(params={"explore": 0.5}), sizes=(12,))
    metrics = run.take_step([[1, 1, 1, 1]] * 6, [0, 1, 2, 3, 4, 5])
    assert "dataflex/gate/drawn" not in metrics
    first = run.next_draw(2)
    assert (run.planned.explored, len(first)) == (1, 2)
    passed = run.planned.skipped.tolist()
    run.next_draw(4)
    assert run.planned.explored == 2
    passed += run.planned.skipped.tolist()
    equal = sum(row <= 5 for row in passed)
    assert equal > 0
    metrics = run.take_step([[1, 0, 1, 0]] * 6, range(6, 12))
    assert {name: value for name, value in metrics.items() if "/gate/" in name} == {
        "dataflex/gate/drawn": 6.0,
        "dataflex/gate/skipped": len(passed),
        "dataflex/gate/explored": 3.0,
    }
    # Each of those with equal outcomes is a prompt with 4 rollouts that taught nothing before.
    assert metrics["dataflex/rollouts_saved"] == 4 * equal
    assert metrics["dataflex/rollouts_generated"] == 24
    assert metrics["dataflex/rollouts_useful"] == 24
    again = run.take_step([[1, 0, 1, 0]], [6])
    assert "dataflex/gate/drawn" not in again, "nothing of one step is told again in the next"


def test_a_gate_that_fails_is_named_or_leaves_and_the_draw_goes_on():
    for on_error in ("raise", "detach"):
        run = GateRun({**gate_block("gatescores:Breaks", params={}), "on_error": on_error}, sizes=(12,))
        if on_error == "raise":
            with pytest.raises(
                HandlerError, match=r"^handler 'gatescores:Breaks' failed at buffer_sample, step 1: KeyError"
            ):
                run.next_draw(4)
            continue
        without = PromptDraw(run.table, seed=0)
        assert run.next_draw(4) == without.plan(4).rows.tolist()
        assert run.next_draw(4) == without.plan(4).rows.tolist()
        assert run.driver.bus.errors == {"gatescores:Breaks": 1}


def test_what_a_choice_among_many_saves():
    run = GateRun(gate_block("mopps", params={"candidates": 4, "explore": 0.0}), sizes=(8,))
    run.take_step([[1, 1, 1, 1]] * 8, range(8))
    run.next_draw(2)
    assert len(run.planned.skipped) == 6
    metrics = run.take_step([[1, 0, 1, 0]] * 2, [0, 1])
    # Of every 4 candidates one is drawn anyway: 6 prompts with 4 rollouts, a quarter of these.
    assert metrics["dataflex/rollouts_saved"] == 6


def test_the_bill_counts_rollouts_and_not_their_outputs():
    run = GateRun(gate_block())
    metrics = run.take_step([[0, 1, 0], [1, 0, 0]], [7, 8], sessions=[0, 0, 1, 0, 0, 1])
    assert (metrics["dataflex/rollouts_generated"], metrics["dataflex/rollouts_useful"]) == (4, 2)


def test_the_bill_knows_weights():
    weigh = {"mechanism": "reweight", "scorer": {"name": "reward"}, "actuator": {"name": "toys:AsWeights"}}
    run = GateRun({"policies": [gate_block(), weigh]})
    metrics = run.take_step([[1, 0, 0, 0], [1, 1, 1, 0]], [7, 8])
    assert metrics["dataflex/rollouts_useful"] == 4  # the others have weight 0


def test_without_a_baseline_of_the_group_nobody_can_say_what_is_useful():
    run = GateRun(gate_block("adarft", params={"column": "level"}), columns={"level": np.arange(40.0)})
    run.driver = StepDriver(run.plan.bus(), RunFacts(group_baseline=False))
    run.driver.start()
    metrics = run.take_step([[1, 0, 0]], [7])
    assert metrics["dataflex/rollouts_generated"] == 3
    assert "dataflex/rollouts_useful" not in metrics


@pytest.mark.parametrize("where", ["policy", "run"])
def test_in_shadow_it_is_shown_and_not_applied(where):
    block = gate_block(params={"explore": 0.0}, shadow=True)
    run = GateRun({"policies": [block]} if where == "policy" else block, sizes=(12,))
    without = GateRun(gate_block(warmup_step=99), sizes=(12,))
    for one in (run, without):
        one.take_step([[1, 1]] * 6, range(6))
    assert run.next_draw(6) == without.next_draw(6)
    assert run.decision.gate is None
    assert run.decision.shadow_gate is run.gate
    assert run.plan.draws is False
    metrics = run.take_step([[1, 0]] * 6, range(6))
    assert metrics["dataflex/gate/drawn"] == 6
    assert metrics["dataflex/gate/skipped"] > 0
    assert metrics["dataflex/policy/learnability/shadow"] == 1
    assert counts(run, [0]) == [(2, 4, 3)]


def test_mix_and_gate_compose():
    mix = {"mechanism": "mix", "actuator": {"name": "static", "params": {"proportions": [3, 1]}}}
    run = GateRun({"policies": [mix, gate_block(params={"explore": 0.0})]}, sizes=(20, 20))
    batch = make_batch([[1, 1]] * 10, row_ids=[*range(5), *range(20, 25)], domains=["d0"] * 5 + ["d1"] * 5)
    run.finish(batch)
    run.end(batch)
    rows = run.next_draw(16)
    assert [run.planned.domains.tolist().count(domain) for domain in (0, 1)] == [12, 4]
    assert not {*range(5), *range(20, 25)} & set(rows)


def test_two_gates_are_an_error():
    bus, table = EventBus(), table_of([3])
    for name in ("one", "other"):
        gated = held(Fixed([0.0] * 3), table)
        bus.subscribe(BufferSample, lambda event, gated=gated: event.context.gate(gated), name=name)
    with pytest.raises(HandlerOutputError, match="'one' and 'other' both propose gates; a draw can follow"):
        StepDriver(bus, RunFacts()).buffer_sample(StepId(1), 4)


def test_what_a_handler_proposed_is_forgotten_with_it():
    table = table_of([3])

    def propose_and_fail(event):
        event.context.gate(held(Fixed([0.0] * 3), table))
        event.context.gate(held(Fixed([0.0] * 3), table), shadow=True)
        raise RuntimeError("no idea")

    bus = EventBus(on_error="detach")
    bus.subscribe(BufferSample, propose_and_fail, name="one")
    decision = StepDriver(bus, RunFacts()).buffer_sample(StepId(1), 4)
    assert (decision.gate, decision.shadow_gate) == (None, None)


@pytest.mark.parametrize("gate", ["greso", "mopps", "learnability", "difficulty_pools", "adarft"])
def test_a_restart_at_any_step_changes_nothing(gate):
    params = {"column": "level"} if gate == "adarft" else {}
    given = {"level": np.arange(60, dtype=np.float64) % 17}
    chance = np.random.default_rng(0)
    straight, restarted = (GateRun(gate_block(gate, params=params), sizes=(40, 20), columns=given) for _ in range(2))
    for _ in range(8):
        expected = straight.next_draw(12)
        assert restarted.next_draw(12) == expected
        rewards = (chance.random((12, 4)) < chance.random((12, 1))).astype(float).tolist()
        told = [run.take_step(rewards, expected) for run in (straight, restarted)]
        for metrics in told:
            metrics.pop("timing_s/dataflex")
        assert told[0] == told[1]
        saved, drawn = collect(restarted.plan.parts()), restarted.draw.state_dict()
        again = GateRun(gate_block(gate, params=params), sizes=(40, 20), columns=given)
        assert distribute(again.plan.parts(), saved) == []
        again.draw.load_state_dict(drawn)
        again.step, restarted = restarted.step, again


def test_statistics_of_other_outcomes_start_fresh_and_another_gate_keeps_them():
    run = GateRun(gate_block())
    run.take_step([[1, 0]], [7])
    saved = collect(run.plan.parts())
    for changes in ({"signal": "acc"}, {"success_threshold": 0.7}):
        other = GateRun(gate_block(**changes))
        (told,) = distribute(other.plan.parts(), saved)
        assert told.startswith("prompts: starts fresh, because the checkpoint has the state of ")
        assert counts(other, [7]) == [(0, 0, 0)]
    other = GateRun(gate_block("greso", name="mine"))
    told = distribute(other.plan.parts(), saved)
    assert len(told) == 1 and told[0].startswith("gate: the checkpoint has no state of it")
    assert counts(other, [7]) == [(1, 2, 1)]
