"""Ready-made `dataflex:` blocks, one YAML file each, which Hydra offers as `+dataflex=NAME`.

Each sets the trainer mode as well, so that nothing else need be set. The policies have names, so that several presets
merge into one block, and every parameter is written out, so that an override finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from dataflex_events.errors import DataflexError, nearest

_FOLDER = Path(__file__).parent


@cache
def names() -> Sequence[str]:
    """Names of all presets."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def source(name: str) -> str:
    """The file of a preset.

    Raises:
        DataflexError: There is none of that name.
    """
    if name not in names():
        raise DataflexError(f"unknown preset {name!r}{nearest(name, names())}")
    return (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """What a preset does and the arXiv number: the first line of its file that is not for Hydra.

    Raises:
        DataflexError: There is none of that name.
    """
    lines = (line.removeprefix("#").strip() for line in source(name).splitlines())
    return next(line for line in lines if not line.startswith("@"))


def load(name: str) -> dict[str, Any]:
    """The settings of a preset, from the top level of a run's configuration.

    Raises:
        DataflexError: There is none of that name.
    """
    import yaml

    return dict(yaml.safe_load(source(name)))
