"""Who may import whom: the adapter knows the core, handlers know the core, and neither knows the other."""

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAINER = {"verl", "ray", "transfer_queue"}
RULES = {
    "dataflex_events": TRAINER | {"dataflex_events.handlers", "dataflex_events.adapters"},
    "handlers": TRAINER | {"dataflex_events.adapters"},
    "adapters": {"dataflex_events.handlers"},
}


def imported(source):
    """Everything that a source imports, at its top, inside functions or by name through importlib."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            names |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return names


def violations(folder, forbidden):
    found = []
    for path in sorted(folder.rglob("*.py")):
        for name in sorted(imported(path.read_text())):
            if name.startswith(".") or any(name == one or name.startswith(f"{one}.") for one in forbidden):
                found.append(f"{path.relative_to(folder)} imports {name}")
    return found


@pytest.mark.parametrize("folder", RULES)
def test_dependencies_point_one_way(folder):
    assert violations(ROOT / folder, RULES[folder]) == []


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("dataflex_events", "import verl.trainer"),
        ("dataflex_events", "def f():\n    from ray import remote"),
        ("dataflex_events", "from dataflex_events import handlers"),
        ("dataflex_events", "from dataflex_events.adapters.verl import rows"),
        ("handlers", "import transfer_queue as tq"),
        ("handlers", "from dataflex_events.adapters import verl"),
        ("handlers", "import importlib\nimportlib.import_module('verl')"),
        ("handlers", "from ..adapters import verl"),  # the rule is absolute imports, so none hides in a relative one
        ("adapters", "if True:\n    import dataflex_events.handlers.scorers.reward"),
    ],
)
def test_the_check_can_fail(folder, line, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "module.py").write_text(line)
    assert len(violations(tmp_path, RULES[folder])) >= 1


def test_the_check_allows_what_is_allowed(tmp_path):
    (tmp_path / "module.py").write_text("import verlet\nfrom dataflex_events import Scorer\nimport dataflex_events.bus")
    assert violations(tmp_path, RULES["handlers"]) == []


def test_there_is_something_to_check():
    assert all(len(list((ROOT / folder).rglob("*.py"))) > 5 for folder in RULES)


def modules_after(program, path=()):
    """Which heavy packages a fresh process has imported after running the program."""
    report = """
        import sys
        heavy = ("verl", "ray", "transfer_queue", "tensorboard", "torch.utils.tensorboard")
        print(*(name for name in heavy if name in sys.modules))
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program) + textwrap.dedent(report)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split()


@pytest.mark.parametrize(
    "program",
    [
        "import dataflex_events",
        "from dataflex_events import *",
        "from dataflex_events import registry; registry.load(); assert registry.names('observer')",
        "from dataflex_events.handlers import builtin",
    ],
)
def test_neither_the_core_nor_any_handler_imports_trainer_or_tensorboard(program):
    assert modules_after(program) == []


def test_that_check_can_fail_too(tmp_path):
    (tmp_path / "verl.py").write_text("")
    (tmp_path / "ray.py").write_text("")
    assert modules_after("import verl, ray", path=[tmp_path]) == ["verl", "ray"]
