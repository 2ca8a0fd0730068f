from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dataflex_events.adapters.verl.cpu.environment import ENVIRONMENT, set_environment
from dataflex_events.adapters.verl.cpu.overrides import lab_environment


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "")  # so that monkeypatch restores what `set_environment` sets
        monkeypatch.delenv(name)
    return monkeypatch


def test_sets_what_is_not_set(clean: pytest.MonkeyPatch) -> None:
    clean.setenv("OMP_NUM_THREADS", "3")
    set_environment()
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert {name: os.environ[name] for name in ENVIRONMENT if name != "OMP_NUM_THREADS"}.items() < ENVIRONMENT.items()


@pytest.mark.parametrize(("value", "cluster"), [(None, False), ("1", True)])
def test_ray_stays_on_this_machine_though_it_was_imported_before(
    clean: pytest.MonkeyPatch, value: str | None, cluster: bool
) -> None:
    constants = SimpleNamespace(ENABLE_RAY_CLUSTER=True)
    clean.setitem(sys.modules, "ray._private.ray_constants", constants)
    if value is not None:
        clean.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", value)
    set_environment()
    assert constants.ENABLE_RAY_CLUSTER is cluster


def test_the_ray_that_is_installed_reads_the_constant() -> None:
    from ray._private import ray_constants, services

    assert isinstance(ray_constants.ENABLE_RAY_CLUSTER, bool)
    assert "ray_constants.ENABLE_RAY_CLUSTER" in Path(services.__file__).read_text()


PROCESS_GROUP = """
import os, psutil, torch, torch.distributed as dist
from dataflex_events.adapters.verl.cpu.process_group import initialize_process_group
initialize_process_group(timeout_second=30)
initialize_process_group()
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
listening = [c.laddr.ip for c in psutil.Process().net_connections("inet") if c.status == "LISTEN"]
print(total.item(), *sorted(set(listening)))
dist.barrier()
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_process_group_works_and_listens_on_the_loopback_only(ranks: int) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(ranks):
        place = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        env = {**os.environ, **lab_environment(), **{name: str(value) for name, value in place.items()}}
        processes.append(subprocess.Popen([sys.executable, "-c", PROCESS_GROUP], env=env, stdout=subprocess.PIPE))
    total = {1: "1.0", 2: "3.0"}[ranks]
    for process in processes:
        words = process.communicate(timeout=120)[0].decode().split()
        assert process.returncode == 0
        assert words[0] == total
        assert set(words[1:]) <= {"127.0.0.1", "::ffff:127.0.0.1"}
