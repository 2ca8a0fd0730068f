"""The checks of `dataflex-events doctor`, each after those on which it depends."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator, Sequence

from dataflex_events.adapters.verl import contract
from dataflex_events.adapters.verl.block import TRAINERS
from dataflex_events.adapters.verl.commands._as_run import quiet
from dataflex_events.adapters.verl.commands._doctor_config import config_checks
from dataflex_events.adapters.verl.commands._doctor_packages import PLUGIN, package_checks
from dataflex_events.adapters.verl.commands._report import Check, failed, not_checked, ok, reason
from dataflex_events.adapters.verl.field_probe import CannotProbe, columns_read
from dataflex_events.adapters.verl.installed import ADVICE, find_package, version_finding

_VERL = "verl: can be imported"
_PLUGIN = "plugin: loaded by verl"
_TRAINERS = f"trainers: {', '.join(TRAINERS)} are registered"
_CONFIGURATIONS = "configurations: checked before a run starts"
_FIELDS = "fields: a worker reads the columns that a batch lists, and no others"

_NO_VERL = "verl cannot be imported, see above"
_NO_PLUGIN = "verl has not loaded the plugin, see above"


def checks(arguments: Sequence[str]) -> Iterator[Check]:
    """All checks; with arguments, a file and Hydra overrides, also those of the configuration."""
    yield from package_checks()
    yield _contract()
    error = _error_of("verl")
    yield failed(_VERL, reason(error)) if error else ok(_VERL)
    loaded = not error and sys.modules.get(PLUGIN) is not None
    yield not_checked(_PLUGIN, _NO_VERL) if error else _plugin(loaded)
    yield from _inside_verl(loaded, importable=not error)
    if arguments:
        yield from config_checks(arguments, importable=not error)


def _contract() -> Check:
    title = "contract: what we rely on in verl is as it should be"
    if version_finding(find_package("verl")):
        return not_checked(title, "there is no verl of a version that fits, see above")
    found = contract.findings()
    return failed(title, [*found, ADVICE]) if found else ok(title)


def _plugin(loaded: bool) -> Check:
    if loaded:
        return ok(_PLUGIN)
    error = _error_of(PLUGIN)  # verl has hidden it
    return failed(_PLUGIN, reason(error) if error else ["it can be imported, but verl has not done so, see above"])


def _error_of(module: str) -> BaseException | None:
    with quiet(logging.CRITICAL):  # what is logged is said here
        try:
            importlib.import_module(module)
        except (Exception, SystemExit) as error:
            return error
    return None


def _inside_verl(loaded: bool, *, importable: bool) -> Iterator[Check]:
    yield _trainers() if loaded else not_checked(_TRAINERS, _NO_PLUGIN)
    yield _configurations() if loaded else not_checked(_CONFIGURATIONS, _NO_PLUGIN)
    yield _fields() if importable else not_checked(_FIELDS, _NO_VERL)


def _fields() -> Check:
    try:
        different = columns_read()
    except CannotProbe as error:
        return not_checked(_FIELDS, f"{error}; every run verifies it at its first step that changes anything")
    return failed(_FIELDS, [different, ADVICE]) if different else ok(_FIELDS)


def _trainers() -> Check:
    error = _error_of("verl.trainer.ppo.v1.trainer_sync")
    if error is None:
        from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

        missing = [name for name in TRAINERS if name not in TRAINER_REGISTRY]
        if not missing:
            return ok(_TRAINERS)
        error = _error_of("dataflex_events.adapters.verl.trainer")
        if error is None:
            return failed(_TRAINERS, [f"verl does not know {', '.join(missing)}"])
    lines = reason(error)
    if isinstance(error, ModuleNotFoundError):
        lines.append("verl's trainer needs more than verl's base installation: pip install 'dataflex-verl[verl]'")
    return failed(_TRAINERS, lines)


def _configurations() -> Check:
    error = _error_of("verl.utils.config")
    if error is not None:
        return failed(_CONFIGURATIONS, reason(error))
    from verl.utils.config import validate_config

    if hasattr(validate_config, "__wrapped__"):
        return ok(_CONFIGURATIONS)
    error = _error_of("dataflex_events.adapters.verl.preflight")
    return failed(_CONFIGURATIONS, reason(error) if error else ["verl's validate_config is not followed by our check"])
