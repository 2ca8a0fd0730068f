"""Cuts the step that makes a written column visible to workers. Loaded by `VERL_USE_EXTERNAL_MODULES`.

This is the mistake that the plugin's run-time verification is there to catch: the weights are computed, logged and
written, and no worker ever reads them.
"""

from __future__ import annotations

from typing import Any

from dataflex_events.adapters.verl.post_import import when_imported


def _cut(module: Any) -> None:
    module.make_visible = lambda meta: None


when_imported("dataflex_events.adapters.verl.weights", _cut)
