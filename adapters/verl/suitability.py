"""What a plan asks for and the run that verl's configuration describes cannot do."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping

from omegaconf import DictConfig

from dataflex_events.adapters.verl import losses
from dataflex_events.adapters.verl.draw_suitability import COMPARES, draw_issues
from dataflex_events.adapters.verl.facts import loss_mode, run_facts
from dataflex_events.components import Selector
from dataflex_events.errors import ConfigIssue, DataflexError, nearest
from dataflex_events.events import AdvantageComputed
from dataflex_events.plan import Plan
from dataflex_events.policy import Policy
from dataflex_events.resolve import UpdateDecision
from dataflex_events.run import RunFacts

logger = logging.getLogger("dataflex")

# Estimators that need nothing but rewards, mask and group, so that advantages can be computed over other rows.
RECOMPUTABLE = (
    "grpo",
    "grpo_vectorized",
    "rloo",
    "rloo_vectorized",
    "opo",
    "gpg",
    "reinforce_plus_plus_baseline",
)

_LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
_ESTIMATOR = "algorithm.adv_estimator"


def run_issues(config: DictConfig, plan: Plan) -> list[ConfigIssue]:
    """Everything that does not fit, policy by policy where one is to blame."""
    run = run_facts(config)
    absent = absent_fields(config)
    issues = [issue for policy in plan.policies for issue in _policy_issues(policy, run, absent)]
    issues += [
        *draw_issues(config, plan, absent, _why_no_groups(run)),
        *_baseline_issues(config, plan, run),
        *_handler_issues(plan, absent),
    ]
    return [*issues, *_loss_issues(config, plan), *_drop_issues(config, plan, run)]


def refuse_what_handlers_propose(config: DictConfig, decision: UpdateDecision) -> None:
    """Stop a step in which a handler proposes what a policy would have been refused at the start.

    Raises:
        DataflexError: Says what, and why not.
    """
    loss = loss_mode(config)
    if decision.mask is not None and loss in losses.ADVANTAGES:
        raise DataflexError(f"a handler masks, but the policy loss {loss!r} cannot do with masked rows; give weights")
    if decision.weights is not None and _distils(config):
        raise DataflexError("a handler gives weights, but verl's distillation losses do not apply them")


def absent_fields(config: DictConfig) -> Mapping[str, str]:
    """Batch fields that this run will not have, and why."""
    algorithm, rollout = config.algorithm, config.actor_rollout_ref.rollout
    correction = algorithm.get("rollout_correction") or {}
    absent = {}
    if not rollout.calculate_log_probs:
        absent["rollout_log_probs"] = "needs actor_rollout_ref.rollout.calculate_log_probs=true"
    if correction.get("bypass_mode", False):
        absent["entropy"] = "is not computed with algorithm.rollout_correction.bypass_mode=true"
    if not correction.get("rollout_is") or correction.get("bypass_mode", False) or "rollout_log_probs" in absent:
        absent["rollout_is_weights"] = "needs algorithm.rollout_correction.rollout_is and the rollout's log-probs"
    if not (config.actor_rollout_ref.actor.use_kl_loss or algorithm.use_kl_in_reward):
        absent["ref_log_prob"] = "needs a reference policy (actor_rollout_ref.actor.use_kl_loss=true)"
    if not _has_critic(config):
        absent["values"] = "needs a critic (algorithm.adv_estimator=gae)"
    return absent


def _policy_issues(policy: Policy, run: RunFacts, absent: Mapping[str, str]) -> list[ConfigIssue]:
    parts = {"scorer": policy.scorer, "actuator": policy.actuator}
    issues = [
        ConfigIssue(f"{policy.path}.{part}.name", f"reads {field!r}, which this run does not have: it {absent[field]}")
        for part, component in parts.items()
        for field in component.fields
        if field in absent
    ]
    grouped = {"scorer": policy.scorer.needs_groups}
    if isinstance(policy.actuator, Selector):
        grouped["actuator"] = policy.actuator.scope == "within_group"
    why = _why_no_groups(run)
    if why:
        message = f"{COMPARES}, and {why}"
        issues += [ConfigIssue(f"{policy.path}.{part}.name", message) for part, needs in grouped.items() if needs]
    return issues


def _why_no_groups(run: RunFacts) -> str:
    if run.estimator == "gae":
        return "the advantage estimator 'gae' has no groups; use for example 'grpo'"
    if run.rollouts_per_prompt == 1:
        return "this run has one for each prompt (actor_rollout_ref.rollout.n=1)"
    return ""


def _baseline_issues(config: DictConfig, plan: Plan, run: RunFacts) -> list[ConfigIssue]:
    """Baselines that are not those which verl computes anyway."""
    wanting = [policy for policy in plan.applied if policy.baseline is not None]
    late = [policy for policy in plan.applied if policy.acts_at is AdvantageComputed and _selects(policy)]
    if not wanting or not (plan.drops if plan.baseline == "full" else late):
        return []
    path = f"{wanting[0].path}.advantages"
    if plan.baseline == "full" and config.algorithm.use_kl_in_reward:
        message = (
            "is 'full', but the reward of a dropped row lacks the KL penalty that algorithm.use_kl_in_reward=true "
            "gives to the others; use `apply: weight` or 'subset'"
        )
        return [ConfigIssue(path, message)]
    if run.estimator in RECOMPUTABLE:
        return []
    message = (
        f"is {plan.baseline!r}, but advantages of {run.estimator!r} cannot be computed over other rows than those in "
        f"the batch; use an estimator among {', '.join(RECOMPUTABLE)}"
    )
    return [ConfigIssue(path, message)]


def _selects(policy: Policy) -> bool:
    return isinstance(policy.actuator, Selector)


def _handler_issues(plan: Plan, absent: Mapping[str, str]) -> list[ConfigIssue]:
    return [
        ConfigIssue("dataflex.handlers", f"{name!r} reads {field!r}, which this run does not have: it {absent[field]}")
        for name, fields in plan.handler_fields()
        for field in sorted(fields & absent.keys())
    ]


def _loss_issues(config: DictConfig, plan: Plan) -> list[ConfigIssue]:
    loss = loss_mode(config)
    if loss not in losses.KNOWN:
        return _unknown_loss(config, plan, loss)
    if plan.masks and loss == "bypass_mode":
        message = "fails on a micro-batch without a valid token, so rows cannot be masked; use `apply: weight`"
        return [ConfigIssue(_LOSS, f"{loss!r} {message}")]
    if plan.masks and loss == "geo_mean":
        message = "averages over masked rows too, so that the step would shrink; use `apply: weight`"
        return [ConfigIssue(_LOSS, f"{loss!r} {message}")]
    if plan.weighs and _distils(config):
        return [ConfigIssue("distillation.enabled", "is true: verl's distillation losses do not apply weights")]
    return []


def _unknown_loss(config: DictConfig, plan: Plan, loss: str) -> list[ConfigIssue]:
    """verl would find out in the first update. A user's own loss may be registered in the workers only."""
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY  # slow to import

    if loss in POLICY_LOSS_REGISTRY or config.actor_rollout_ref.model.get("external_lib"):
        if plan.weighs:
            logger.warning("the policy loss %r is not one of verl's: nobody knows whether it applies weights", loss)
        return []
    return [ConfigIssue(_LOSS, f"unknown policy loss {loss!r}{nearest(loss, POLICY_LOSS_REGISTRY)}")]


def _drop_issues(config: DictConfig, plan: Plan, run: RunFacts) -> list[ConfigIssue]:
    if not plan.drops:
        return []
    if _has_critic(config):
        message = "this run trains a critic, so rows cannot be dropped; give the policy `apply: weight`"
        return [ConfigIssue(_ESTIMATOR, message)]
    if run.estimator == "grpo_passk":
        message = "fails on a group of one, which the padding after a drop can be; give the policy `apply: weight`"
        return [ConfigIssue(_ESTIMATOR, f"{run.estimator!r} {message}")]
    return []


def _distils(config: DictConfig) -> bool:
    return bool((config.get("distillation") or {}).get("enabled", False))


def _has_critic(config: DictConfig) -> bool:
    from verl.trainer.ppo.utils import need_critic  # needs the module whose import brought us here

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says once more what verl has just said
        return bool(need_critic(config))
