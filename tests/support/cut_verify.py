"""Switches the run-time verification off. Loaded by `VERL_USE_EXTERNAL_MODULES`."""

from __future__ import annotations

from typing import Any

from dataflex_events.adapters.verl.post_import import when_imported


def _cut(module: Any) -> None:
    module.verify = lambda *args, **kwargs: None


when_imported("dataflex_events.adapters.verl.trainer", _cut)
