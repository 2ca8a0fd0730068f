"""Files of runs, as a user writes them."""

from __future__ import annotations

RUN = """\
defaults: [ppo_trainer, _self_]
trainer: {v1: {trainer_mode: dataflex_sync}, logger: [console]}
algorithm: {adv_estimator: grpo}
actor_rollout_ref:
  actor: {ppo_micro_batch_size_per_gpu: 8, loss_agg_mode: token-mean}
  rollout: {n: 8, log_prob_micro_batch_size_per_gpu: 8}
"""

BLOCK = """\
policies:
  - mechanism: select
    scorer:   {name: group_solve_rate}
    actuator: {name: threshold_band, params: {low: 0.2, high: 0.8}}
  - mechanism: reweight
    scorer:   {name: advantage_magnitude}
    actuator: {name: softmax, params: {temperature: 2.0}}
"""

WRONG_BLOCK = BLOCK.replace("group_solve_rate", "group_solv_rate").replace("low:", "lo:")


def under_dataflex(block: str) -> str:
    """The block under its key."""
    return "dataflex:\n" + "".join(f"  {line}\n" for line in block.splitlines())
