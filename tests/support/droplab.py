"""Runs for tests of dropping rows: data, policies and overrides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from dropstory import Step, read
from labrun import SUPPORT, Run, run_verl

from dataflex_events.adapters.verl.cpu.lab import LabSettings, build_lab

PROMPTS, ROLLOUTS = 20, 8
AGENT = "actor_rollout_ref.rollout.agent"

CONSTANT = {1: 1.0, 3: 0.0, 6: 1.0, 8: 0.0, 11: 1.0, 13: 0.0, 16: 1.0, 18: 0.0}
"""Prompts of the first batch all of whose rollouts get the same reward: 40% of the groups."""

UNEVEN = (8, 8, 5, 3, 0, 8, 1, 7, 2, 8, 0, 6, 4, 8, 3, 2, 5, 0, 7, 7)
"""Sessions to keep of each group: whole, partial and empty groups, one that would be left with a single session. 91
rows stay, which divide neither into two nor into four parts."""

PAIR = (0,) * 4 + (2,) + (0,) * 15
"""Two rows of one group: fewer than mini-batches times ranks. The task of this group has no likely answer: two equal
responses with opposite advantages would have no gradient."""

NOTHING = (0,) * PROMPTS

BAND = "{name:band,mechanism:select,scorer:{name:group_solve_rate},actuator:{name:threshold_band}}"
BAND_AS_WEIGHT = BAND[:-1] + ",apply:weight}"


def keep_first(sizes: Sequence[Sequence[int]]) -> str:
    """A policy that keeps the first sessions of each group, by step."""
    listed = str([list(step) for step in sizes]).replace(" ", "")
    actuator = f"{{name:'dropkit:KeepFirst',params:{{sizes:{listed}}}}}"
    return f"{{name:keep,mechanism:select,scorer:{{name:reward}},actuator:{actuator}}}"


def write_prompts(file: Path, count: int) -> None:
    """Prompts, of all domains in turn. Those in `CONSTANT` get constant rewards from `droprewards`."""
    rows = pq.read_table(build_lab(LabSettings.tiny()).train).to_pylist()
    by_domain: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        by_domain.setdefault(row["domain"], []).append(row)
    mixed = [row for some in zip(*by_domain.values(), strict=True) for row in some][:count]
    for number, row in enumerate(mixed):
        row["extra_info"] = {"index": number, "split": "train", "constant": CONSTANT.get(number)}
    pq.write_table(pa.Table.from_pylist(mixed), file)


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        policies: Policies of the `dataflex:` block.
        sizes: What `keep_first` keeps, by step; also says how many steps there are.
        loss: `loss_agg_mode`.
        mini_batches: Optimizer steps of a full training step.
        ranks: Trainer processes.
        prompts: Prompts of a batch.
        handlers: Handlers besides the one that records.
        overrides: Further overrides.
        probe: Record what the workers get and do.
        fails: The run is expected to end with an error.
        uneven: Sessions fail or have several outputs, as `dropagents` says.
    """

    policies: tuple[str, ...] = ()
    sizes: tuple[Sequence[int], ...] = ((),)
    loss: str = "token-mean"
    mini_batches: int = 1
    ranks: int = 1
    prompts: int = PROMPTS
    handlers: tuple[str, ...] = ()
    overrides: tuple[str, ...] = field(default=())
    probe: bool = True
    fails: bool = False
    uneven: bool = False

    def run(self, folder: Path) -> Run:
        """Run it. The first batch is the same in all runs, up to its number of prompts."""
        data = folder / "prompts.parquet"
        write_prompts(data, min(self.prompts * len(self.sizes), 256))
        policies = [*self.policies, *([keep_first(self.sizes)] if any(self.sizes) else [])]
        handlers = ["dropkit:Watch" if self.probe else "", *self.handlers]
        return run_verl(
            folder,
            "trainer.v1.trainer_mode=dataflex_sync",
            f"data.train_files={data}",
            "data.shuffle=False",
            f"data.train_batch_size={self.prompts}",
            f"actor_rollout_ref.actor.ppo_mini_batch_size={self.prompts // self.mini_batches}",
            f"actor_rollout_ref.actor.loss_agg_mode={self.loss}",
            f"reward.custom_reward_function.path={SUPPORT / 'droprewards.py'}",
            f"{AGENT}.agent_loop_config_path={SUPPORT / 'dropagents.yaml'}",
            f"{AGENT}.default_agent_loop={'uneven' if self.uneven else 'even'}_sessions",
            f"+dataflex.policies=[{','.join(policies)}]",
            f"+dataflex.handlers=[{','.join(filter(None, handlers))}]",
            "+dataflex.verify_every=1",
            *self.overrides,
            steps=len(self.sizes),
            ranks=self.ranks,
            environment={"VERL_USE_EXTERNAL_MODULES": "workerprobe"} if self.probe else None,
        )


CASES = [
    Case(sizes=((), UNEVEN, PAIR, NOTHING), loss=loss, mini_batches=mini_batches, ranks=ranks)
    for ranks in (1, 2)
    for mini_batches in (1, 4)
    for loss in ("token-mean", "seq-mean-token-mean")
]
"""Both ways to average, one and four optimizer steps, one and two ranks."""


@dataclass
class Runs:
    """Makes every run once, however many tests look at it."""

    folder: Path
    _runs: dict[Case, Run] = field(default_factory=dict)
    _steps: dict[Case, list[Step]] = field(default_factory=dict)

    def run(self, case: Case) -> Run:
        """The run of a case. It ended as it should."""
        if case not in self._runs:
            folder = self.folder / f"run{len(self._runs)}"
            folder.mkdir()
            self._runs[case] = case.run(folder)
        run = self._runs[case]
        return run.failed() if case.fails else run.succeeded()

    def steps(self, case: Case) -> list[Step]:
        """The steps of a case."""
        if case not in self._steps:
            self._steps[case] = read(self.run(case))
        return self._steps[case]
