"""A verl that is not the one we know is refused before anything starts, and says in which way it is not."""

from __future__ import annotations

import ast
import importlib
import inspect
import logging
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from fakeverl import FakeVerl
from omegaconf import OmegaConf

from dataflex_events import ContractError
from dataflex_events.adapters.verl import contract, installed, plugin
from dataflex_events.adapters.verl.installed import Package, find_package, version_finding
from dataflex_events.adapters.verl.preflight import checking
from dataflex_events.adapters.verl.promises import DEFINITIONS

pytestmark = pytest.mark.verl

ADVICE = "Install a verl that fits: pip install 'verl>=0.9.0,<0.10' (0.9.1 is tested)."
BLOCK = {"mechanism": "reweight", "scorer": {"name": "advantage_magnitude"}, "actuator": {"name": "softmax"}}

Change = Callable[[str, str, str], None]


def start(**block: object) -> None:
    """What a run does first."""
    config = {
        "trainer": {"use_v1": True, "v1": {"trainer_mode": "dataflex_sync" if block else "sync"}},
        "actor_rollout_ref": {"actor": {"policy_loss": {"loss_mode": "vanilla"}}},
        **block,
    }
    checking(lambda config: None)(OmegaConf.create(config))


def forget_our_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process, in which they have not been imported."""
    package = importlib.import_module("dataflex_events.adapters.verl")
    for name in ("trainer", "supported"):
        monkeypatch.delitem(sys.modules, f"{package.__name__}.{name}", raising=False)
        monkeypatch.delattr(package, name, raising=False)


def test_the_installed_verl_fits() -> None:
    assert contract.findings() == []
    assert contract.field_findings() == []
    contract.require()


@pytest.mark.parametrize(
    ("version", "finding"),
    [
        ("0.9.0", None),
        ("0.9.1", None),
        ("0.9.2.dev0", None),
        (
            "0.8.0",
            "verl 0.8.0 is too old: it loads no plugins and lacks the trainer that is extended; "
            ">=0.9.0,<0.10 is needed",
        ),
        ("0.10.0", "verl 0.10.0 is newer than this dataflex-verl, which was made for >=0.9.0,<0.10"),
        ("1.0", "verl 1.0 is newer than this dataflex-verl, which was made for >=0.9.0,<0.10"),
        ("", "the verl in site does not say its version; >=0.9.0,<0.10 is needed"),
    ],
)
def test_versions(version: str, finding: str | None) -> None:
    assert version_finding(Package(Path("site"), version)) == finding


def test_a_missing_verl() -> None:
    assert version_finding(None) == "verl is not installed"


def test_a_folder_that_only_has_the_name_is_no_verl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "verl_like").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_package("verl_like") is None


def test_a_method_with_other_parameters_is_named_with_what_was_expected(changed_verl: Change) -> None:
    changed_verl(
        "trainer/ppo/v1/trainer_base.py",
        "def _compute_advantage(self, batch: KVBatchMeta, metrics: dict)",
        "def _compute_advantage(self, batch: KVBatchMeta, metrics: dict, scale: float = 1.0)",
    )
    with pytest.raises(ContractError) as refused:
        start(dataflex=BLOCK)
    assert str(refused.value) == (
        "dataflex does not fit the trainer that is installed:\n"
        "  - verl.trainer.ppo.v1.trainer_sync: PPOTrainerSync._compute_advantage should take (batch, metrics), "
        "but takes (batch, metrics, scale=)\n" + ADVICE
    )


def test_one_message_lists_everything(changed_verl: Change) -> None:
    base = "trainer/ppo/v1/trainer_base.py"
    changed_verl(
        base, "def _balance_batch(self, batch: KVBatchMeta, metrics,", "def _balance_batch(self, data, metrics,"
    )
    changed_verl(
        base, "def _get_required_batch_multiple(self, dp_size: int)", "def _batch_multiple(self, dp_size: int)"
    )
    changed_verl("workers/engine/utils.py", 'data["micro_batch_size_per_gpu"]', 'data["micro_batch_size"]')
    with pytest.raises(ContractError) as refused:
        start(dataflex=BLOCK)
    assert refused.value.findings == (
        "verl.trainer.ppo.v1.trainer_sync: PPOTrainerSync._balance_batch should take (batch, metrics, ...), "
        "but takes (data, metrics, logging_prefix=, keep_minibatch=)",
        "verl.trainer.ppo.v1.trainer_sync: PPOTrainerSync._get_required_batch_multiple(dp_size) should be there, "
        "but is not",
        "verl.workers.engine.utils: should look up 'micro_batch_size_per_gpu', but does not",
    )


def test_what_we_pass_on_may_grow(changed_verl: Change) -> None:
    before = "def _balance_batch(self, batch: KVBatchMeta, metrics, logging_prefix"
    changed_verl(
        "trainer/ppo/v1/trainer_base.py", before, before.replace("logging_prefix", "fast=True, logging_prefix")
    )
    assert contract.findings() == []


def test_runs_without_a_block_are_left_alone(
    changed_verl: Change, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed_verl("trainer/ppo/v1/trainer_base.py", "def _get_required_batch_multiple(", "def _batch_multiple(")
    with caplog.at_level(logging.WARNING):
        start()
    assert caplog.text == ""


def test_without_transfer_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "find_package", lambda name: find_package(name) if name == "verl" else None)
    message = "TransferQueue is not installed, and verl needs it: pip install 'TransferQueue>=0.1.10'"
    assert contract.findings() == [message]


def test_the_error_survives_pickling() -> None:
    error = ContractError(["a", "b"], "do c")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.findings, copy.advice) == (str(error), ("a", "b"), "do c")


# ------------------------------------------------------------------ another version of verl


def test_with_an_old_verl_our_trainer_says_so_when_it_is_imported(
    fake_verl: FakeVerl, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_verl("0.8.0")
    forget_our_modules(monkeypatch)
    with pytest.raises(ContractError, match=r"verl 0\.8\.0 is too old") as refused:
        importlib.import_module("dataflex_events.adapters.verl.trainer")
    assert refused.value.__cause__ is None and refused.value.__context__ is None


@pytest.mark.parametrize("version", ["0.8.0", "0.10.0"])
def test_with_another_verl_a_block_is_refused_and_other_runs_go_on(
    version: str, fake_verl: FakeVerl, caplog: pytest.LogCaptureFixture
) -> None:
    fake_verl(version)
    start()
    assert caplog.text == ""
    with pytest.raises(ContractError, match=f"verl {version} is "):
        start(dataflex=BLOCK)


def test_with_another_verl_the_plugin_warns_in_one_line(
    fake_verl: FakeVerl, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake_verl("0.10.0")
    forget_our_modules(monkeypatch)
    plugin._reported("register its trainers", plugin._register_trainers)(ModuleType("verl"))
    (record,) = caplog.records
    assert record.levelname == "WARNING" and record.exc_info is None
    assert record.getMessage().startswith(
        "dataflex-verl is off: dataflex does not fit the trainer that is installed:\n"
    )


def test_an_error_in_the_plugin_is_logged_where_verl_would_hide_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, plugin.__name__)
    monkeypatch.setitem(sys.modules, "dataflex_events.adapters.verl.post_import", None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(plugin.__name__)
    (record,) = caplog.records
    assert record.levelname == "ERROR" and record.exc_info is not None
    assert record.getMessage() == "dataflex-verl could not be loaded; runs that use dataflex will not start"


# ------------------------------------------------------------------ the table is complete


def test_every_method_that_we_override_is_in_the_table() -> None:
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    from dataflex_events.adapters.verl.trainer import DataflexSync

    listed = {name.partition("(")[0].rpartition(".")[2] for name in DEFINITIONS["verl.trainer.ppo.v1.trainer_sync"]}
    ours = {name for cls in DataflexSync.__mro__ if cls.__module__.startswith("dataflex_events") for name in vars(cls)}
    overridden = {name for name in ours if inspect.isfunction(vars(PPOTrainerSync.__base__).get(name))}
    assert "_balance_batch" in overridden
    assert sorted(overridden - listed) == [], "add them to adapters/verl/promises.py"


def test_everything_that_we_import_from_verl_is_in_the_table() -> None:
    listed = {
        f"{module}:{name.partition('(')[0].partition('.')[0]}" for module in DEFINITIONS for name in DEFINITIONS[module]
    }
    imported = set()
    for path in Path(installed.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "verl":
                imported |= {f"{node.module}:{alias.name}" for alias in node.names}
    assert "verl.protocol:BatchData" in imported
    modules = {"verl.utils:transferqueue_utils"}
    inherited = {"verl.trainer.ppo.v1.trainer_base:PPOTrainer"}  # for type checkers only
    assert sorted(imported - listed - modules - inherited) == [], "add them to adapters/verl/promises.py"
