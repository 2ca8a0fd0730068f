"""What a Mix block that was written for DataFlex-RL does differently here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dataflex_events.mixing import MixPolicy

MIXERS = frozenset({"dump_ucb", "reward_gap", "static", "tscl"})

Condition: TypeAlias = Callable[[MixPolicy, Mapping[str, Any]], bool]


def _always(policy: MixPolicy, params: Mapping[str, Any]) -> bool:
    return True


def _unset(name: str) -> Condition:
    return lambda policy, params: name not in params


def _has_floor(policy: MixPolicy, params: Mapping[str, Any]) -> bool:
    return getattr(policy.mixer, "floor", 0.0) > 0


_DRAWN = "proportions decide which prompts are generated; theirs choose among prompts that are generated anyway"
_COUNTED = "every generated rollout counts once, also if a filter or a selection drops it; theirs: what is trained on"
_FLOOR = (_has_floor, "no proportion is below floor; theirs can be, since they divide by the sum after it")
_STEPS = (_always, "its window is counted in steps of a domain, theirs in rollouts")
_COOLER = (_unset("temperature"), "temperature is 0.1, theirs 1.0")

_TABLE: Mapping[str, tuple[tuple[Condition, str], ...]] = {
    "mix": ((_always, _DRAWN), (_always, _COUNTED)),
    "reward_gap": (
        _STEPS,
        (_always, "a domain that was never generated counts as the mean of the others, theirs as reward 0"),
        _FLOOR,
    ),
    "dump_ucb": (
        (_always, "the bonus is smaller for domains that were generated more often; theirs never learns how often"),
        _COOLER,
        (_unset("floor"), "floor is 0, theirs 0.05"),
        _FLOOR,
    ),
    "tscl": (
        _STEPS,
        (_always, "slopes of mean scores, per step; theirs reads mean rewards in their place"),
        _COOLER,
        _FLOOR,
    ),
    "warmup_step": (
        (
            lambda policy, params: policy.warmup_step > 0,
            "until the mixer decides, domains are drawn as the data has them (`initial`)",
        ),
    ),
}


def mix_differences(policy: MixPolicy, block: Mapping[str, Any]) -> list[str]:
    """Sentences, each with the mechanism, component or key that it is about.

    Args:
        policy: The policy of a block in the short form.
        block: The block.
    """
    actuator = block["actuator"]
    if actuator["name"] not in MIXERS:
        return []
    params = actuator.get("params") or {}
    return [
        f"{topic}: {sentence}"
        for topic in ("mix", actuator["name"], "warmup_step")
        for condition, sentence in _TABLE.get(topic, ())
        if condition(policy, params)
    ]
