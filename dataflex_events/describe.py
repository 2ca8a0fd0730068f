"""Says in plain words what a plan will do in a run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from dataflex_events.components import Handler, Selector
from dataflex_events.driver import StepDriver
from dataflex_events.events import AdvantageComputed, BufferSample, GroupsFinished, RolloutDone, event_name
from dataflex_events.fields import first_moment
from dataflex_events.gating import GatePolicy
from dataflex_events.marks import marked, name_of
from dataflex_events.mixing import MixPolicy
from dataflex_events.parameters import parameters
from dataflex_events.plan import Plan
from dataflex_events.policy import Policy
from dataflex_events.run import RunFacts

WIDTH = 110

_UNITS = {"token": "over valid tokens", "row": "over rows"}
_LABEL = 11


def describe(plan: Plan, run: RunFacts | None = None, channel: str = "rollout_is_weights") -> str:
    """Explain a plan.

    Args:
        plan: What a configuration asks for.
        run: Facts about the run, if it is known; without them some sentences are less definite.
        channel: The column by which weights reach the policy loss.

    Returns:
        Several lines: each policy, the handlers, what is read, and what is verified.
    """
    blocks = [_policy(policy, plan, run, channel) for policy in plan.policies]
    if plan.mix is not None:
        blocks.append(_mix(plan.mix))
    if plan.gate is not None:
        blocks.append(_gate(plan.gate))
    if plan.observers:
        blocks.append(_handlers(plan, run))
    blocks.append(_run(plan, run))
    return "\n\n".join("\n".join(map(_wrapped, lines)) for lines in blocks)


def _policy(policy: Policy, plan: Plan, run: RunFacts | None, channel: str) -> list[str]:
    selects = isinstance(policy.actuator, Selector)
    moment = first_moment(policy.scorer.fields)
    score = f"{_call(policy.key.name, policy.scorer)}: one per {policy.key.per}, computed at {moment}"
    decision = _call(_registered_name(policy.actuator), policy.actuator)
    lines = [
        f"policy {policy.name!r} ({'select' if selects else 'reweight'})",
        f"  score    {score}{_from(policy.scorer.fields)}",
        f"  {'keep ' if selects else 'weigh'}    {decision}{_from(policy.actuator.fields)}",
        f"  effect   at {event_name(policy.acts_at)}, {_effect(policy, plan, run, channel)}",
    ]
    if policy.refill is not None and policy in plan.applied:
        lines.append(f"  refill   at {event_name(GroupsFinished)}, dropped groups are replaced: {policy.refill}")
    when = _when(policy)
    if when:
        lines.append(f"  when     {when}")
    if policy not in plan.applied:
        lines.append("  shadow   all of it is computed and logged, nothing is applied")
    return lines


def _mix(mix: MixPolicy) -> list[str]:
    score = f"{_call(mix.key.name, mix.scorer)}: one per {mix.key.per}, computed at {event_name(GroupsFinished)}"
    domains = f"all of the column {mix.domain_key!r}"
    if mix.domains is not None:
        others = {None: "", "keep": ", and the other ones of the data", "ignore": "; rows of others are never drawn"}
        domains = f"{', '.join(mix.domains)} of the column {mix.domain_key!r}{others[mix.unlisted]}"
    lines = [
        f"policy {mix.name!r} (mix)",
        f"  score    {score}{_from(mix.scorer.fields)}, for every rollout that is generated",
        f"  mix      {_call(_registered_name(mix.mixer), mix.mixer)}",
        f"  domains  {domains}",
        f"  effect   at {event_name(BufferSample)}, the prompts that are generated next are drawn in these proportions",
    ]
    if mix.warmup_step:
        named = {"data": "those of the data", "uniform": "equal"}
        given = mix.initial if isinstance(mix.initial, dict) else named[mix.initial]
        lines.append(f"  first    until step {mix.warmup_step} the proportions are {given}")
    if mix.update_step > 1:
        lines.append(f"  when     decided anew in one step of {mix.update_step}")
    if mix.shadow:
        lines.append("  shadow   all of it is computed and logged, prompts are drawn as without it")
    return lines


def _gate(policy: GatePolicy) -> list[str]:
    gate = policy.gate
    share = f"{gate.explore_share:.0%} of them, each in turn, whatever it prefers" if gate.explore_share else ""
    effect = f"at {event_name(BufferSample)}, it chooses within each domain which prompts are generated next"
    lines = [
        f"policy {policy.name!r} (gate)",
        f"  counts   outcomes of every group that is generated, by prompt: {policy.reads} above "
        f"{policy.success_threshold:g} is a success",
        f"  gate     {_call(_registered_name(gate), gate)}",
        f"  effect   {effect}{share and ', '}{share}",
    ]
    when = _when(policy)
    if when:
        lines.append(f"  when     {when}")
    if policy.shadow:
        lines.append("  shadow   what it would draw is computed and logged, prompts are drawn as without it")
    return lines


def _effect(policy: Policy, plan: Plan, run: RunFacts | None, channel: str) -> str:
    weights = f"the weights, {_normalized(policy, run)}, are multiplied into the column `{channel}` of the policy loss"
    if not isinstance(policy.actuator, Selector):
        return weights
    if policy.acts_at is RolloutDone:
        effect = "rows that are not kept leave the batch, before log-probs, reference and update"
    elif policy.apply == "mask":
        effect = "what is not kept is masked: it leaves the policy loss, KL, entropy and the value loss"
    else:
        effect = f"what is not kept gets weight 0; {weights}"
    return effect + _baseline(policy, plan, run)


def _normalized(policy: Policy, run: RunFacts | None) -> str:
    how: str = policy.normalize
    if how == "none":
        return "not normalised"
    if how == "auto" and run is None:
        return "scaled to mean 1 as the run's loss_agg_mode asks"
    if how == "auto" and run is not None:
        how = "token" if run.loss_agg_mode == "token-mean" else "row"
    return f"scaled to mean 1 {_UNITS[how]}"


def _baseline(policy: Policy, plan: Plan, run: RunFacts | None) -> str:
    if run is not None and not run.group_baseline:
        return ""
    over = plan.baseline or ("subset" if policy.acts_at is RolloutDone else "full")
    return f"; group baselines are those of {'the kept' if over == 'subset' else 'all'} rows"


def _when(policy: Policy | GatePolicy) -> str:
    parts = []
    if policy.warmup_step:
        parts.append(f"after the first {policy.warmup_step} steps")
    if policy.update_step > 1:
        parts.append(f"in one step of {policy.update_step}")
    return ", ".join(parts)


def _handlers(plan: Plan, run: RunFacts | None) -> list[str]:
    lines = ["handlers"]
    for name, handler in plan.observers:
        for fn, marks in marked(handler):
            label = f"{name} ({name_of(fn)})" if name else name_of(fn)
            lines += [f"  {label}: at {event_name(event)}{_from(fields)}" for event, fields in marks]
        if name == "tensorboard" and run is not None and run.tensorboard_dir is None:
            lines.append("  tensorboard writes nothing: the run does not log to TensorBoard")
    return lines


def _run(plan: Plan, run: RunFacts | None) -> list[str]:
    driver = StepDriver(plan.bus(), run or RunFacts())
    reads = {
        GroupsFinished: driver.group_fields,
        RolloutDone: driver.rollout_fields,
        AdvantageComputed: driver.update_fields,
    }
    read = "; ".join(f"{_listed(fields)} at {event_name(event)}" for event, fields in reads.items() if fields)
    stops = "stops the run" if plan.settings.on_error == "raise" else "is logged and taken out, and the run goes on"
    lines = ["in every step", f"  reads    {read}", f"  errors   a handler that raises {stops}"]
    if plan.settings.shadow:
        lines.append("  shadow   nothing is applied: training is what it would be without the block")
    else:
        lines.append(f"  verified {_verified(plan.settings.verify_every)}")
    return lines


def _verified(every: int) -> str:
    then = f", and then every {every} steps" if every else ""
    what = "the batch is read back on the workers' path and compared with what was decided; a difference stops the run"
    return f"at the first step that changes anything{then}, {what}"


def _call(name: str, component: Handler) -> str:
    values = ", ".join(f"{key}={getattr(component, key)!r}" for key in parameters(type(component)))
    return f"{name}({values})"


def _registered_name(component: Handler) -> str:
    from dataflex_events import registry

    kind = registry.kind_of(type(component))
    known = (entry.name for entry in registry.names(kind).values() if entry.component is type(component))
    return next(known, f"{type(component).__module__}:{type(component).__qualname__}")


def _from(fields: Iterable[str]) -> str:
    listed = _listed(fields)
    return f", from {listed}" if listed else ""


def _listed(fields: Iterable[str]) -> str:
    return ", ".join(sorted(fields))


def _wrapped(line: str) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent=" " * _LABEL, break_long_words=False, break_on_hyphens=False)
