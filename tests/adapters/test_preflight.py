"""What is said about a block before anything starts. Whole messages of real runs: tests/e2e/test_refusals.py."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from omegaconf import open_dict
from verlconfig import verl_config

from dataflex_events import ConfigError
from dataflex_events.adapters.verl.preflight import checking

pytestmark = pytest.mark.verl


def check(mode: str = "dataflex_sync", **keys: Any) -> list[str]:
    """Check verl's configuration with keys of ours; returns what verl's own check saw."""
    seen: list[str] = []
    config = verl_config(f"trainer.v1.trainer_mode={mode}")
    with open_dict(config):
        config.merge_with(keys)
    checking(lambda config: seen.append(config.trainer.v1.trainer_mode))(config)
    return seen


REWEIGHT = {
    "mechanism": "reweight",
    "scorer": {"name": "advantage_magnitude"},
    "actuator": {"name": "softmax"},
}


def test_verls_own_check_comes_first() -> None:
    assert check(mode="sync") == ["sync"]


def test_our_trainer_without_a_block_is_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="dataflex"):
        check()
    assert "without a `dataflex:` block: this is verl's own training" in caplog.text


@pytest.mark.parametrize("key", ["datafelx", "dataflx", "data_flex"])
def test_a_misspelt_block_is_refused(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(**{key: REWEIGHT})
    assert str(caught.value.issues[0]) == f"{key}: unknown key (did you mean 'dataflex'?)"


def test_a_misplaced_block_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        check(trainer={"dataflex": REWEIGHT})
    assert str(caught.value.issues[0]) == "trainer.dataflex: the block belongs at the top level, as `dataflex`"


def test_keys_of_others_are_left_alone() -> None:
    check(data={"train_files": "x"}, dataset={"a": 1}, workflow={"b": 2})
    check(mode="sync", datafelx=REWEIGHT)  # without our trainer it is not ours to judge


@pytest.mark.parametrize("block", ["select", ["select"], 3])
def test_a_block_that_is_no_mapping_is_refused(block: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        check(dataflex=block)
    assert caught.value.issues[0].path == "dataflex"
