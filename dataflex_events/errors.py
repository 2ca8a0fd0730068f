"""All errors that dataflex raises on purpose. Every one derives from `DataflexError`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class DataflexError(Exception):
    """Root of all errors raised by dataflex."""


@dataclass(frozen=True, slots=True)
class ConfigIssue:
    """One mistake in a configuration: where it is and what is wrong with it."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigError(DataflexError):
    """The configuration is wrong. The message lists every mistake, one a line.

    Attributes:
        issues: The mistakes: wrong keys and types of the whole block first, then what its parts are wrong about.
    """

    def __init__(self, issues: Sequence[ConfigIssue]) -> None:
        self.issues = tuple(issues)
        count = "1 mistake" if len(issues) == 1 else f"{len(issues)} mistakes"
        super().__init__(f"{count} in the dataflex configuration:\n" + "\n".join(f"  - {issue}" for issue in issues))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[ConfigIssue, ...]]]:
        return type(self), (self.issues,)  # errors travel between Ray processes as pickles


class HandlerError(DataflexError):
    """A handler raised. Names the handler, the event and the step; the handler's own exception is the cause."""


class HandlerOutputError(DataflexError, ValueError):
    """A handler returned something that cannot be used: wrong shape, wrong type, negative or not finite."""


class FieldError(DataflexError, LookupError):
    """A handler asked for a batch field that it did not declare or that this run does not have."""


class VerificationError(DataflexError):
    """What the worker reads is not what the step context resolved."""


class ContractError(DataflexError):
    """The trainer that is installed is not one that dataflex was made for. The message lists every difference.

    Attributes:
        findings: The differences, each a sentence.
        advice: What to do.
    """

    def __init__(self, findings: Sequence[str], advice: str) -> None:
        self.findings = tuple(findings)
        self.advice = advice
        lines = [f"  - {finding}" for finding in findings]
        super().__init__("\n".join(["dataflex does not fit the trainer that is installed:", *lines, advice]))

    def __reduce__(self) -> tuple[type[ContractError], tuple[tuple[str, ...], str]]:
        return type(self), (self.findings, self.advice)


def nearest(name: str, known: Iterable[str], *, listing: bool = True) -> str:
    """Say which known name was probably meant: " (did you mean 'x'?)", or list the known names, or nothing."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f" (did you mean {close[0]!r}?)"
    return f" (known: {', '.join(names)})" if names and listing else ""
