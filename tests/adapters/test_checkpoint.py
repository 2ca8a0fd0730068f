"""Our state in verl's checkpoints: what goes on, what starts fresh, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from dataflex_events.adapters.verl.checkpoint import checkpoint_folder, restore, save
from dataflex_events.adapters.verl.gates import whole_dataset
from dataflex_events.plan import Plan, make_plan
from dataflex_events.pools import DomainTable
from dataflex_events.prompts import PromptDraw
from dataflex_events.state import StateError

NAMES = ("a", "b")
CODES = np.array([0, 1] * 10)
SEC: dict[str, Any] = {"mechanism": "mix", "actuator": {"name": "sec"}}
BAND = {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}}
GRESO = {"mechanism": "gate", "actuator": {"name": "greso"}}
DATA, OTHER = "fingerprint of the data", "of other data"


def begun(*policies: dict[str, Any], names: tuple[str, ...] = NAMES) -> tuple[Plan, PromptDraw | None]:
    """A run that is about to start."""
    plan = make_plan({"policies": list(policies)})
    if plan.mix is None:
        return plan, None
    table = DomainTable.from_codes(CODES, names)
    plan.mix.begin(names, torch.from_numpy(table.shares))
    return plan, PromptDraw(table, seed=3)


def trained(plan: Plan, draw: PromptDraw | None) -> None:
    """A step with one rollout of domain a."""
    if plan.mix is not None and draw is not None:
        draw.plan(5)
        plan.mix.stats.add(torch.tensor([0]), torch.tensor([0.5]), torch.tensor([0]))
        plan.mix.stats.commit(1, plan.mix.proportions)
        plan.mix.mixer.update(plan.mix.stats)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of a run with `SEC` after one step."""
    plan, draw = begun(SEC)
    trained(plan, draw)
    save(tmp_path / "dataflex", plan, draw, DATA, 1)
    return tmp_path / "dataflex"


def restored(
    folder: Path, *policies: dict[str, Any], data: str = DATA, step: int = 1, **options: Any
) -> tuple[Plan, PromptDraw | None]:
    plan, draw = begun(*policies, **options)
    restore(folder, plan, draw, data, step)
    return plan, draw


def test_a_run_goes_on(folder: Path, caplog: pytest.LogCaptureFixture):
    plan, draw = restored(folder, SEC)
    assert plan.mix is not None and draw is not None
    assert plan.mix.stats.count.tolist() == [1, 0]
    assert plan.mix.mixer.state_dict()  # Q
    whole = PromptDraw(DomainTable.from_codes(CODES, NAMES), seed=3)
    whole.plan(5)
    assert draw.plan(20).rows.tolist() == whole.plan(20).rows.tolist()
    assert not caplog.records


@pytest.mark.parametrize("there", [False, True])
def test_switched_on_over_a_checkpoint_without_us(tmp_path: Path, caplog: pytest.LogCaptureFixture, there: bool):
    (tmp_path / "dataflex").mkdir() if there else None
    plan, _ = restored(tmp_path / "dataflex", SEC)
    assert plan.mix is not None
    assert plan.mix.stats.count.tolist() == [0, 0]
    assert "one without dataflex: all statistics start fresh" in caplog.text


@pytest.mark.parametrize("data", [DATA, OTHER])
def test_switched_off_again(folder: Path, caplog: pytest.LogCaptureFixture, data: str):
    restored(folder, BAND, data=data)
    assert "the order of the prompts is verl's own from here" in caplog.text
    assert "mix: its state in the checkpoint is not used" in caplog.text


def test_mix_joins_a_run_that_selected_only(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    plan, _ = begun(BAND, {**SEC, "shadow": True})
    save(tmp_path, plan, None, DATA, 1)
    restored(tmp_path, BAND, SEC)
    assert (
        "the order of the prompts starts fresh, because the checkpoint is of a run that drew as verl does"
        in caplog.text
    )


def test_nothing_is_written_where_there_is_nothing_to_remember(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    plan, draw = begun(BAND)
    save(tmp_path / "dataflex", plan, draw, DATA, 1)
    assert not (tmp_path / "dataflex").exists()
    restored(tmp_path / "dataflex", BAND)
    assert not caplog.records


def test_other_data_are_refused(folder: Path):
    with pytest.raises(StateError, match=r"is about other data.*delete the folder to start the statistics fresh"):
        restored(folder, SEC, data=OTHER)


def gated(**policy: Any) -> Plan:
    """A run with a gate that is about to start."""
    plan = make_plan({**GRESO, **policy})
    assert plan.gate is not None
    plan.gate.begin(whole_dataset(20), {})
    return plan


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """A checkpoint of a run whose shadow gate has seen one group, of row 3."""
    plan = gated(shadow=True)
    plan.gate.stats.add([3], [4], [4], [True])
    plan.gate.stats.commit()
    save(tmp_path / "dataflex", plan, None, DATA, 1)
    return tmp_path / "dataflex"


@pytest.mark.parametrize("shadow", [False, True])
def test_a_gates_statistics_go_on(watched: Path, shadow: bool):
    plan = gated(shadow=shadow)
    restore(watched, plan, None, DATA, 1)
    assert plan.gate.stats.look([3, 4]).visits.tolist() == [1, 0]


def test_a_gates_statistics_are_about_rows_of_the_data(watched: Path, caplog: pytest.LogCaptureFixture):
    """Also where verl draws."""
    with pytest.raises(StateError, match=r"is about other data.*delete the folder to start the statistics fresh"):
        restore(watched, gated(shadow=True), None, OTHER, 1)
    restored(watched, BAND, data=OTHER)  # without a gate nobody reads them
    assert "gate: its state in the checkpoint is not used" in caplog.text


def test_a_gate_joins_a_run_on_other_data(tmp_path: Path):
    plan, _ = begun({**SEC, "shadow": True})
    save(tmp_path, plan, None, OTHER, 1)
    gate = gated(shadow=True)
    restore(tmp_path, gate, None, DATA, 1)
    assert gate.gate.stats.look(range(20)).visits.tolist() == [0] * 20


@pytest.mark.parametrize("change", [{"success_threshold": 0.7}, {"signal": "acc"}])
def test_outcomes_that_are_counted_otherwise_start_fresh(
    watched: Path, change: dict[str, Any], caplog: pytest.LogCaptureFixture
):
    plan = gated(shadow=True, **change)
    restore(watched, plan, None, DATA, 1)
    assert plan.gate.stats.look([3]).visits.tolist() == [0]
    assert "gate: starts fresh" in caplog.text


def test_a_state_of_another_step_is_refused(folder: Path):
    with pytest.raises(StateError, match=r"is of step 1, the checkpoint of step 4: it was not written with it"):
        restored(folder, SEC, step=4)


def test_a_state_that_an_earlier_run_left_is_removed(folder: Path):
    save(folder, *begun(BAND), DATA, 1)
    assert not folder.exists()


def test_what_does_not_depend_on_rows_goes_on_with_other_data(tmp_path: Path):
    plan, _ = begun({**SEC, "shadow": True})
    trained(plan, PromptDraw(DomainTable.from_codes(CODES, NAMES), seed=3))
    save(tmp_path, plan, None, DATA, 1)
    again = make_plan({"policies": [{**SEC, "shadow": True}]})
    assert again.mix is not None
    again.mix.begin(NAMES, torch.tensor([0.5, 0.5]))
    restore(tmp_path, again, None, OTHER, 1)
    assert again.mix.stats.count.tolist() == [1, 0]


def test_other_domains_start_fresh(folder: Path, caplog: pytest.LogCaptureFixture):
    plan, draw = restored(folder, SEC, names=("a", "c"))
    assert plan.mix is not None and draw is not None
    assert plan.mix.stats.count.tolist() == [0, 0]
    assert draw.drawn.tolist() == [0, 0]
    assert "the order of the prompts starts fresh, because the domains are others" in caplog.text
    assert "mix: starts fresh" in caplog.text


def test_another_policy_of_the_same_name_starts_fresh(folder: Path, caplog: pytest.LogCaptureFixture):
    plan, draw = restored(folder, {**SEC, "name": "sec", "scorer": {"name": "reward"}})
    assert plan.mix is not None and draw is not None
    assert plan.mix.stats.count.tolist() == [0, 0]
    assert draw.drawn.sum() == 5, "the draw is still the same"
    assert "scores of group_advantage" in caplog.text and "scores of reward" in caplog.text


def rewrite(folder: Path, **changes: Any) -> None:
    file = folder / "state.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: rewrite(folder, schema=2), "schema 2"),
        (lambda folder: rewrite(folder, schema=0), "schema 0"),
        (lambda folder: rewrite(folder, format="something else"), "state.json"),
        (lambda folder: (folder / "state.json").write_text("{"), "state.json"),
        (lambda folder: next(folder.glob("*.safetensors")).write_bytes(b""), "safetensors"),
        (lambda folder: next(folder.glob("*.safetensors")).unlink(), "safetensors"),
    ],
)
def test_a_state_that_cannot_be_read_is_refused(folder: Path, harm: Any, message: str):
    harm(folder)
    with pytest.raises(StateError, match=message):
        restored(folder, SEC)


def config(mode: str, path: str | None = None) -> Any:
    trainer = {"default_local_dir": "/runs/one", "resume_mode": mode, "resume_from_path": path}
    return OmegaConf.create({"trainer": trainer})


def test_the_folder_is_in_the_checkpoint_from_which_verl_resumes():
    assert checkpoint_folder(config("auto"), 7) == Path("/runs/one/global_step_7/dataflex")
    elsewhere = config("resume_path", "/old/global_step_7")
    assert checkpoint_folder(elsewhere, 7) == Path("/old/global_step_7/dataflex")
    assert checkpoint_folder(elsewhere, 8, latest=True) == Path("/runs/one/global_step_8/dataflex")


class Forgetful:
    """A handler with a state that it cannot read again."""

    def state_dict(self) -> dict[str, int]:
        return {"seen": 1}

    def load_state_dict(self, state: dict[str, int]) -> None:
        raise ValueError("it was a Tuesday")


def test_a_part_that_cannot_read_its_own_state_is_named(tmp_path: Path):
    plan, _ = begun(BAND)
    plan = Plan(plan.settings, plan.policies, ((None, Forgetful()),))
    save(tmp_path, plan, None, DATA, 1)
    with pytest.raises(StateError, match=r"handler Forgetful cannot go on from its state .*: it was a Tuesday"):
        restore(tmp_path, plan, None, DATA, 1)
