"""Runs that several files look at: each is made once."""

from __future__ import annotations

import pytest
from droplab import Runs
from labrun import PADDED, Run, run_verl


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three steps of verl's own trainer, without a block."""
    folder = tmp_path_factory.mktemp("plain")
    return run_verl(folder, *PADDED, "trainer.v1.trainer_mode=sync", steps=3, probe=True).succeeded()


@pytest.fixture(scope="session")
def all_one(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same steps with weights that are all 1. In step 2 a handler proposes others, breaks down, and is detached."""
    block = [
        "trainer.v1.trainer_mode=dataflex_mix_sync",
        "+dataflex.handlers=[weighing:all_one,{path:'weighing:Raises',params:{at:2}}]",
        "+dataflex.on_error=detach",
    ]
    return run_verl(tmp_path_factory.mktemp("all_one"), *PADDED, *block, steps=3, probe=True).succeeded()


@pytest.fixture(scope="session")
def drop_runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Makes runs that drop rows."""
    return Runs(tmp_path_factory.mktemp("drop"))
