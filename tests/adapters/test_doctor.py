"""`dataflex-events doctor` explains every way in which the plugin can be without effect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakeverl import FakeVerl
from runfiles import BLOCK, RUN, WRONG_BLOCK, under_dataflex

from dataflex_events import cli
from dataflex_events.adapters.verl.commands import _doctor_packages
from dataflex_events.adapters.verl.installed import Package, find_package

pytestmark = pytest.mark.verl

PLUGIN = "dataflex_events.adapters.verl.plugin"
ADVICE = "Install a verl that fits: pip install 'verl>=0.9.0,<0.10' (0.9.1 is tested)."

Doctor = Callable[..., dict[str, tuple[str, list[str]]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """Runs the command; returns what it says by check, and asserts that its exit status and its last line agree."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*arguments: str) -> dict[str, tuple[str, list[str]]]:
        status = cli.main(["doctor", *arguments])
        lines = capsys.readouterr().out.splitlines()
        found: dict[str, tuple[str, list[str]]] = {}
        for line in lines[:-2]:
            state, text = line[:11].strip(), line[11:].strip()
            if state:
                title = text
                found[title] = (state, [])
            else:
                found[title][1].append(text)
        failed = sum(state == "FAILED" for state, _ in found.values())
        assert status == (1 if failed else 0)
        assert lines[-1] == (f"{failed} failed." if failed else "All is well.")
        return found

    return run


def test_all_is_well(doctor: Doctor) -> None:
    found = doctor()
    assert {state for state, _ in found.values()} == {"ok"}
    assert [title.partition(":")[0].split()[0] for title in found] == [
        *("entry", "plugins", "verl", "torch", "ray", "TransferQueue"),
        *("contract", "verl", "plugin", "trainers", "configurations", "fields"),
    ]


# ------------------------------------------------------------------ verl


def test_without_verl(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verl", None)
    found = doctor()
    assert found["verl: installed, and of a version that fits"] == ("FAILED", ["verl is not installed", ADVICE])
    assert found["plugin: loaded by verl"] == ("not checked", ["verl cannot be imported, see above"])
    assert found["fields: a worker reads the columns that a batch lists, and no others"][0] == "not checked"


def test_with_an_old_verl(doctor: Doctor, fake_verl: FakeVerl, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_verl("0.8.0")
    monkeypatch.delitem(sys.modules, PLUGIN)
    found = doctor()
    why = "verl 0.8.0 is too old: it loads no plugins and lacks the trainer that is extended; >=0.9.0,<0.10 is needed"
    assert found["verl: installed, and of a version that fits"] == ("FAILED", [why, ADVICE])
    assert found["plugins: verl would load it"] == ("not checked", ["there is no verl of a version that fits"])
    assert found["plugin: loaded by verl"][0] == "FAILED"
    assert found["contract: what we rely on in verl is as it should be"][0] == "not checked"


def test_a_verl_that_cannot_be_imported(doctor: Doctor, fake_verl: FakeVerl) -> None:
    init = "try:\n    import none_such\nexcept ImportError as error:\n    raise RuntimeError('no driver') from error\n"
    fake_verl("0.9.1", init)
    assert doctor()["verl: can be imported"] == (
        "FAILED",
        ["RuntimeError: no driver", "because of ModuleNotFoundError: No module named 'none_such'"],
    )


def test_a_method_of_verl_that_changed(doctor: Doctor, changed_verl: Callable[[str, str, str], None]) -> None:
    changed_verl(
        "trainer/ppo/v1/trainer_base.py",
        "def _get_required_batch_multiple(self, dp_size",
        "def _get_required_batch_multiple(self, ranks",
    )
    assert doctor()["contract: what we rely on in verl is as it should be"] == (
        "FAILED",
        [
            "verl.trainer.ppo.v1.trainer_sync: PPOTrainerSync._get_required_batch_multiple should take (dp_size), "
            "but takes (ranks)",
            ADVICE,
        ],
    )


def test_another_meaning_of_fields(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.utils import transferqueue_utils as verls

    async def reads_everything(meta: object) -> object:
        from transfer_queue.metadata import BatchMeta

        return BatchMeta(global_indexes=[0, 1], partition_ids=["a", "a"], field_schema={"listed": {}, "other": {}})

    monkeypatch.setattr(verls, "async_kv_batch_meta2batch_meta", reads_everything)
    state, lines = doctor()["fields: a worker reads the columns that a batch lists, and no others"]
    assert state == "FAILED" and lines[0].endswith("but it reads others too")


# ------------------------------------------------------------------ the plugin


def test_a_plugin_that_cannot_be_imported(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, PLUGIN)
    monkeypatch.setitem(sys.modules, "dataflex_events.adapters.verl.post_import", None)
    found = doctor()
    state, lines = found["plugin: loaded by verl"]
    assert state == "FAILED"
    assert lines[0].startswith("ModuleNotFoundError: import of dataflex_events.adapters.verl.post_import halted")
    assert found["trainers: dataflex_sync, dataflex_mix_sync are registered"] == (
        "not checked",
        ["verl has not loaded the plugin, see above"],
    )


@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("PLUGINS", "none", "VERL_USE_EXTERNAL_PLUGINS=none keeps verl from loading any plugin; unset it"),
        (
            "PLUGINS",
            "npu, other",
            "VERL_USE_EXTERNAL_PLUGINS=npu, other does not name it; add 'dataflex' to the list, or unset it",
        ),
        ("PLUGINS", "other,dataflex", None),
        ("PLUGINS", " AUTO ", None),
    ],
)
def test_which_plugins_verl_loads(
    variable: str, value: str, why: str | None, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"VERL_USE_EXTERNAL_{variable}", value)
    expected = ("FAILED", [why]) if why else ("ok", [])
    assert doctor()["plugins: verl would load it"] == expected


def test_a_plugin_that_is_named_as_a_module(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", "none")
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", f"other,{PLUGIN}")
    assert doctor()["plugins: verl would load it"] == ("ok", [])


def test_without_an_entry_point(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_doctor_packages, "entry_points", lambda group: [])
    assert doctor()["entry point: verl can find dataflex-verl in the group 'verl.plugins'"] == (
        "FAILED",
        ["its installation is older than its source; in its folder: pip install ."],
    )


def test_trainers_that_are_not_registered(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

    monkeypatch.delitem(TRAINER_REGISTRY, "dataflex_sync")
    title = "trainers: dataflex_sync, dataflex_mix_sync are registered"
    assert doctor()[title] == ("FAILED", ["verl does not know dataflex_sync"])
    monkeypatch.setitem(sys.modules, "dataflex_events.adapters.verl.trainer", None)
    state, lines = doctor()[title]
    assert state == "FAILED" and lines[0].startswith("ModuleNotFoundError: import of dataflex_events.adapters.verl.tr")


def test_other_packages(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = {"torch": Package(Path(), "2.1.0+cpu"), "transfer_queue": Package(Path(), "0.1.8"), "ray": None}
    monkeypatch.setattr(_doctor_packages, "find_package", lambda name: fakes.get(name, find_package("verl")))
    found = doctor()
    assert [found[f"{name}: installed, and of a version that fits"] for name in ("torch", "ray", "TransferQueue")] == [
        ("FAILED", ["torch 2.1.0+cpu is too old: pip install 'torch>=2.4'"]),
        ("FAILED", ["ray is not installed: pip install ray"]),
        ("FAILED", ["TransferQueue 0.1.8 is too old: pip install 'TransferQueue>=0.1.10'"]),
    ]


# ------------------------------------------------------------------ the configuration


def test_a_configuration_that_is_seen_and_right(doctor: Doctor) -> None:
    Path("run.yaml").write_text(RUN + under_dataflex(BLOCK))
    found = doctor("run.yaml")
    assert list(found)[-4:] == [
        "configuration: can be read",
        "block: seen by trainer_mode 'dataflex_sync'",
        "block: right, and fits the run",
        "run: accepted by verl's own check",
    ]
    assert {state for state, _ in found.values()} == {"ok"}


@pytest.mark.parametrize(
    ("text", "overrides", "check", "lines"),
    [
        (
            RUN + under_dataflex(BLOCK),
            ["trainer.v1.trainer_mode=separate_async"],
            "block: seen by a trainer of ours",
            ["trainer.v1.trainer_mode: 'separate_async' would ignore the dataflex block; use 'dataflex_sync'"],
        ),
        (
            RUN + under_dataflex(BLOCK),
            ["trainer.use_v1=false"],
            "block: seen by a trainer of ours",
            ["trainer.use_v1: is false: the legacy trainer would ignore the dataflex block"],
        ),
        (
            RUN,
            ["+algorithm.dataflex.mechanism=select"],
            "block: there",
            ["algorithm.dataflex: the block belongs at the top level, as `dataflex`"],
        ),
        (
            RUN + under_dataflex(BLOCK).replace("dataflex:", "datafelx:"),
            ["trainer.v1.trainer_mode=sync"],
            "block: there",
            ["datafelx: unknown key (did you mean 'dataflex'?)"],
        ),
        (RUN, [], "block: there", ["there is no `dataflex:` block, so verl trains as it does without us"]),
        (
            RUN + under_dataflex(WRONG_BLOCK),
            [],
            "block: right, and fits the run",
            [
                "dataflex.policies[0].scorer.name: unknown scorer 'group_solv_rate' (did you mean 'group_solve_rate'?)",
                "dataflex.policies[0].actuator.params.lo: unknown key (did you mean 'low'?)",
            ],
        ),
        (
            "a: [",
            [],
            "configuration: can be read",
            ["run.yaml, line 1: not valid YAML: expected the node content, but found '<stream end>'"],
        ),
    ],
)
def test_why_a_block_has_no_effect(
    text: str, overrides: list[str], check: str, lines: list[str], doctor: Doctor
) -> None:
    Path("run.yaml").write_text(text)
    found = doctor("run.yaml", *overrides)
    assert found[check] == ("FAILED", lines)
    assert sum(state == "FAILED" for state, _ in found.values()) == 1


def test_a_mere_block(doctor: Doctor) -> None:
    Path("block.yaml").write_text(BLOCK)
    found = doctor("block.yaml")
    assert found["block: right"] == ("ok", [])
    assert found["block: seen by a trainer"][0] == "not checked"
