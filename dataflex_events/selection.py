"""How a selection can be applied, and what of it cannot be."""

from __future__ import annotations

from collections.abc import Sequence

from dataflex_events.components import Handler, Scorer, Selector
from dataflex_events.config import PolicyConfig
from dataflex_events.errors import ConfigIssue
from dataflex_events.fields import first_moment
from dataflex_events.policy import Policy

NOT_NORMALIZED = "is for `mechanism: reweight`, and for a selection with `apply: weight`"


def drops(config: PolicyConfig, scorer: Scorer, selector: Selector) -> bool:
    """True if the policy takes rows out of the batch: it knows the score in time, and is not told otherwise."""
    can = not (selects_tokens(scorer, selector) or is_late(scorer) or is_late(selector))
    return can and config.apply in (None, "drop")


def selects_tokens(scorer: Scorer, selector: Selector) -> bool:
    """True if it chooses tokens, not rows."""
    return selector.scope == "token" or (selector.scope == "score" and scorer.per == "token")


def selects_groups(scorer: Scorer, selector: Selector) -> bool:
    """True if it keeps or drops whole groups."""
    return selector.scope == "score" and scorer.per == "group"


def is_late(component: Handler) -> bool:
    """True if it can run only after advantages are computed."""
    return first_moment(component.fields) != "rollout_done"


def selection_issues(config: PolicyConfig, scorer: Scorer, selector: Selector, path: str) -> list[ConfigIssue]:
    """What about a policy that selects cannot work."""
    issues = []
    name = config.actuator.name
    if selector.scope in ("within_group", "batch") and scorer.per == "token":
        message = f"scores tokens; the selector {name!r} compares rows and needs a score per row"
        issues.append(ConfigIssue(f"{path}.scorer.name", message))
    elif selector.scope == "token" and scorer.per != "token":
        message = f"scores rows; the selector {name!r} chooses tokens and needs a score per token"
        issues.append(ConfigIssue(f"{path}.scorer.name", message))
    if config.normalize is not None and config.apply is None and drops(config, scorer, selector):
        issues.append(ConfigIssue(f"{path}.normalize", NOT_NORMALIZED))
    if config.apply == "drop":
        issues += _drop_issues(config, scorer, selector, path)
    reason = _why_no_refill(config, scorer, selector)
    return issues + [ConfigIssue(f"{path}.refill", reason)] * bool(reason)


def baseline_issues(policies: Sequence[Policy]) -> list[ConfigIssue]:
    """Policies that want the baseline of the same groups over different rows."""
    wishes = [policy for policy in policies if policy.baseline is not None and not policy.shadow]
    return [
        ConfigIssue(
            f"{policy.path}.advantages",
            f"is {policy.baseline!r}, but {wishes[0].baseline!r} for the policy {wishes[0].name!r}; a run has one",
        )
        for policy in wishes[1:]
        if policy.baseline != wishes[0].baseline
    ]


def refill_issues(policies: Sequence[Policy]) -> list[ConfigIssue]:
    """Policies that want to replace what they drop in different ways."""
    wishes = [policy for policy in policies if policy.refills]
    return [
        ConfigIssue(
            f"{policy.path}.refill", f"is another one than that of {wishes[0].path}; a run has one way to refill"
        )
        for policy in wishes[1:]
        if policy.refill != wishes[0].refill
    ]


def _drop_issues(config: PolicyConfig, scorer: Scorer, selector: Selector, path: str) -> list[ConfigIssue]:
    if selects_tokens(scorer, selector):
        return [ConfigIssue(f"{path}.apply", "tokens cannot be dropped; use `apply: weight` or `apply: mask`")]
    parts = ((config.scorer, scorer), (config.actuator, selector))
    late = [part.name for part, made in parts if part is not None and is_late(made)]
    if not late:
        return []
    reads = f"{' and '.join(map(repr, late))} can run only after advantages are computed"
    return [ConfigIssue(f"{path}.apply", f"{reads}, too late to drop rows; use `apply: weight` or `apply: mask`")]


def _why_no_refill(config: PolicyConfig, scorer: Scorer, selector: Selector) -> str:
    """Why groups cannot be replaced, or nothing."""
    if config.refill is None:
        return ""
    if not selects_groups(scorer, selector):
        compared = {"within_group": "rows of a group", "batch": "rows of the whole batch", "token": "tokens"}
        what = compared.get(selector.scope, "tokens" if scorer.per == "token" else "single rows")
        return f"needs a selector that keeps or drops whole groups; {config.actuator.name!r} chooses {what}"
    if is_late(scorer) or is_late(selector):
        return (
            "needs a score that is known when a group is finished, and this one needs advantages or log-probabilities"
        )
    return ""
