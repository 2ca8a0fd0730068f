"""Run a callback right after a module was imported, without importing it.

verl loads plugins in every process it starts; importing its trainer there would cost seconds and resolve the hardware
platform before other plugins had registered theirs. So the plugin only leaves callbacks behind.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

Callback = Callable[[ModuleType], None]


class _CallingLoader(importlib.abc.Loader):
    """Delegate to the module's own loader, then run the callbacks."""

    def __init__(self, loader: importlib.abc.Loader, callbacks: list[Callback]) -> None:
        self._loader = loader
        self._callbacks = callbacks

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        for callback in self._callbacks:
            callback(module)

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)  # runpy and inspect ask the loader for code and sources


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        callbacks = self.waiting.pop(fullname, None)
        if callbacks is None:
            return None
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingLoader(spec.loader, callbacks)
        return spec


_finder = _Finder()


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback(module)` as soon as module `name` is imported, or now if it already is.

    Args:
        name: Dotted module name. It is not imported by this call.
        callback: Receives the module after its body ran. An exception propagates to whoever imports the module.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        callback(module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(callback)
