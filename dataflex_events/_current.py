"""Which handler is running now. The bus sets it, contexts read it to know whose proposal they receive."""

from __future__ import annotations

from contextvars import ContextVar

running: ContextVar[str] = ContextVar("dataflex_running_handler", default="direct")


def current_handler() -> str:
    """Name of the innermost running handler, or "direct" outside of any."""
    return running.get()
