"""The type of the fixture `fake_verl`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class FakeVerl(Protocol):
    """Makes a package `verl` with a version, a body and further modules by name."""

    def __call__(self, version: str, init: str = "", **files: str) -> Path: ...
