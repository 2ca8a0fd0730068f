"""Our state in verl's checkpoints: a folder `dataflex` beside verl's own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from dataflex_events.adapters.verl.dataset import fingerprint
from dataflex_events.checkpoint import collect, distribute
from dataflex_events.plan import Plan
from dataflex_events.prompts import PromptDraw
from dataflex_events.state import MissingState, StateError, read_state, write_state

logger = logging.getLogger("dataflex")

FOLDER = "dataflex"


def checkpoint_folder(config: DictConfig, step: int, *, latest: bool = False) -> Path:
    """The folder for our state.

    Args:
        config: Of the run.
        step: The checkpoint's step.
        latest: It is being written; otherwise the checkpoint is the one that the run resumes from.
    """
    if not latest and config.trainer.resume_mode == "resume_path":
        return Path(config.trainer.resume_from_path) / FOLDER
    return Path(config.trainer.default_local_dir) / f"global_step_{step}" / FOLDER


def save(folder: Path, plan: Plan, draw: PromptDraw | None, dataset: Any, step: int) -> None:
    """Write everything that the run must not forget; nothing if there is nothing."""
    parts = collect(plan.parts())
    if parts or draw is not None:
        write_state(
            folder,
            {"step": step, "dataset": fingerprint(dataset), "parts": parts, "draw": draw and _draw_state(draw)},
        )


def restore(folder: Path, plan: Plan, draw: PromptDraw | None, dataset: Any) -> None:
    """Go on from what `save` wrote, and log what starts fresh.

    Raises:
        StateError: The state cannot be read, or it is about other data.
    """
    parts = plan.parts()
    try:
        saved = read_state(folder)
    except MissingState:
        if collect(parts) or draw is not None:
            logger.warning("the checkpoint %s is one without dataflex: all statistics start fresh", folder.parent)
        return
    now = fingerprint(dataset)
    by_row = draw is not None or saved["draw"] is not None
    if by_row and saved["dataset"] != now:
        raise StateError(
            f"{folder} is about other data than this run's (fingerprint {saved['dataset']}, now {now}): row numbers "
            "would mean other prompts. Use the data of before, or delete the folder to start the statistics fresh"
        )
    told = distribute(parts, saved["parts"])
    told += _restore_draw(draw, saved["draw"])
    for sentence in told:
        logger.warning("resumed from %s: %s", folder.parent, sentence)


def _draw_state(draw: PromptDraw) -> dict[str, Any]:
    return {"domains": list(draw.table.names), "state": draw.state_dict()}


def _restore_draw(draw: PromptDraw | None, saved: dict[str, Any] | None) -> list[str]:
    if draw is None:
        return [] if saved is None else ["the order of the prompts is verl's own from here"]
    if saved is None:
        return ["the order of the prompts starts fresh, because the checkpoint is of a run that drew as verl does"]
    if saved["domains"] != list(draw.table.names):
        return ["the order of the prompts starts fresh, because the domains are others"]
    try:
        draw.load_state_dict(saved["state"])
    except ValueError as error:
        raise StateError(f"the draw cannot go on from its state in the checkpoint: {error}") from error
    return []
