"""The YAML that the demo runs with, for each mechanism and for several."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import yaml

# In the order in which they act in a step.
POLICIES: Mapping[str, str] = MappingProxyType(
    {
        "gate": """\
    - mechanism: gate                  # generate prompts whose rollouts had different outcomes when they were last seen
      actuator: {name: learnability}
""",
        "mix": """\
    - mechanism: mix                   # draw more prompts of the domains with large advantages
      scorer:   {name: group_advantage}
      actuator: {name: dump_ucb}
""",
        "select": """\
    - mechanism: select                # drop prompts that are always or never solved
      scorer:   {name: group_solve_rate}
      actuator: {name: threshold_band, params: {low: 0.0, high: 1.0}}
""",
        "reweight": """\
    - mechanism: reweight              # large advantages count more
      scorer:   {name: advantage_magnitude}
      actuator: {name: softmax, params: {temperature: 2.0}}
""",
    }
)
DEFAULT = ("select", "reweight")

_HEAD = """\
trainer: {v1: {trainer_mode: dataflex_sync}}
dataflex:
  policies:
"""
_HISTOGRAMS = "  tensorboard: {histograms_every: 5}\n"  # of weights
_VERIFY = "  verify_every: 10\n"  # of what changes the batch


def demo_block(mechanisms: Collection[str] = DEFAULT) -> str:
    """The YAML for these mechanisms; "all" stands for each of them."""
    chosen = [name for name in POLICIES if name in mechanisms or "all" in mechanisms]
    policies = "".join(POLICIES[name] for name in chosen)
    return (
        _HEAD + policies + _HISTOGRAMS * ("reweight" in chosen) + _VERIFY * bool({"select", "reweight"} & set(chosen))
    )


def data_overrides(mechanisms: Collection[str]) -> list[str]:
    """A gate goes by what it saw of each prompt before: so few prompts that a short run sees them several times."""
    gates = {"gate", "all"} & set(mechanisms)
    return ["data.train_max_samples=256", "trainer.total_epochs=1000"] if gates else []


def as_overrides(block: str) -> list[str]:
    """The YAML as Hydra overrides. In a run file of your own it stands as it is."""

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{text(item)}" for key, item in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(text, value)) + "]"
        return str(value)

    values = yaml.safe_load(block)
    mode = f"trainer.v1.trainer_mode={values['trainer']['v1']['trainer_mode']}"
    return [mode, *(f"+dataflex.{key}={text(value)}" for key, value in values["dataflex"].items())]
