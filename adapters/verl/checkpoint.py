"""Our state in verl's checkpoints: a folder `dataflex` beside verl's own."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

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


def save(folder: Path, plan: Plan, draw: PromptDraw | None, dataset: str, step: int) -> None:
    """Write everything that the run must not forget.

    Where there is nothing, a state that an earlier run left in the folder is removed.

    Args:
        folder: Our folder in the checkpoint.
        plan: What the run attached.
        draw: The order of the prompts, if it is ours.
        dataset: Fingerprint of the dataset.
        step: The checkpoint's step.
    """
    parts = collect(plan.parts())
    if parts or draw is not None:
        state = {"step": step, "dataset": dataset, "parts": parts, "draw": draw and _draw_state(draw)}
        write_state(folder, state)
    elif folder.exists():
        shutil.rmtree(folder)


def restore(folder: Path, plan: Plan, draw: PromptDraw | None, dataset: str, step: int) -> None:
    """Go on from what `save` wrote, and log what starts fresh.

    Raises:
        StateError: The state cannot be read, or it is about another step or other data.
    """
    parts = plan.parts()
    try:
        saved = read_state(folder)
    except MissingState:
        if collect(parts) or draw is not None:
            logger.warning("the checkpoint %s is one without dataflex: all statistics start fresh", folder.parent)
        return
    if saved["step"] != step:
        raise StateError(
            f"{folder} is of step {saved['step']}, the checkpoint of step {step}: it was not written with it. Restore "
            "the folder from a copy, or delete it to start the statistics fresh"
        )
    by_row = (draw is not None and saved["draw"] is not None) or (plan.gate is not None and "prompts" in saved["parts"])
    if by_row and saved["dataset"] != dataset:
        raise StateError(
            f"{folder} is about other data than this run's (fingerprint {saved['dataset']}, now {dataset}): row "
            "numbers would mean other prompts. Use the data of before (with data.train_max_samples that needs "
            "data.seed), or delete the folder to start the statistics fresh"
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
