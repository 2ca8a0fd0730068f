"""verl's policy losses, and the column through which weights reach each."""

from __future__ import annotations

from typing import Literal

Channel = Literal["rollout_is_weights", "advantages"]

# These multiply `rollout_is_weights` into the loss, token by token.
WEIGHTED = ("vanilla", "dppo_tv", "dppo_kl", "gspo", "sapo", "gpg", "clip_cov", "kl_cov", "cispo", "dro")
# `bypass_mode` does not read that column, `geo_mean` takes its geometric mean over a row: one 0 would be a whole row's.
# Both are linear in the advantages.
ADVANTAGES = ("bypass_mode", "geo_mean")
# These average rows whatever `loss_agg_mode` says.
BY_ROW = ("sapo", "geo_mean")

KNOWN = (*WEIGHTED, *ADVANTAGES)


def channel_of(loss_mode: str) -> Channel:
    """The column that weights are multiplied into."""
    return "advantages" if loss_mode in ADVANTAGES else "rollout_is_weights"
