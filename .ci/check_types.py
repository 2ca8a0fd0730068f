"""Type-check the package as it is installed: build the wheel, install it into a fresh environment, run both checkers.

mypy is strict about the core and the handlers, less so about the adapter, since verl is untyped: see pyproject.toml.
pyright checks the core and the handlers in its standard mode.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from wheelkit import Environment, build, clean_copy  # noqa: E402


def main() -> int:
    """Run both and return the first exit status that is not 0."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        environment = Environment(folder / "venv", build(clean_copy(folder / "source"), folder / "dist"))
        mypy = ["mypy", f"--config-file={ROOT / 'pyproject.toml'}", "--package=dataflex_events"]
        mypy += [f"--python-executable={environment.python}", f"--cache-dir={folder / 'cache'}"]
        config = {
            "include": [str((environment.site / "dataflex_events").relative_to(folder))],
            "exclude": ["**/adapters"],
            "typeCheckingMode": "standard",
            "reportWildcardImportFromLibrary": False,  # `__init__` does it, from the package itself
        }
        (folder / "pyrightconfig.json").write_text(json.dumps(config))
        pyright = ["pyright", f"--project={folder}", f"--pythonpath={environment.python}"]
        statuses = [subprocess.run([sys.executable, "-m", *tool], cwd=folder).returncode for tool in (mypy, pyright)]
    return next(filter(None, statuses), 0)


if __name__ == "__main__":
    sys.exit(main())
