"""Where the `dataflex:` block stands in a verl configuration, and whether a trainer of ours sees it. Needs no verl."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from omegaconf import DictConfig, OmegaConf

from dataflex_events.config import ROOT
from dataflex_events.errors import ConfigIssue, nearest

TRAINERS = ("dataflex_sync", "dataflex_mix_sync")


def dataflex_block(config: DictConfig) -> Any:
    """The `dataflex:` block as plain values, or None if there is none."""
    block = config.get(ROOT)
    return OmegaConf.to_container(block, resolve=True) if OmegaConf.is_config(block) else block


def mode_of(config: DictConfig) -> str | None:
    """The trainer mode, or None in a verl that has none."""
    return OmegaConf.select(config, "trainer.v1.trainer_mode")


def strays(config: DictConfig) -> list[ConfigIssue]:
    """What may have been meant as the block: misplaced or misspelt ones."""
    parents = [str(key) for key, child in config.items_ex(resolve=False) if OmegaConf.is_dict(child) and ROOT in child]
    misspelt = get_close_matches(ROOT, [str(key) for key in config], n=1, cutoff=0.8)
    issues = [ConfigIssue(f"{key}.{ROOT}", f"the block belongs at the top level, as `{ROOT}`") for key in parents]
    return issues + [ConfigIssue(key, f"unknown key (did you mean {ROOT!r}?)") for key in misspelt]


def mode_issues(config: DictConfig) -> list[ConfigIssue]:
    """Why no trainer of ours would see the block: it must not do nothing in silence."""
    mode = mode_of(config)
    issues = []
    if not OmegaConf.select(config, "trainer.use_v1", default=True):
        issues.append(ConfigIssue("trainer.use_v1", "is false: the legacy trainer would ignore the dataflex block"))
    if mode not in TRAINERS:
        message = f"{mode!r} would ignore the dataflex block; use {TRAINERS[0]!r}"
        hint = nearest(mode, TRAINERS) if mode is not None and mode.startswith("data") else ""
        issues.append(ConfigIssue("trainer.v1.trainer_mode", message + hint))
    return issues
