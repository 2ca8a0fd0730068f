"""Entry point of verl's plugin group. Runs at the end of `import verl`, in every process that verl starts.

So it stays light: it imports neither verl's trainers nor torch code, it only leaves callbacks behind that run when verl
imports the modules in question. verl hides the errors of plugins at DEBUG level; ours are logged at ERROR.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from types import ModuleType

logger = logging.getLogger("dataflex")


def _reported(action: str, callback: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    """Log the callback's exception instead of failing verl's own import: a run that does not use us must go on."""
    from dataflex_events.errors import ContractError

    def run(module: ModuleType) -> None:
        try:
            callback(module)
        except ContractError as error:
            logger.warning("dataflex-verl is off: %s", error)
        except Exception:
            logger.exception("dataflex-verl could not %s; runs that use dataflex will not start", action)

    return run


def _register_trainers(module: ModuleType) -> None:
    from dataflex_events.adapters.verl import trainer  # noqa: F401 - registers them


def _watch_configuration(module: ModuleType) -> None:
    from dataflex_events.adapters.verl import preflight

    module.validate_config = preflight.checking(module.validate_config)


def _offer_presets(module: ModuleType) -> None:
    from dataflex_events.adapters.verl import hydra_presets

    hydra_presets.store()


def install() -> None:
    """Leave the callbacks behind."""
    from dataflex_events.adapters.verl.post_import import when_imported  # here, so that a failure is logged as well

    if os.environ.get("VERL_PLATFORM", "").lower() == "cpu":
        from dataflex_events.adapters.verl import contract
        from dataflex_events.adapters.verl.cpu import install as cpu

        contract.require_version()
        cpu.install()
    when_imported("hydra.core.config_store", _reported("offer its presets", _offer_presets))
    when_imported("verl.trainer.ppo.v1.trainer_sync", _reported("register its trainers", _register_trainers))
    when_imported("verl.utils.config", _reported("check configurations", _watch_configuration))


try:
    install()
except Exception:
    logger.exception("dataflex-verl could not be loaded; runs that use dataflex will not start")
    raise
