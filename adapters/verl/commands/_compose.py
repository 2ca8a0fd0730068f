"""Reads the configuration that `check` and `doctor` are given, as verl's entry point would."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from dataflex_events.adapters.verl import hydra_presets
from dataflex_events.adapters.verl.block import strays
from dataflex_events.adapters.verl.contract import require_version
from dataflex_events.adapters.verl.installed import find_package
from dataflex_events.config import ROOT
from dataflex_events.errors import ConfigError, DataflexError

VERLS_OWN = "ppo_trainer"
_VERLS_KEYS = {"trainer", "data", "actor_rollout_ref", "algorithm"}
_FIRST_LINE = f"defaults: [{VERLS_OWN}, _self_]"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration.

    Attributes:
        config: The configuration, interpolations not resolved.
        whole: True if it is that of a whole run, false for a mere `dataflex:` block.
    """

    config: DictConfig
    whole: bool


def load(arguments: Sequence[str]) -> Loaded:
    """Read a configuration.

    Args:
        arguments: A file and Hydra overrides. Without a file the overrides go to verl's own configuration. The file is
            that of a run (it has `defaults`), one with a `dataflex:` block, or the content of the block alone.

    Raises:
        DataflexError: It cannot be read; one line says why.
    """
    if os.getcwd() not in sys.path:  # as `python -m` has it, which is how verl is run: handlers are imported from there
        sys.path.insert(0, os.getcwd())
    if not arguments or "=" in arguments[0]:
        return Loaded(_compose_run(None, arguments), whole=True)
    file, overrides = Path(arguments[0]).resolve(), arguments[1:]
    content = _content(file)
    if "defaults" in content:
        if not isinstance(content["defaults"], list):
            raise DataflexError(f"{file.name}: `defaults` should be a list; a run file begins with `{_FIRST_LINE}`")
        return Loaded(_compose_run(file, overrides), whole=True)
    if ROOT not in content:
        issues = strays(OmegaConf.create(content))
        if issues:
            raise ConfigError(issues)
        if _VERLS_KEYS & content.keys():
            raise DataflexError(f"{file.name} has no `{ROOT}:` block, and a run file begins with `{_FIRST_LINE}`")
        content = {ROOT: content}
    return Loaded(_override(content, overrides), whole=False)


def _content(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataflexError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataflexError(f"{file} is not a text file") from error
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f"{file.name}, line {mark.line + 1}" if mark else file.name
        raise DataflexError(f"{where}: not valid YAML: {problem or one_line(error)}") from error
    if not isinstance(content, dict):
        raise DataflexError(f"{file.name} should be a mapping of keys to values, not {content!r:.60}")
    try:  # reads numbers as a run does: 1e-6 is one
        loaded: Any = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
    except yaml.YAMLError as error:  # a key that stands twice
        raise DataflexError(f"{file.name}: {one_line(error)}") from error
    return dict(loaded)


def _compose_run(file: Path | None, overrides: Sequence[str]) -> DictConfig:
    """As `python -m verl.trainer.main_ppo --config-dir <folder> --config-name <name> <overrides>` does."""
    require_version()
    verl = find_package("verl")
    assert verl is not None
    schema = verl.folder / "trainer" / "config"
    if file is None:
        return _compose([schema], VERLS_OWN, overrides)
    if file.suffix != ".yaml":
        raise DataflexError(f"{file.name}: Hydra reads only files whose name ends in .yaml")
    if (schema / file.name).exists():
        raise DataflexError(
            f"{file.name}: verl has a configuration of that name, and Hydra would take verl's; rename it"
        )
    return _compose([schema, file.parent], file.stem, overrides)


def _override(content: dict[str, Any], overrides: Sequence[str]) -> DictConfig:
    if not overrides:
        with _plain_errors():
            return OmegaConf.create(content)
    with TemporaryDirectory() as folder:
        (Path(folder) / "block.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
        return _compose([Path(folder)], "block", overrides)


def _compose(folders: Sequence[Path], name: str, overrides: Sequence[str]) -> DictConfig:
    """Compose as `hydra.main` does, whose `--config-dir` is searched after the program's own folder."""
    try:
        from hydra import compose, version
        from hydra._internal.hydra import Hydra
        from hydra._internal.utils import create_config_search_path
        from hydra.core.config_search_path import SearchPathQuery
        from hydra.core.global_hydra import GlobalHydra
    except ImportError as error:
        raise DataflexError("overrides are read by Hydra, which is not installed: pip install hydra-core") from error
    hydra_presets.store()  # here the plugin need not have been loaded
    version.setbase(None)  # as verl has it
    main, *further = folders
    search_path = create_config_search_path(str(main))
    for folder in further:
        search_path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
    with _plain_errors():
        Hydra.create_main_hydra2(task_name="check", config_search_path=search_path)
        try:
            return compose(name, overrides=list(overrides))
        finally:
            GlobalHydra.instance().clear()


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Hydra's and OmegaConf's messages, without a traceback."""
    try:
        yield
    except OmegaConfBaseException as error:
        raise DataflexError(one_line(error)) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "hydra":
            raise
        raise DataflexError(one_line(error)) from error


def one_line(error: Exception) -> str:
    """The message without Hydra's list of folders and OmegaConf's list of keys."""
    parts = [str(error), str(error.__cause__ or "")]
    lines = [line.strip() for part in parts for line in part.partition("Config search path:")[0].splitlines()]
    kept = [line.rstrip(".:") for line in lines if line and not line.startswith(("full_key:", "object_type=", "^"))]
    return "; ".join(kept)
