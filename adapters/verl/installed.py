"""Which verl is installed, and where. Found without importing it: it may be too old, or broken."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

SUPPORTED = ">=0.9.0,<0.10"
TESTED = "0.9.1"
ADVICE = f"Install a verl that fits: pip install 'verl{SUPPORTED}' ({TESTED} is tested)."

_FIRST, _BELOW = (0, 9), (0, 10)


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package.

    Attributes:
        folder: Where its modules are.
        version: Its version, or "" if nothing says it.
    """

    folder: Path
    version: str


def find_package(name: str) -> Package | None:
    """The top-level package that `import name` would find, or None. A folder that merely has the name is none."""
    spec = find_spec(name)
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.origin).parent
    return Package(folder, _version(folder, name))


def version_finding(verl: Package | None) -> str | None:
    """What is wrong with the version of the installed verl, or None if it is supported."""
    if verl is None:
        return "verl is not installed"
    numbers = re.match(r"(\d+)\.(\d+)", verl.version)
    if numbers is None:
        return f"the verl in {verl.folder} does not say its version; {SUPPORTED} is needed"
    release = int(numbers[1]), int(numbers[2])
    if release < _FIRST:
        why = "it loads no plugins and lacks the trainer that is extended"
        return f"verl {verl.version} is too old: {why}; {SUPPORTED} is needed"
    if release >= _BELOW:
        return f"verl {verl.version} is newer than this dataflex-verl, which was made for {SUPPORTED}"
    return None


def _version(folder: Path, name: str) -> str:
    file = folder / "version" / "version"  # verl and TransferQueue have it, also where they are not properly installed
    if file.is_file():
        return file.read_text().strip()
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
