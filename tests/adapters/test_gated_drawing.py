"""A gate around verl's draw: alone, with a mix, with a refill, in shadow, and over a restart."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from drawtrainer import DrawTrainer as Trainer
from torchdata.stateful_dataloader import StatefulDataLoader

from dataflex_events import ConfigError, VerificationError
from dataflex_events.state import StateError

MIX: dict[str, Any] = {"mechanism": "mix", "actuator": {"name": "static", "params": {"proportions": [3, 1]}}}
TWO = ["a", "b"] * 10
ONE = [f"row {row}" for row in range(20)]


def gate(name: str, *, shadow: bool = False, **params: Any) -> dict[str, Any]:
    return {"mechanism": "gate", "actuator": {"name": name, "params": params}, "shadow": shadow}


def band(**refill: Any) -> dict[str, Any]:
    scorer, actuator = {"name": "group_solve_rate"}, {"name": "threshold_band"}
    return {"mechanism": "select", "scorer": scorer, "actuator": actuator, "refill": refill}


def together(*policies: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"policies": list(policies), **options}


EVEN = gate("gatetoys:OnlyRows")
NOTHING = gate("gatetoys:OnlyRows", rests=[])
FIRST = gate("gatetoys:FirstRows")


def counts(trainer: Trainer) -> dict[str, float]:
    """What a step has logged about the gate."""
    metrics = trainer._driver.step_end(trainer._step_id())
    return {
        name.removeprefix("dataflex/gate/"): value
        for name, value in metrics.items()
        if name.startswith("dataflex/gate/")
    }


# ------------------------------------------------------------------ what is drawn


@pytest.mark.parametrize("size", [None, 1, 2])
def test_what_the_gate_skips_is_not_drawn(size: int | None):
    trainer = Trainer(EVEN, ONE, gen_batch_size=size)
    drawn = [row for _ in range(10) for row in trainer.rows()]
    assert set(drawn) == set(range(0, 20, 2)), "and all others are"
    assert len(drawn) == 40


def test_nor_in_a_refill():
    trainer = Trainer(together(EVEN, band()), ONE * 10, gen_batch_size=1)
    for _ in range(5):
        drawn = trainer.rows() + trainer.more(3) + trainer.more(2)
        assert len(set(drawn)) == 9
        assert {row % 2 for row in drawn} == {0}


def test_the_gate_chooses_within_the_domains_and_shares_stay():
    trainer = Trainer(together(MIX, gate("gatetoys:OnlyRows", modulo=4, rests=[0, 1])), TWO * 10)
    for _ in range(10):
        rows = trainer.rows()
        assert Counter("ab"[row % 2] for row in rows) == Counter(a=3, b=1)
        assert {row % 4 for row in rows} == {0, 1}


def test_counts_are_of_the_step():
    """All 20 rows come up for a gate that skips all; 4 of them are drawn nevertheless."""
    trainer = Trainer(NOTHING, ONE)
    for _ in range(2):
        trainer.rows()
        assert counts(trainer) == {"drawn": 4, "skipped": 16, "explored": 0}


def test_in_its_warm_up_all_rows_are_drawn():
    trainer = Trainer({**EVEN, "warmup_step": 6}, ONE)
    warm = [row for _ in range(5) for row in trainer.rows()]  # the steps 2 to 6
    assert sorted(warm) == list(range(20)), "an epoch"
    assert counts(trainer) == {}
    assert {row % 2 for row in trainer.rows()} == {0}


@pytest.mark.parametrize("eager", [True, False])
def test_a_row_of_this_step_does_not_come_back_while_there_are_others(eager: bool):
    trainer = Trainer(together(FIRST, band(eager=eager)), ONE[:6], gen_batch_size=1)
    for _ in range(2):
        assert sorted(trainer.rows()) == [0, 1, 2, 3]
        assert sorted(trainer.more(2)) == [4, 5]
        assert len(trainer.more(2)) == 2, "there are no others"


def test_a_frugal_refill_does_not_depend_on_how_many_prompts_are_asked_for_at_once():
    def drawn(*refills: tuple[int, ...]) -> list[list[int]]:
        block = together(gate("mopps", candidates=3), band(eager=False))
        trainer = Trainer(block, ONE, gen_batch_size=1)
        steps = []
        for counted in refills:
            steps.append(trainer.rows() + [row for count in counted for row in trainer.more(count)])
        return steps

    once = drawn((3,), (2,), (4,))
    assert drawn((1, 2), (1, 1), (2, 1, 1)) == once
    assert drawn((2, 1), (2,), (1, 3)) == once


def test_other_rows_than_the_gates_stop_the_run():
    trainer = Trainer(EVEN, ONE)
    trainer._sampler.planned.append(7)  # somebody else has drawn as well
    with pytest.raises(VerificationError, match=r"verl drew the rows \[7, .* were planned"):
        trainer.rows()


# ------------------------------------------------------------------ in shadow


def drawn_by_verl(block: dict[str, Any] | None) -> list[str]:
    """More than an epoch, with the same random numbers whatever the block is."""
    torch.manual_seed(5)
    trainer = Trainer(block, ONE, gen_batch_size=1)
    return [
        name for _ in range(7) for name in trainer.draw() + [str(n) for n in trainer._next_train_batch(2)["domain"]]
    ]


@pytest.mark.parametrize(
    "block",
    [
        gate("gatetoys:OnlyRows", rests=[], shadow=True),
        {**NOTHING, "shadow": True},
        together(EVEN, shadow=True),
        together({"mechanism": "mix", "actuator": {"name": "sec"}, "shadow": True}, gate("mopps", shadow=True)),
        together(gate("mopps"), band(eager=False), shadow=True),
    ],
)
def test_in_shadow_verl_draws_what_it_would_have_drawn(block: dict[str, Any]):
    assert drawn_by_verl(block) == drawn_by_verl(None)


@pytest.mark.parametrize("block", [gate("gatetoys:OnlyRows", rests=[], shadow=True), together(NOTHING, shadow=True)])
def test_and_the_gates_counts_are_logged(block: dict[str, Any]):
    trainer = Trainer(block, ONE)
    assert type(trainer.train_dataloader) is StatefulDataLoader
    for _ in range(2):
        trainer.rows()
        assert counts(trainer) == {"drawn": 4, "skipped": 16, "explored": 0}


def test_beside_a_shadow_mix_the_gate_draws_from_all_data():
    trainer = Trainer(together({**MIX, "shadow": True}, EVEN), TWO)
    assert {row % 2 for _ in range(5) for row in trainer.rows()} == {0}
    assert trainer._plan.mix is not None
    assert trainer._plan.mix.proportions.tolist() == [0.75, 0.25]


def test_beside_a_mix_a_shadow_gate_only_counts():
    """Of 10 rows of each domain 3 and 1 would be drawn."""
    alone, beside = Trainer(MIX, TWO), Trainer(together(MIX, {**NOTHING, "shadow": True}), TWO)
    for _ in range(7):
        assert beside.draw() == alone.draw()
        assert counts(beside) == {"drawn": 4, "skipped": 16, "explored": 0}


# ------------------------------------------------------------------ the data


def test_data_smaller_than_a_batch():
    with pytest.raises(ConfigError, match=r"data.train_batch_size: is 4, and the data has 3 rows: verl"):
        Trainer(EVEN, ONE[:3])


def test_the_column_that_a_gate_needs_is_looked_up_at_the_start():
    with pytest.raises(ConfigError, match=r"dataflex.actuator.params.column: the data has no column 'hardness'"):
        Trainer(gate("adarft", column="hardness"), ONE, columns={"difficulty": [0.0] * 20})


@pytest.mark.parametrize(("steps", "warned"), [(5, True), (6, False)])
def test_a_run_that_sees_each_prompt_once(steps: int, warned: bool, caplog: pytest.LogCaptureFixture):
    """Steps of 4 prompts from 20 rows."""
    Trainer(gate("greso"), ONE, steps=steps)
    assert ("the gate 'greso' cannot act" in caplog.text) == warned


# ------------------------------------------------------------------ a restart

GATES = [
    gate("greso"),
    gate("mopps", candidates=2, decay=0.5),
    gate("learnability"),
    gate("difficulty_pools"),
    gate("adarft", column="difficulty", step=7.0),
]
DIFFICULTY = {"difficulty": [(7 * row) % 20 for row in range(20)]}


def go(trainer: Trainer, steps: int) -> list[list[int]]:
    """Rows of each step, with a refill. A row's pass rate depends on its number and on the step."""
    drawn = []
    for _ in range(steps):
        rows = trainer.rows() + trainer.more(2)
        solved = [row % 3 * 4 if trainer.global_steps % 2 else row % 2 * 8 for row in rows]
        trainer._plan.gate.stats.add(rows, [8] * 6, solved, [number % 8 == 0 for number in solved])
        trainer._driver.step_end(trainer._step_id())
        drawn.append(rows)
    return drawn


def begun(folder: Path, *policies: dict[str, Any], domains: list[str] = TWO, **options: Any) -> Trainer:
    columns = {name: values[: len(domains)] for name, values in DIFFICULTY.items()}
    block = together(*policies)
    return Trainer(block, domains, folder=folder, gen_batch_size=1, columns=columns, **options)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("policy", GATES, ids=lambda policy: policy["actuator"]["name"])
def test_a_resumed_run_draws_what_a_straight_one_draws(policy: dict[str, Any], mixed: bool, tmp_path: Path):
    policies = [policy, *[MIX] * mixed, band(eager=False)]
    straight = go(begun(tmp_path, *policies), 8)
    first = begun(tmp_path, *policies)
    assert go(first, 4) == straight[:4]
    first._save_checkpoint()
    second = begun(tmp_path, *policies, resumed_at=first.global_steps)
    second._load_checkpoint()
    assert go(second, 4) == straight[4:]
    forgetful = begun(tmp_path, *policies, resumed_at=first.global_steps)
    forgetful.global_steps = first.global_steps
    assert go(forgetful, 4) != straight[4:], "it has something to remember"


@pytest.mark.parametrize("shadow", [False, True])
def test_with_other_data_the_statistics_would_be_about_other_prompts(shadow: bool, tmp_path: Path):
    policy = gate("greso", shadow=shadow)
    first = begun(tmp_path, policy)
    go(first, 1)
    first._save_checkpoint()
    other = begun(tmp_path, policy, domains=TWO[::-1], resumed_at=first.global_steps)
    with pytest.raises(StateError, match=r"is about other data.*delete the folder to start the statistics fresh"):
        other._load_checkpoint()


def test_a_shadow_gate_goes_on_with_its_statistics(tmp_path: Path):
    first = begun(tmp_path, gate("greso", shadow=True))
    rows = {row for step in go(first, 2) for row in step}
    first._save_checkpoint()
    second = begun(tmp_path, gate("greso", shadow=True), resumed_at=first.global_steps)
    second._load_checkpoint()
    visited = second._plan.gate.stats.look(range(20)).visits > 0
    assert set(visited.nonzero()[0].tolist()) == rows
