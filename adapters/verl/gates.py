"""What a gate policy needs of verl's dataset."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from dataflex_events.adapters.verl.dataset import numbers
from dataflex_events.errors import ConfigError, ConfigIssue
from dataflex_events.gating import GatePolicy
from dataflex_events.pools import DomainTable

logger = logging.getLogger("dataflex")


def whole_dataset(rows: int) -> DomainTable:
    """All rows of a dataset as one domain."""
    return DomainTable.from_codes(np.zeros(rows, dtype=np.int16), ("all",))


def begin_gate(policy: GatePolicy, dataset: Any, table: DomainTable) -> None:
    """Tell a gate about the dataset.

    Raises:
        ConfigError: The dataset lacks what the gate needs.
    """
    params = f"{policy.path}.actuator.params"
    drawn = table.codes >= 0
    columns = {name: numbers(dataset, name, f"{params}.column", drawn) for name in policy.gate.columns}
    try:
        policy.begin(table, columns)
    except ValueError as error:
        raise ConfigError([ConfigIssue(params, str(error))]) from error


def warn_if_seen_once(policy: GatePolicy, table: DomainTable, prompts: int) -> None:
    """Warn where a gate that goes by the past of each prompt will hardly meet one again.

    Args:
        policy: The gate.
        table: The rows.
        prompts: How many prompts the run draws.
    """
    rows, looks = int(table.sizes.sum()), policy.gate.looks
    if policy.gate.needs_groups and prompts * looks <= rows:
        of_each = f" and looks at {looks} for each" if looks > 1 else ""
        logger.warning(
            "the gate %r cannot act: the run draws %d prompts%s, and the data has %d, so hardly any comes up twice; "
            "train for more epochs, or on fewer prompts",
            policy.name,
            prompts,
            of_each,
            rows,
        )
