"""The installed wheel works wherever a program is started, and next to distributions with similar names."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from wheelkit import ROOT, Environment

USE = """
import dataflex_events
from dataflex_events import registry
from dataflex_events.adapters.verl import post_import
from dataflex_events.handlers.scorers import reward

assert registry.find("scorer", "reward").component is reward.Reward
assert registry.find("selector", "difficulty_filtering").preset == {"low": 0.2, "high": 0.8}
print(dataflex_events.__file__)
"""


def test_from_a_foreign_folder(installed: Environment, tmp_path: Path) -> None:
    assert Path(installed.run("-c", USE, cwd=tmp_path).strip()).is_relative_to(installed.site)


@pytest.mark.parametrize("folder", [".", "adapters"])
def test_from_folders_of_the_repository(installed: Environment, folder: str) -> None:
    """`python -c` puts the current folder first on the path. In the root the checkout shadows the wheel, and the bridge
    in `dataflex_events/__init__.py` has to find the rest of the package; in `adapters/` verl must not be shadowed."""
    used = Path(installed.run("-c", USE, cwd=ROOT / folder).strip())
    assert used.is_relative_to(ROOT / "dataflex_events" if folder == "." else installed.site)


def test_the_bridge_is_inert_where_the_package_is_installed(installed: Environment, tmp_path: Path) -> None:
    shown = installed.run("-c", "import dataflex_events; print(list(dataflex_events.__path__))", cwd=tmp_path)
    assert shown.strip() == str([str(installed.site / "dataflex_events")])


@pytest.mark.parametrize("folder", [".", "elsewhere"])
def test_next_to_a_distribution_called_adapters(installed: Environment, tmp_path: Path, folder: str) -> None:
    """PyPI's `adapters` (AdapterHub) owns the top-level package of that name; so may `handlers`."""
    for name in ("adapters", "handlers"):
        (tmp_path / "site" / name).mkdir(parents=True)
        (tmp_path / "site" / name / "__init__.py").write_text("mark = 'theirs'")
    code = USE + "import adapters, handlers\nassert adapters.mark == handlers.mark == 'theirs'"
    cwd = tmp_path if folder == "elsewhere" else ROOT / folder
    installed.run("-c", code, cwd=cwd, PYTHONPATH=str(tmp_path / "site"))


def test_every_entry_point_names_a_module_of_the_wheel(installed: Environment, tmp_path: Path) -> None:
    code = """
from importlib.metadata import distribution
from importlib.util import find_spec

for point in sorted(distribution("dataflex-verl").entry_points, key=lambda point: (point.group, point.name)):
    assert find_spec(point.module) is not None, point
    print(point.group, point.name)
"""
    assert installed.run("-c", code, cwd=tmp_path).splitlines() == [
        "console_scripts dataflex-events",
        "dataflex_events.commands check",
        "dataflex_events.commands demo",
        "dataflex_events.commands doctor",
        "dataflex_events.handlers builtin",
        "verl.plugins dataflex",
    ]


def test_the_console_script(installed: Environment, tmp_path: Path) -> None:
    script = str(installed.bin / "dataflex-events")
    assert installed.call(script, "--version", cwd=tmp_path) == "dataflex-verl 0.1.0\n"
    assert "  demo    " in installed.call(script, "--help", cwd=tmp_path)
    assert "cannot be loaded" not in installed.call(script, "--help", cwd=tmp_path)
    assert "threshold_band" in installed.call(script, "list", cwd=tmp_path)
    assert "difficulty_filtering" in installed.call(script, "presets", cwd=tmp_path)


@pytest.mark.ray
def test_in_a_ray_worker_of_a_driver_in_the_repository_root(installed: Environment, tmp_path: Path) -> None:
    """Ray puts the driver's folder first on its workers' path."""
    code = f"""
import ray, sys

local = dict(include_dashboard=False, _node_ip_address="127.0.0.1", _temp_dir=sys.argv[1], log_to_driver=False)
ray.init(num_cpus=1, **local)

@ray.remote
def use():
    scope = {{}}
    exec({USE!r}, scope)
    return scope["dataflex_events"].__file__

print("worker:", ray.get(use.remote()))
ray.shutdown()
"""
    with TemporaryDirectory(prefix="ray") as folder:  # pytest's own are too long for the sockets in it
        shown = installed.run("-c", code, folder, cwd=ROOT, RAY_USAGE_STATS_ENABLED="0", MARK=str(tmp_path))
        assert shown.splitlines()[-1] == f"worker: {ROOT / 'dataflex_events' / '__init__.py'}"
        assert gone(lambda environment: environment.get("MARK") == str(tmp_path))


def gone(ours: Callable[[dict[str, str]], bool], patience: float = 30) -> bool:
    """True as soon as no process is left whose environment is ours. Ray's end a moment after the driver."""
    import psutil

    def left() -> list[str]:
        found: list[str] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if ours(process.environ()) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline()))
        return found

    deadline = time.monotonic() + patience
    while (names := left()) and time.monotonic() < deadline:
        time.sleep(0.2)
    print("\n".join(names))
    return not names


@pytest.mark.verl
def test_verl_finds_our_trainers(installed: Environment, tmp_path: Path) -> None:
    code = """
import verl
from verl.trainer.ppo.v1 import get_trainer_cls
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

for name in ("dataflex_sync", "dataflex_mix_sync"):
    assert get_trainer_cls(name) is TRAINER_REGISTRY[name]
    print(name, TRAINER_REGISTRY[name].__module__)
"""
    shown = installed.run("-c", code, cwd=tmp_path, CUDA_VISIBLE_DEVICES="").splitlines()[-2:]
    module = "dataflex_events.adapters.verl.trainer"
    assert shown == [f"dataflex_sync {module}", f"dataflex_mix_sync {module}"]
