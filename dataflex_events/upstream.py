"""What a block that was written for DataFlex-RL does differently here.

Its blocks work as they are: the short form of a block is its form, and the names are its names.
Some defaults are those of the papers instead, and some results are others. docs/migration.md has the whole list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dataflex_events.components import Selector
from dataflex_events.events import RolloutDone
from dataflex_events.parsing import parse
from dataflex_events.plan import Plan
from dataflex_events.policy import Policy
from dataflex_events.selection import selects_groups
from dataflex_events.upstream_mix import mix_differences

# What DataFlex-RL can name. A block that names anything else was not written for it.
SCORERS = frozenset({"advantage_magnitude", "group_solve_rate", "reward_difficulty", "token_prob"})
ACTUATORS = frozenset(
    {
        "advantage_reweight",
        "difficulty_band",
        "gfpo",
        "max_variance",
        "per_advantage",
        "softmax",
        "threshold_band",
        "topk_fraction",
    }
)

Block: TypeAlias = Mapping[str, Any]
Condition: TypeAlias = Callable[[Policy, Block], bool]


def _unset(*path: str) -> Condition:
    """The block does not have the key."""

    def holds(policy: Policy, block: Block) -> bool:
        value: Any = block
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value is None

    return holds


def _always(policy: Policy, block: Block) -> bool:
    return True


def _drops(policy: Policy, block: Block) -> bool:
    return policy.acts_at is RolloutDone


def _scales_up(policy: Policy, block: Block) -> bool:
    return not _drops(policy, block) and policy.apply == "weight" and policy.normalize != "none"


def _masks(policy: Policy, block: Block) -> bool:
    return not _drops(policy, block) and policy.apply == "mask"


def _over_kept_rows(policy: Policy, block: Block) -> bool:
    whole_groups = isinstance(policy.actuator, Selector) and selects_groups(policy.scorer, policy.actuator)
    over = policy.baseline or ("subset" if _drops(policy, block) else "full")
    return over == "subset" and not whole_groups


def _inside(policy: Policy, block: Block) -> bool:
    return getattr(policy.actuator, "low", 0) > 0 or getattr(policy.actuator, "high", 1) < 1


_SMALLER_STEP = "theirs get weight 0, and the step shrinks (`apply: weight` with `normalize: none`)"
_OVER_TOKENS = (
    _unset("normalize"),
    "weights have mean 1 over valid tokens where loss_agg_mode is token-mean; theirs over rows (`normalize: row`)",
)
_MASKED_REWARD = (_always, "a reward on a masked token counts, theirs does not")

# By mechanism, component or key: when, and what.
_TABLE: Mapping[str, tuple[tuple[Condition, str], ...]] = {
    "select": (
        (_drops, f"rows that are not kept leave the batch before log-probs and update; {_SMALLER_STEP}"),
        (_scales_up, f"rows that are not kept get weight 0 and the others are scaled up; {_SMALLER_STEP}"),
        (_masks, f"rows that are not kept are masked in all losses; {_SMALLER_STEP}"),
        (_over_kept_rows, "advantages are relative to the kept rows, theirs to the whole group (`advantages: full`)"),
    ),
    "reweight": ((_always, "weights multiply verl's importance weights, theirs replace them"),),
    "reward_difficulty": (_MASKED_REWARD,),
    "group_solve_rate": (_MASKED_REWARD,),
    "threshold_band": ((_inside, "scores within 1e-6 of a bound equal it, theirs are compared as floats"),),
    "topk_fraction": (
        (_always, "half a row counts as one and of equal scores the lower row wins; theirs: half to even, any"),
    ),
    "max_variance": (
        (_always, "at least 2 rows of a group, half a row counts as one; theirs: at least 1, half to even"),
    ),
    "softmax": (_OVER_TOKENS,),
    "difficulty_band": (_OVER_TOKENS,),
    "per_advantage": (_OVER_TOKENS,),
    "advantage_reweight": (
        (_unset("actuator", "params", "alpha"), "alpha is 0.2, theirs 0.5"),
        (_unset("normalize"), "weights are as they are, theirs are divided by their mean (`normalize: token`)"),
    ),
    "warmup_step": (
        (lambda policy, block: policy.warmup_step > 0, "so many first steps are left alone, theirs one less"),
    ),
    "update_step": (
        (lambda policy, block: policy.update_step > 1, "acts in one step of so many, theirs in every step"),
    ),
}


def differences(plan: Plan, block: Block | None) -> list[str]:
    """What differs from DataFlex-RL in a run with this block; nothing if the block was not written for it.

    Args:
        plan: What the block asks for.
        block: The `dataflex:` block.

    Returns:
        Sentences, each with the mechanism, component or key that it is about.
    """
    if block is None or not parse(block).short:
        return []
    if plan.mix is not None:
        return mix_differences(plan.mix, block)
    if len(plan.policies) != 1:
        return []
    (policy,) = plan.policies
    scorer, actuator = block["scorer"]["name"], block["actuator"]["name"]
    if scorer not in SCORERS or actuator not in ACTUATORS:
        return []
    topics = (block["mechanism"], scorer, actuator, "warmup_step", "update_step")
    return [
        f"{topic}: {sentence}"
        for topic in topics
        for condition, sentence in _TABLE.get(topic, ())
        if condition(policy, block)
    ]
