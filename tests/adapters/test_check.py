"""`dataflex-events check` says what the run would say, and what the run would do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from fakeverl import FakeVerl
from omegaconf import OmegaConf
from runfiles import BLOCK, RUN, WRONG_BLOCK, under_dataflex
from tenmistakes import FILE, LINES, MESSAGE

from dataflex_events import ConfigError, cli
from dataflex_events.adapters.verl.commands._compose import load
from dataflex_events.adapters.verl.preflight import checking

pytestmark = pytest.mark.verl

MISTAKES = """\
2 mistakes in the dataflex configuration:
  - dataflex.policies[0].scorer.name: unknown scorer 'group_solv_rate' (did you mean 'group_solve_rate'?)
  - dataflex.policies[0].actuator.params.lo: unknown key (did you mean 'low'?)"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty; `sys.path` is put back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def write(name: str, *texts: str) -> str:
    Path(name).write_text("".join(texts))
    return name


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = cli.main(["check", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


# ------------------------------------------------------------------ the file of a run


def test_a_right_run_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = check(capsys, write("run.yaml", RUN, under_dataflex(BLOCK)))
    assert (status, err) == (0, "")
    assert "policy 'threshold_band' (select)" in out
    assert "leave the batch, before log-probs, reference and update" in out
    assert "the weights, scaled to mean 1 over valid tokens," in " ".join(
        out.split()
    )  # as this run's loss_agg_mode asks


def test_a_wrong_run_gets_the_message_of_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    file = write("run.yaml", RUN, under_dataflex(WRONG_BLOCK))
    assert check(capsys, file) == (1, "", f"dataflex-events: {MISTAKES}\n")
    with pytest.raises(ConfigError) as of_the_run:
        checking(lambda config: None)(load([file]).config)
    assert str(of_the_run.value) == MISTAKES


def test_ten_mistakes_are_told_of_in_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(LINES) == 10
    assert check(capsys, str(FILE)) == (1, "", f"dataflex-events: {MESSAGE}\n")


def test_overrides_count(capsys: pytest.CaptureFixture[str]) -> None:
    file = write("run.yaml", RUN, under_dataflex(BLOCK))
    assert check(capsys, file, "trainer.v1.trainer_mode=sync")[2] == (
        "dataflex-events: 1 mistake in the dataflex configuration:\n"
        "  - trainer.v1.trainer_mode: 'sync' would ignore the dataflex block; use 'dataflex_sync'\n"
    )
    out = check(capsys, file, "actor_rollout_ref.actor.policy_loss.loss_mode=geo_mean")[1]
    assert "multiplied into the column `advantages` of the policy loss" in " ".join(out.split())
    assert "the weights, scaled to mean 1 over rows," in " ".join(out.split())


def test_a_run_may_be_given_by_overrides_alone(capsys: pytest.CaptureFixture[str]) -> None:
    block = "++dataflex={mechanism:select,scorer:{name:reward},actuator:{name:threshold_band}}"
    status, out, err = check(capsys, "trainer.v1.trainer_mode=dataflex_sync", block)  # verl's default is a critic
    assert (status, out) == (1, "")
    assert err.startswith("dataflex-events: 1 mistake in the dataflex configuration:\n  - algorithm.adv_estimator: ")


def test_what_verl_itself_refuses_is_said_after_the_description(capsys: pytest.CaptureFixture[str]) -> None:
    file = write("run.yaml", RUN, under_dataflex(BLOCK))
    status, out, err = check(capsys, file, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null")
    assert status == 1
    assert "policy 'threshold_band' (select)" in out
    assert err.startswith("dataflex-events: verl refuses this run: ") and err.count("\n") == 1
    assert "ppo_micro_batch_size_per_gpu" in err


def test_a_run_without_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(capsys, write("run.yaml", RUN)) == (1, "", "dataflex-events: there is no `dataflex:` block\n")


def test_verls_own_configuration_comes_before_a_copy_next_to_the_file() -> None:
    """As with `--config-dir`, where verl's folder is searched first."""
    write("ppo_trainer.yaml", "mine: 1\n")
    config = load([write("run.yaml", RUN)]).config
    assert "mine" not in config and "data" in config


def test_with_another_verl(fake_verl: FakeVerl, capsys: pytest.CaptureFixture[str]) -> None:
    fake_verl("0.8.0")
    status, _, err = check(capsys, write("run.yaml", RUN, under_dataflex(BLOCK)))
    assert status == 1 and "verl 0.8.0 is too old" in err


# ------------------------------------------------------------------ a mere block


@pytest.mark.parametrize("text", [BLOCK, under_dataflex(BLOCK)])
@pytest.mark.parametrize("overrides", [[], ["++dataflex.verify_every=3"]])
def test_a_mere_block_needs_no_verl(
    text: str, overrides: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "verl", None)
    status, out, err = check(capsys, write("block.yml", text), *overrides)
    assert (status, err) == (0, "")
    assert ("every 3 steps" if overrides else "every 50 steps") in " ".join(out.split())
    assert out.endswith("The block is right. Whether it fits a run is checked with the file of the run.\n")


def test_a_wrong_mere_block(capsys: pytest.CaptureFixture[str]) -> None:
    assert check(capsys, write("block.yaml", WRONG_BLOCK)) == (1, "", f"dataflex-events: {MISTAKES}\n")


def test_handlers_are_imported_from_the_current_folder(capsys: pytest.CaptureFixture[str]) -> None:
    write("mine_for_check.py", "from dataflex_events import StepEnd, on\n@on(StepEnd)\ndef watch(event): ...\n")
    status, out, _ = check(capsys, write("block.yaml", "handlers: ['mine_for_check:watch']\n"))
    assert status == 0 and "  watch: at step_end\n" in out


# ------------------------------------------------------------------ what cannot be read: one line, no traceback

DEFAULTS = "defaults: [ppo_trainer, _self_]\n"


@pytest.mark.parametrize(
    ("file", "text", "overrides", "message"),
    [
        (
            "run.yaml",
            RUN,
            ["trainer.foo=1"],
            "Could not override 'trainer.foo'; To append to your config use +trainer.foo=1",
        ),
        ("run.yaml", RUN, ["trainer.logger=[1"], "no viable alternative at input '[1'"),
        ("run.yaml", RUN, ["data=none_such"], "In 'ppo_trainer': Could not find 'data/none_such'"),
        ("run.yaml", "defaults: [ppo_trainr]\n", [], "In 'run': Could not load 'ppo_trainr'"),
        ("run.yml", DEFAULTS, [], "run.yml: Hydra reads only files whose name ends in .yaml"),
        ("ppo_trainer.yaml", DEFAULTS, [], "ppo_trainer.yaml: verl has a configuration of that name"),
        ("run.yaml", "a: [1\nb: 2\n", [], "run.yaml, line 2: not valid YAML: expected ',' or ']', but got ':'"),
        ("run.yaml", "", [], "run.yaml should be a mapping of keys to values, not None"),
        ("run.yaml", "- a\n", [], "run.yaml should be a mapping of keys to values, not ['a']"),
        (
            "run.yaml",
            "trainer: {x: 1}\n",
            [],
            "run.yaml has no `dataflex:` block, and a run file begins with `defaults:",
        ),
        (
            "run.yaml",
            RUN + "dataflex: {on_error: '${nowhere}'}\n",
            [],
            "dataflex: Interpolation key 'nowhere' not found",
        ),
        ("block.yaml", BLOCK, ["dataflex.verify_every=3"], "Could not override 'dataflex.verify_every'"),
    ],
)
def test_one_line(file: str, text: str, overrides: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = check(capsys, write(file, text), *overrides)
    assert (status, out) == (1, "")
    assert err.startswith(f"dataflex-events: {message}") and err.count("\n") == 1


def test_files_that_cannot_be_read(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    assert (
        check(capsys, "none.yaml")[2]
        == f"dataflex-events: {folder}/none.yaml cannot be read: No such file or directory\n"
    )
    assert check(capsys, ".")[2] == f"dataflex-events: {folder} cannot be read: Is a directory\n"


@pytest.mark.parametrize("key", ["datafelx", "data_flex"])
def test_a_misspelt_block(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = write("run.yaml", under_dataflex(BLOCK).replace("dataflex:", f"{key}:"))
    assert check(capsys, file)[2].endswith(f"  - {key}: unknown key (did you mean 'dataflex'?)\n")


def test_the_composed_configuration_is_verls_with_the_file_on_top() -> None:
    loaded = load([write("run.yaml", RUN), "data.seed=7"])
    assert loaded.whole
    assert OmegaConf.select(loaded.config, "data.seed") == 7
    assert OmegaConf.select(loaded.config, "trainer.v1.trainer_mode") == "dataflex_sync"
    assert OmegaConf.select(loaded.config, "data.train_batch_size") == 1024  # verl's default
