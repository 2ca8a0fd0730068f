"""Compares the verl that is installed with what we rely on, before anything starts.

verl changes between releases, and several of the things that we rely on would fail in silence: a batch that is not
dropped, weights that nobody reads. So a run with a `dataflex:` block is refused if anything is not as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from dataflex_events.adapters.verl.installed import ADVICE, Package, find_package, version_finding
from dataflex_events.adapters.verl.promises import DEFINITIONS, TEXTS
from dataflex_events.adapters.verl.sources import Sources, parameters
from dataflex_events.errors import ContractError


def require() -> None:
    """Refuse to go on with a verl that is not as we need it.

    Raises:
        ContractError: Lists everything that is different.
    """
    # Where the source is different already, what its functions do is not worth a try.
    found = findings() or field_findings()
    if found:
        raise ContractError(found, ADVICE)


def require_version() -> None:
    """Refuse to go on with a verl of another version, in which even the modules that we import are not there.

    Raises:
        ContractError: Says which one is there and what to install.
    """
    finding = version_finding(find_package("verl"))
    if finding:
        raise ContractError([finding], ADVICE)


def findings() -> list[str]:
    """What is different in the installed packages, each a sentence. Imports none of them."""
    return list(_findings(find_package("verl"), find_package("transfer_queue")))


@functools.cache
def _findings(verl: Package | None, queue: Package | None) -> Sequence[str]:
    wrong = version_finding(verl)
    if wrong or verl is None:
        return [str(wrong)]  # the rest would only be its consequences
    if queue is None:
        return ["TransferQueue is not installed, and verl needs it: pip install 'TransferQueue>=0.1.10'"]
    return compare(Sources({"verl": verl.folder, "transfer_queue": queue.folder}))


def compare(sources: Sources) -> list[str]:
    """What is different in verl's and TransferQueue's sources."""
    return [*_definitions(sources), *_texts(sources)]


def field_findings() -> list[str]:
    """What is different in how a worker reads its batch. Imports verl.

    Empty also if it could not be tried: every run verifies it as well, at the first step that has an effect.
    """
    from dataflex_events.adapters.verl.field_probe import CannotProbe, columns_read

    try:
        different = columns_read()
    except CannotProbe:
        return []
    return [different] if different else []


def _definitions(sources: Sources) -> Iterator[str]:
    for module, promised in DEFINITIONS.items():
        for promise in promised:
            name, has_parameters, listed = promise.rstrip(")").partition("(")
            found = sources.find(module, name)
            if found is None:
                yield f"{module}: {promise} should be there, but is not"
                continue
            takes = parameters(found) if has_parameters else []
            if takes is None:
                yield f"{module}: {name} should be a function with the parameters ({listed}), but is none"
            elif has_parameters and not _fits(list(filter(None, listed.split(", "))), takes):
                yield f"{module}: {name} should take ({listed}), but takes ({', '.join(takes)})"


def _fits(expected: list[str], takes: list[str]) -> bool:
    names = [name.rstrip("=") for name in takes]
    if expected[-1:] != ["..."]:
        return names == expected
    required = len(expected) - 1
    optional = all(name.startswith("*") or name.endswith("=") for name in takes[required:])
    return names[:required] == expected[:required] and optional


def _texts(sources: Sources) -> Iterator[str]:
    for module, texts in TEXTS.items():
        for text in texts:
            if not sources.has_text(module, text):
                yield f"{module}: should look up {text!r}, but does not"
