"""Ray without a dashboard: fewer processes in the lab, and untouched where somebody wants one."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from dataflex_events.adapters.verl.cpu.small_ray import without_dashboard


class Node:
    """Stands in for Ray's."""

    def __init__(self, ray_params: SimpleNamespace) -> None:
        self.started = [] if getattr(ray_params, "no_monitor", False) else ["monitor"]
        self.minimal = utils.get_dashboard_dependency_error() is not None
        self.start_api_server(include_dashboard=ray_params.include_dashboard, raise_on_failure=False)

    def start_api_server(self, *, include_dashboard: bool | None, raise_on_failure: bool) -> None:
        self.started.append("server")


utils = SimpleNamespace(get_dashboard_dependency_error=lambda: None)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> type[Node]:
    patched = type("Node", (Node,), dict(vars(Node)))
    without_dashboard(SimpleNamespace(Node=patched), utils)
    return patched


def test_no_server_and_no_monitor_where_no_dashboard_is_wanted(node: type[Node]) -> None:
    made = node(SimpleNamespace(include_dashboard=False))
    assert made.started == [] and made.minimal
    assert utils.get_dashboard_dependency_error() is None, "only while a node is made"


@pytest.mark.parametrize("wanted", [True, None])
def test_otherwise_ray_is_as_it_was(node: type[Node], wanted: bool | None) -> None:
    made = node(SimpleNamespace(include_dashboard=wanted))
    assert made.started == ["monitor", "server"] and not made.minimal


def test_a_ray_that_is_built_otherwise_is_left_alone() -> None:
    without_dashboard(SimpleNamespace(Node=object), SimpleNamespace())


@pytest.mark.ray
def test_real_ray_works_without_them() -> None:
    program = """
import psutil, ray
import ray._private.node as node, ray._private.utils as utils
from dataflex_events.adapters.verl.cpu.small_ray import without_dashboard

without_dashboard(node, utils)
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=100_000_000)
assert ray.get(ray.remote(lambda: 7).remote()) == 7
children = " ".join(" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True))
assert "raylet" in children and "agent.py" in children
assert "dashboard.py" not in children and "monitor.py" not in children.replace("log_monitor.py", "")
print("worked")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.endswith("worked\n"), done.stderr[-2000:]
