"""What is installed, and whether verl would find and load the plugin. Imports none of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, entry_points, requires, version

from dataflex_events.adapters.verl.commands._report import Check, failed, not_checked, ok
from dataflex_events.adapters.verl.installed import ADVICE, find_package, version_finding

GROUP = "verl.plugins"
PLUGIN = "dataflex_events.adapters.verl.plugin"

_VARIABLE = "VERL_USE_EXTERNAL_PLUGINS"
_OTHERS = {"torch": "torch", "ray": "ray", "transfer_queue": "TransferQueue"}  # package -> distribution


def package_checks() -> Iterator[Check]:
    """The entry point, the variable that decides over plugins, and each package."""
    names = [point.name for point in entry_points(group=GROUP) if point.value == PLUGIN]
    yield _entry_point(names)
    yield _loaded(names)
    yield _verl()
    needed = _needed()
    for package, distribution in _OTHERS.items():
        yield _package(package, distribution, needed.get(distribution.lower()))


def _entry_point(names: list[str]) -> Check:
    title = f"entry point: verl can find dataflex-verl in the group {GROUP!r}"
    if names:
        return ok(title)
    try:
        version("dataflex-verl")
        why = "its installation is older than its source"
    except PackageNotFoundError:
        why = "it is not installed in this environment, only its modules can be found"
    return failed(title, [f"{why}; in its folder: pip install ."])


def _loaded(names: list[str]) -> Check:
    """verl's own rule, from the end of its `__init__`."""
    title = "plugins: verl would load it"
    if version_finding(find_package("verl")):
        return not_checked(title, "there is no verl of a version that fits")
    policy = os.environ.get(_VARIABLE, "auto").strip().lower()
    modules = [name.strip() for name in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",")]
    allowed = {name.strip() for name in policy.split(",")}
    if policy == "auto" or PLUGIN in modules or allowed & set(names):
        return ok(title)
    if policy == "none":
        return failed(title, [f"{_VARIABLE}=none keeps verl from loading any plugin; unset it"])
    name = names[0] if names else "dataflex"
    return failed(title, [f"{_VARIABLE}={policy} does not name it; add {name!r} to the list, or unset it"])


def _verl() -> Check:
    verl = find_package("verl")
    finding = version_finding(verl)
    if finding:
        return failed("verl: installed, and of a version that fits", [finding, ADVICE])
    return ok(f"verl {verl.version if verl else ''} in {verl.folder if verl else ''}")


def _package(package: str, distribution: str, needed: str | None) -> Check:
    found = find_package(package)
    title = f"{distribution}: installed, and of a version that fits"
    install = f"pip install '{distribution}>={needed}'" if needed else f"pip install {distribution}"
    if found is None:
        return failed(title, [f"{distribution} is not installed: {install}"])
    if needed and _numbers(found.version) < _numbers(needed):
        return failed(title, [f"{distribution} {found.version} is too old: {install}"])
    return ok(f"{distribution} {found.version}")


def _needed() -> dict[str, str]:
    """Distribution (in lower case) to the lowest version that our own metadata allow."""
    try:
        lines = requires("dataflex-verl") or []
    except PackageNotFoundError:
        lines = []
    matches = (re.match(r"([\w.-]+)>=([\w.]+)", line) for line in lines)
    return {match[1].lower(): match[2] for match in matches if match}


def _numbers(text: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()
