"""mypy and pyright, both strict, find mistakes in users' handlers, and find nothing to say about correct ones.

They check against the installed wheel, as they would on a user's machine: neither follows an editable install.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from wheelkit import Environment

CASES = Path(__file__).parent / "cases"

Check = Callable[[Path], Counter[int]]


@pytest.fixture(scope="module")
def mypy(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Line numbers with complaints of `mypy --strict`."""
    cache = tmp_path_factory.mktemp("mypy")

    def check(file: Path) -> Counter[int]:
        options = ["--strict", "--config-file=", f"--cache-dir={cache}", f"--python-executable={installed.python}"]
        command = [sys.executable, "-m", "mypy", *options, "--no-pretty", "--hide-error-context", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=cache)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        print(done.stdout)
        assert "import-not-found" not in done.stdout and "import-untyped" not in done.stdout
        return Counter(int(line) for line in re.findall(r"^[^:]+:(\d+): error:", done.stdout, flags=re.MULTILINE))

    return check


@pytest.fixture(scope="module")
def pyright(installed: Environment, tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Line numbers with complaints of pyright in strict mode."""
    folder = tmp_path_factory.mktemp("pyright")
    command = [sys.executable, "-m", "pyright"]
    ready = subprocess.run([*command, "--version"], capture_output=True, text=True)
    if ready.returncode:
        said = (ready.stdout + ready.stderr).strip()
        pytest.fail(f"pyright cannot run here; it needs Node.js on PATH or `pip install 'pyright[nodejs]'`:\n{said}")

    def check(file: Path) -> Counter[int]:
        shutil.copy(file, folder)  # it checks nothing outside of the project's folder
        config = folder / "pyrightconfig.json"
        config.write_text(json.dumps({"include": [file.name], "typeCheckingMode": "strict"}))
        options = ["--outputjson", "--project", str(config), "--pythonpath", str(installed.python)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=folder)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        report = json.loads(done.stdout)
        assert report["summary"]["filesAnalyzed"] == 1
        complaints = [entry for entry in report["generalDiagnostics"] if entry["severity"] in ("error", "warning")]
        for entry in complaints:
            print(entry["range"]["start"]["line"] + 1, entry["message"], entry.get("rule"))
        return Counter(entry["range"]["start"]["line"] + 1 for entry in complaints)

    return check


@pytest.fixture(params=["mypy", "pyright"])
def check(request: pytest.FixtureRequest) -> Check:
    """One checker after the other."""
    checker: Check = request.getfixturevalue(request.param)
    return checker


def test_correct_code_is_clean(check: Check) -> None:
    assert check(CASES / "right.py") == Counter()


def test_every_planted_mistake_is_reported_and_nothing_else(check: Check) -> None:
    file = CASES / "wrong.py"
    source = file.read_text()
    lines = source.splitlines()
    planted = {number for number, line in enumerate(lines, start=1) if "# wrong:" in line}
    assert len(planted) > 15
    reported = {first_line(source, number) for number in check(file)}
    missed = sorted(planted - reported)
    assert not missed, "not reported:\n" + "\n".join(lines[number - 1] for number in missed)
    extra = sorted(reported - planted)
    assert not extra, "reported, but correct:\n" + "\n".join(lines[number - 1] for number in extra)


def first_line(source: str, line: int) -> int:
    """The first decorator's line, for a line between it and the name that it decorates: checkers choose differently."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.decorator_list:
            first = node.decorator_list[0].lineno
            if first <= line <= node.lineno:
                return first
    return line
