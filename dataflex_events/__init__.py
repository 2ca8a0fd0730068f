"""Event bus that schedules the data of RL fine-tuning: which rollouts to train on and how much each token counts.

The core knows no trainer. `dataflex_events.handlers` holds the built-in components, `dataflex_events.adapters.verl` the
plugin for verl, `dataflex_events.testing` helps to test handlers of your own.
"""

from pathlib import Path
from typing import TYPE_CHECKING

# In a checkout the sub-packages `handlers` and `adapters` lie next to this folder, not inside it.
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file() and (_checkout / "handlers").is_dir():
    __path__.append(str(_checkout))

if TYPE_CHECKING:
    from dataflex_events._api import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        """Import public names and sub-modules on first use: torch is slow to import, and `--help` does not need it."""
        from importlib import import_module
        from importlib.util import find_spec

        if name == "__all__" or not name.startswith("_"):
            if find_spec(f"{__name__}.{name}") is not None:
                return import_module(f"{__name__}.{name}")
            api = import_module(f"{__name__}._api")
            if name == "__all__" or name in api.__all__:
                globals()[name] = getattr(api, name)
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__getattr__("__all__")})
