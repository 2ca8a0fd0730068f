"""The result of one check of `dataflex-events doctor`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "FAILED", "not checked"]


@dataclass(frozen=True, slots=True)
class Check:
    """A result.

    Attributes:
        state: What came out.
        title: What was checked, in one line.
        lines: Why it failed and what to do, or why it could not be checked.
    """

    state: State
    title: str
    lines: tuple[str, ...] = ()


def ok(title: str) -> Check:
    """All is well."""
    return Check("ok", title)


def failed(title: str, lines: Iterable[str]) -> Check:
    """Something is wrong; the lines explain it."""
    return Check("FAILED", title, tuple(lines))


def not_checked(title: str, why: str) -> Check:
    """It could not be looked at."""
    return Check("not checked", title, (why,))


def reason(error: BaseException) -> list[str]:
    """An exception and what caused it, one a line, as a traceback would have it but without the calls."""
    lines: list[str] = []
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        text = " ".join(str(cause).split())
        lines.append(("because of " if lines else "") + f"{type(cause).__name__}: {text}".rstrip(": "))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return lines
