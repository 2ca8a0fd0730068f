"""What a run of `mistakes/ten.yaml` must be told: its ten mistakes."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).parent / "mistakes" / "ten.yaml"

LINES = [
    "dataflex.policies[8].mechanism: a second 'gate': a run has one at most, and dataflex.policies[7] is one",
    "dataflex.verify_evry: unknown key (did you mean 'verify_every'?)",
    "dataflex.policies[0].scorer.name: unknown scorer 'group_solve_rat' (did you mean 'group_solve_rate'?)",
    "dataflex.policies[1].actuator.params.temprature: unknown key (did you mean 'temperature'?)",
    "dataflex.policies[2].actuator.params.temperature: should be a valid number, not 'high'",
    "dataflex.policies[4].actuator.params.temperature: should be greater than 0, not -1.0",
    "dataflex.policies[5].apply: 'advantage_magnitude' can run only after advantages are computed, too late to drop "
    "rows; use `apply: weight` or `apply: mask`",
    "dataflex.policies[6].refill: needs a selector that keeps or drops whole groups; 'topk_fraction' chooses rows of "
    "the whole batch",
    "dataflex.policies[3].scorer.name: compares the rollouts of a prompt with each other, and the advantage estimator "
    "'gae' has no groups; use for example 'grpo'",
    "actor_rollout_ref.actor.policy_loss.loss_mode: unknown policy loss 'vanila' (did you mean 'vanilla'?)",
]

MESSAGE = "\n".join([f"{len(LINES)} mistakes in the dataflex configuration:", *(f"  - {line}" for line in LINES)])
