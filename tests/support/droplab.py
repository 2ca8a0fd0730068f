"""Runs for tests of dropping rows: data, policies and settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from dropagents import EMPTY_GROUPS
from dropstory import Deviation, Step, initial_model, read, replay
from labrun import MODULES, SUPPORT, Run, run_verl
from plaingrpo import ADAMW, PlainGrpo

from dataflex_events.adapters.verl.cpu.lab import LabSettings, build_lab

PROMPTS, ROLLOUTS = 20, 8

CONSTANT = {1: 1.0, 3: 0.0, 6: 1.0, 8: 0.0, 11: 1.0, 13: 0.0, 16: 1.0, 18: 0.0}
"""Prompts of the first batch all of whose rollouts get the same reward: 40% of the groups."""

UNEVEN = (8, 8, 5, 3, 0, 8, 1, 7, 2, 8, 0, 6, 4, 8, 3, 2, 5, 0, 7, 7)
"""Sessions to keep of each group: whole, partial and empty groups, one that would be left with a single session. 91
rows stay, which divide neither into two nor into four parts."""

PAIR = (0,) * 4 + (2,) + (0,) * 15
"""Two rows of one group: fewer than mini-batches times ranks. The task of this group has no likely answer: two equal
responses with opposite advantages would have no gradient."""

NOTHING = (0,) * PROMPTS
FIVE = (5,) + (0,) * (PROMPTS - 1)
TWENTY_ONE = (5, 0, 4, 0, 0, 3, 0, 0, 0, 6, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0)
SEVEN = (4, 0, 3) + (0,) * (PROMPTS - 3)

BAND = (
    "{name: band, mechanism: select, scorer: {name: group_solve_rate}, actuator: {name: threshold_band}, apply: drop}"
)
BAND_AS_WEIGHT = BAND.replace("apply: drop", "apply: weight")


def keep_first(sizes: Sequence[Sequence[int]]) -> str:
    """A policy that keeps the first sessions of each group, by step."""
    actuator = f"{{name: 'dropkit:KeepFirst', params: {{sizes: {[list(step) for step in sizes]}}}}}"
    return f"{{name: keep, mechanism: select, scorer: {{name: reward}}, actuator: {actuator}}}"


@dataclass(frozen=True)
class Case:
    """Consecutive steps with the same settings: a run, or a part of one.

    Attributes:
        policies: Policies of the `dataflex:` block. YAML, with which Hydra's grammar agrees here.
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
        kl: Coefficient of the KL loss against the initial model.
        by_step: Further settings, path and value, that `schedule` can set.
        held: Nothing is learned, and the same rollouts are drawn as in all other steps that are held.
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
    kl: float = 0.0
    by_step: tuple[tuple[str, Any], ...] = ()
    held: bool = False

    @property
    def block(self) -> dict[str, str]:
        """The `dataflex:` block."""
        policies = [*self.policies, *([keep_first(self.sizes)] if any(self.sizes) else [])]
        handlers = filter(None, ["dropkit:Watch" if self.probe else "", *self.handlers])
        return {"policies": f"[{', '.join(policies)}]", "handlers": f"[{', '.join(handlers)}]", "verify_every": "1"}

    @property
    def settings(self) -> dict[str, Any]:
        """What is set by step, where this is a part of a run."""
        actor: dict[str, Any] = {
            "loss_agg_mode": self.loss,
            "ppo_mini_batch_size": self.prompts // self.mini_batches,
            "use_kl_loss": self.kl > 0,
            "kl_loss_coef": self.kl,
            **({"optim.lr": 0.0} if self.held else {}),
        }
        block = {key: yaml.safe_load(text) for key, text in self.block.items()}
        paths = {f"actor_rollout_ref.actor.{name}": value for name, value in actor.items()}
        return {"dataflex": block, **paths, **dict(self.by_step)}

    def rows(self) -> list[dict[str, object]]:
        """Prompts of all steps, those of all domains in turn. They are the same in every case, up to their number."""
        own = {"split": "train", "drawn_as": 0 if self.held else None}
        return [
            row
            | {"agent_name": "uneven_sessions" if self.uneven else "even_sessions"}
            | {"extra_info": {"index": number, "constant": CONSTANT.get(number), **own}}
            for number, row in enumerate(mixed_prompts()[: self.prompts * len(self.sizes)])
        ]


def mixed_prompts() -> list[dict[str, object]]:
    """Prompts of the lab, those of all domains in turn."""
    by_domain: dict[str, list[dict[str, object]]] = {}
    for row in pq.read_table(build_lab(LabSettings.tiny()).train).to_pylist():
        by_domain.setdefault(row["domain"], []).append(row)
    return [row for some in zip(*by_domain.values(), strict=True) for row in some]


def run_cases(cases: Sequence[Case], folder: Path) -> Run:
    """Run cases one after the other, in one run. What is not set by step is that of the first one."""
    first, data = cases[0], folder / "prompts.parquet"
    pq.write_table(pa.Table.from_pylist([row for case in cases for row in case.rows()]), data)
    schedule = [case.settings for case in cases for _ in case.sizes]
    return run_verl(
        folder,
        "trainer.v1.trainer_mode=dataflex_sync",
        f"data.train_files={data}",
        "data.shuffle=False",
        f"data.train_batch_size={first.prompts}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={first.prompts // first.mini_batches}",
        f"actor_rollout_ref.actor.loss_agg_mode={first.loss}",
        f"actor_rollout_ref.actor.use_kl_loss={any(case.kl for case in cases)}",  # makes a reference policy
        f"reward.custom_reward_function.path={SUPPORT / 'droprewards.py'}",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={SUPPORT / 'dropagents.yaml'}",
        *(f"+dataflex.{key}={text}" for key, text in first.block.items()),
        *first.overrides,
        steps=len(schedule),
        ranks=first.ranks,
        schedule=schedule if len(cases) > 1 else (),
        environment={MODULES: "workerprobe"} if first.probe else None,
        timeout=850,
    )


LOSSES = ("token-mean", "seq-mean-token-mean")

CASES = [
    Case(sizes=((), UNEVEN, PAIR, NOTHING), loss=loss, mini_batches=mini_batches, ranks=ranks)
    for ranks in (1, 2)
    for mini_batches in (1, 4)
    for loss in LOSSES
]
"""Both ways to average, one and four optimizer steps, one and two ranks."""

SELECTORS = {"none": (), "drop": (BAND,), "weight": (BAND_AS_WEIGHT,)}

HELD = {(loss, apply): Case(policies, loss=loss, held=True) for loss in LOSSES for apply, policies in SELECTORS.items()}
"""The same batch without a selector and with `threshold_band` in both ways, for both ways to average."""

SESSIONS = Case(
    (BAND,),
    sizes=((5,) * (PROMPTS - len(EMPTY_GROUPS)), ()),
    loss="seq-mean-token-mean",
    mini_batches=2,
    uneven=True,
)
"""Sessions that are uneven in the first step; at most five of each group are kept in it."""

CONTROLS = Case(
    sizes=(UNEVEN, UNEVEN, UNEVEN, FIVE, FIVE, UNEVEN),
    loss="seq-mean-token-mean",
    mini_batches=4,
    handlers=("{path: 'cut:CutRows', params: {at: [[], [padding], [divisor], [], [deal], [clear]]}}",),
    fails=True,
)
"""Each mechanism is cut for a step. The last cut stops the run."""

MICRO_BATCHES = Case(
    sizes=(UNEVEN, TWENTY_ONE, SEVEN, ()),
    loss="seq-mean-token-mean",
    mini_batches=2,
    ranks=2,
    kl=0.5,
    by_step=(
        ("actor_rollout_ref.actor.use_dynamic_bsz", False),
        ("actor_rollout_ref.rollout.log_prob_use_dynamic_bsz", False),
        ("actor_rollout_ref.ref.log_prob_use_dynamic_bsz", False),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", 4),
        ("actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu", 4),
        ("actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", 4),
        ("actor_rollout_ref.actor.shuffle", True),
    ),
)
"""Micro-batches of four rows at each stage, shuffled rows and a reference policy."""

FULL_STEPS = 9
HALF = (8, 0) * 16
TIMED = Case(
    sizes=(*(HALF if step % 2 else () for step in range(FULL_STEPS)), ()),
    prompts=len(HALF),
    handlers=(f"{{path: 'weighing:Raises', params: {{at: {FULL_STEPS + 1}}}}}",),
    overrides=(
        # longer rows, all of the same length, so that time follows rows
        "data.max_response_length=48",
        "actor_rollout_ref.rollout.ignore_eos=True",
    ),
    probe=False,
    fails=True,
)
"""All rows and half of them in turn; then a handler raises."""

TOGETHER = [
    (*(case for case in CASES if case.ranks == 1), *HELD.values(), SESSIONS, CONTROLS),
    (*(case for case in CASES if case.ranks == 2), MICRO_BATCHES),
]
"""Cases that share a run."""


@dataclass
class Runs:
    """Makes every run once, however many tests look at it."""

    folder: Path
    _runs: dict[tuple[Case, ...], Run] = field(default_factory=dict)
    _steps: dict[tuple[Case, ...], list[Step]] = field(default_factory=dict)
    _hands: dict[tuple[Case, ...], PlainGrpo] = field(default_factory=dict)
    _deviations: dict[Case, list[list[Deviation]]] = field(default_factory=dict)

    def run(self, case: Case) -> Run:
        """The run to which a case belongs. It ended as it should."""
        cases = _company(case)
        if cases not in self._runs:
            folder = self.folder / f"run{len(self._runs)}"
            folder.mkdir()
            self._runs[cases] = run_cases(cases, folder)
        run = self._runs[cases]
        return run.failed() if any(each.fails for each in cases) else run.succeeded()

    def steps(self, case: Case) -> list[Step]:
        """The steps of a case."""
        cases, run = _company(case), self.run(case)
        if cases not in self._steps:
            self._steps[cases] = read(run)
        start = sum(len(earlier.sizes) for earlier in cases[: cases.index(case)])
        return self._steps[cases][start : start + len(case.sizes)]

    def deviations(self, case: Case) -> list[list[Deviation]]:
        """How much a case's optimizer steps differ from those by hand, which go on from case to case like the run."""
        cases = _company(case)
        if cases not in self._hands:
            self._hands[cases] = PlainGrpo(initial_model(), case.loss)
        hand = self._hands[cases]
        for each in cases[: cases.index(case) + 1]:
            if each not in self._deviations:
                hand.go_on(each.loss, each.kl, 0.0 if each.held else ADAMW["lr"])
                self._deviations[each] = replay(self.steps(each), hand)
        return self._deviations[case]


def _company(case: Case) -> tuple[Case, ...]:
    return next((cases for cases in TOGETHER if case in cases), (case,))
