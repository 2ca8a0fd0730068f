"""Offers the presets to Hydra, as the config group `dataflex`."""

from __future__ import annotations

from dataflex_events import presets

GROUP = "dataflex"  # as the block: it is imported in workers too, which have no use for what defines that name


def store() -> None:
    """Put the presets into Hydra's store of configurations, which every composition in this process looks into."""
    from hydra.core.config_store import ConfigStore

    for name in presets.names():
        ConfigStore.instance().store(
            name, presets.load(name), group=GROUP, package="_global_", provider="dataflex-verl"
        )
