"""Which domains a mix policy draws from, and which rows of the data belong to each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dataflex_events.errors import ConfigError, ConfigIssue, nearest
from dataflex_events.mixing import MixPolicy
from dataflex_events.policies import domain_issues
from dataflex_events.pools import DomainTable

_SHOWN = 5


def domain_table(found: Sequence[str], codes: np.ndarray, policy: MixPolicy) -> DomainTable:
    """The domains of a mix policy: those that it lists, or all of the data in the order of their first rows.

    Args:
        found: Names of the domains that the data has.
        codes: `(R,)` integers, the place in `found` of each row's domain; -1 for a row that has none.
        policy: The policy.

    Raises:
        ConfigError: A listed domain has no rows, or there are rows that belong to no domain of the policy and it does
            not say what to do with them, or its parameters do not fit the domains. Lists all that is wrong.
    """
    counts = np.bincount(codes[codes >= 0], minlength=len(found))
    rows = {name: int(count) for name, count in zip(found, counts, strict=True) if count}
    issues = _row_issues(found, codes, policy)
    listed = list(rows) if policy.domains is None else list(policy.domains)
    absent = [name for name in listed if name not in rows]
    issues += [
        ConfigIssue(f"{policy.path}.domains", f"no row of the data has the domain {name!r}{nearest(name, rows)}")
        for name in absent
    ]
    known = frozenset(listed)
    others = [name for name in rows if name not in known]
    if others and policy.unlisted is None:
        shown = ", ".join(map(repr, others[:_SHOWN])) + (", ..." if len(others) > _SHOWN else "")
        count = sum(rows[name] for name in others)
        message = (
            f"does not list {shown}, the domain of {count} rows; list it, or say `unlisted: ignore` (never draw these "
            "rows) or `unlisted: keep` (they are domains too)"
        )
        issues.append(ConfigIssue(f"{policy.path}.domains", message))
    names = listed + (others if policy.unlisted == "keep" else [])
    if issues:
        raise ConfigError(issues)
    issues = domain_issues(policy, names)
    if issues:
        raise ConfigError(issues)
    place = {name: number for number, name in enumerate(names)}
    lookup = np.array([place.get(name, -1) for name in found] + [-1], dtype=np.int32)  # -1 reads the last one
    return DomainTable.from_codes(lookup[codes], tuple(names))


def _row_issues(found: Sequence[str], codes: np.ndarray, policy: MixPolicy) -> list[ConfigIssue]:
    without = np.flatnonzero(codes < 0)
    if not len(without) or (policy.unlisted == "ignore" and len(without) < len(codes)):
        return []
    rows = ", ".join(map(str, without[:_SHOWN])) + (", ..." if len(without) > _SHOWN else "")
    message = (
        f"is the column {policy.domain_key!r}, and {len(without)} of {len(codes)} rows have no domain there "
        f"(row {rows}): give them one, or say `unlisted: ignore` to never draw them"
    )
    return [ConfigIssue(f"{policy.path}.domain_key", message)]
