"""Builds the wheel from a clean copy of the tree and installs it into a virtual environment, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


JUNK = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "runs", "outputs", "*.egg-info", "__pycache__", ".*_cache"
)


def clean_copy(target: Path) -> Path:
    """Copy what belongs to the repository. Building in place would pick up what an earlier build left in `build/`."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True) if (ROOT / ".git").exists() else None
    if listed is None or listed.returncode:  # an unpacked archive, or no git
        shutil.copytree(ROOT, target, ignore=JUNK)
        return target
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():  # a file may be deleted and still tracked
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


def build(source: Path, target: Path, kind: str = "wheel") -> Path:
    """Build a wheel or sdist of the tree at `source` with the setuptools that is installed here."""
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = target.iterdir()
    return built


class Environment:
    """A virtual environment with a wheel in it, and behind it everything that is installed here.

    Attributes:
        python: Its interpreter.
        bin: Folder of its scripts.
        site: Its own site-packages folder.
    """

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False, symlinks=True)
        self.bin = folder / "bin"
        self.python = self.bin / "python"
        self.site = Path(sysconfig.get_path("purelib", "posix_prefix", {"base": str(folder)}))
        install = ["-m", "pip", "--python", str(self.python), "install", "--no-deps", "--no-index", str(wheel)]
        done = subprocess.run([sys.executable, *install], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        # Not earlier, or pip would find the package installed over there. A path in a .pth file is added as it is: the
        # import hook of an editable install over there stays out of sight.
        (self.site / "behind.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))

    def run(self, *args: str, cwd: Path, **env: str) -> str:
        """Run the interpreter and return what it printed; its error output is in the message if it fails."""
        return self.call(str(self.python), *args, cwd=cwd, **env)

    def call(self, *command: str, cwd: Path, **env: str) -> str:
        """Run any program in this environment."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(command, cwd=cwd, env=clean | env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"{command}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout
