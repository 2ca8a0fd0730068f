"""Collects the state of everything that a run must not forget, and gives it back after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from dataflex_events.state import StateError


@runtime_checkable
class Stateful(Protocol):
    """What has a state."""

    def state_dict(self) -> Mapping[str, Any]:
        """Plain values and tensors."""
        ...

    def load_state_dict(self, state: Any) -> object:
        """Go on from what `state_dict` returned. Raises `ValueError` if it cannot."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One thing that has a state.

    Attributes:
        kind: What it is, with all that its state depends on. A part of another kind starts fresh.
        owner: Has the state.
    """

    kind: str
    owner: Stateful


def collect(parts: Mapping[str, Part]) -> dict[str, Any]:
    """The states of all parts that have one, by name."""
    states = {name: (part.kind, dict(part.owner.state_dict())) for name, part in parts.items()}
    return {name: {"kind": kind, "state": state} for name, (kind, state) in states.items() if state}


def distribute(parts: Mapping[str, Part], saved: Mapping[str, Any]) -> list[str]:
    """Give each part its state.

    Args:
        parts: The parts of this run.
        saved: What `collect` returned.

    Returns:
        What starts fresh and why, and what is not used, in sentences.

    Raises:
        StateError: A part cannot read its own state.
    """
    told = []
    for name, part in parts.items():
        entry = saved.get(name)
        if entry is None:
            if part.owner.state_dict():
                told.append(f"{name}: the checkpoint has no state of it, so it starts fresh")
        elif entry["kind"] != part.kind:
            other = f"the checkpoint has the state of {entry['kind']}, not of {part.kind}"
            told.append(f"{name}: starts fresh, because {other}")
        else:
            try:
                part.owner.load_state_dict(entry["state"])
            except ValueError as error:
                raise StateError(f"{name} cannot go on from its state in the checkpoint: {error}") from error
    left = sorted(saved.keys() - parts.keys())
    told += [f"{name}: its state in the checkpoint is not used, because this run has no such part" for name in left]
    return told
