"""The lab: a small model, a verifiable multi-domain data set and a reward, on which verl runs on a CPU.

It is built once from its settings and kept in the user's cache folder.

    python -m dataflex_events.adapters.verl.cpu.lab                      build, say where and what the model can do
    python -m dataflex_events.adapters.verl.cpu.lab --print-overrides    verl's overrides, for a shell script
    python -m dataflex_events.adapters.verl.cpu.lab --print-environment  NAME=VALUE lines, for `env` or `export`
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataflex_events.adapters.verl.cpu.tasks import DOMAINS

FORMAT = 3
"""Part of the cache key: raise it when a change of code makes other labs from the same settings."""

PROMPT_LENGTH = 24
"""Longest prompt of the data, in tokens, chat marks included."""

RESPONSE_LENGTH = 8
"""Longest right answer and its end token are 7 tokens; one more shows answers that are too long."""


@dataclass(frozen=True)
class LabSettings:
    """Everything that decides what the lab looks like.

    Attributes:
        seed: Seed of data, weights and warm-up.
        train_per_domain: Training prompts of each domain.
        held_out_per_domain: Held-out prompts of each domain, none of them among the training prompts.
        hidden_size: Width of the model.
        layers: Layers of the model.
        clean_steps: Warm-up steps on right answers.
        noisy_steps: Warm-up steps in which a share of the answers is wrong.
        wrong_share: That share.
        warm_up_batch: Questions in a warm-up batch.
        learning_rate: Of the warm-up.
        measured_samples: Samples per held-out prompt when the solve rates are measured.
    """

    seed: int = 0
    train_per_domain: int = 512
    held_out_per_domain: int = 96
    hidden_size: int = 128
    layers: int = 3
    clean_steps: int = 400
    noisy_steps: int = 30
    wrong_share: float = 0.4
    warm_up_batch: int = 64
    learning_rate: float = 2e-3
    measured_samples: int = 4

    @classmethod
    def tiny(cls) -> LabSettings:
        """Built in seconds, for tests: the model solves little, but groups have mixed outcomes."""
        return cls(
            train_per_domain=64,
            held_out_per_domain=8,
            hidden_size=64,
            layers=2,
            clean_steps=150,
            noisy_steps=0,
            wrong_share=0.0,
            learning_rate=4e-3,
        )

    @property
    def key(self) -> str:
        """Short name of these settings, for the cache."""
        text = json.dumps([FORMAT, dataclasses.asdict(self)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class Lab:
    """A lab on disk.

    Attributes:
        root: Its folder.
        settings: What it was built from.
        solve_rates: Share of right answers at temperature 1 on the held-out prompts after warm-up, by domain.
    """

    root: Path
    settings: LabSettings
    solve_rates: dict[str, float]

    @property
    def model(self) -> Path:
        """Folder of model and tokenizer."""
        return self.root / "model"

    @property
    def train(self) -> Path:
        """Parquet file of the training prompts."""
        return self.root / "train.parquet"

    @property
    def held_out(self) -> Path:
        """Parquet file of the held-out prompts."""
        return self.root / "held_out.parquet"

    @property
    def reward(self) -> Path:
        """Python file of the reward function `compute_score`."""
        return self.root / "reward.py"

    @property
    def router(self) -> Path:
        """YAML file that names the load balancer of the rollout servers."""
        return self.root / "router.yaml"

    @property
    def domains(self) -> tuple[str, ...]:
        """Values of the data's `domain` column."""
        return tuple(DOMAINS)


def default_root() -> Path:
    """Folder that holds the labs: `dataflex-verl` in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "dataflex-verl"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def build_lab(settings: LabSettings | None = None, root: Path | None = None, say: Callable[[str], None] = _say) -> Lab:
    """Build the lab, or find it built.

    Args:
        settings: What to build; the defaults if left out.
        root: Folder for labs; the user's cache folder if left out.
        say: Receives progress in words.
    """
    settings = settings or LabSettings()
    folder = (root or default_root()) / f"lab-{settings.key}"
    if not (folder / "lab.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Built aside and renamed: nobody ever sees half a lab, and of two builders the second one's work is dropped.
        building = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))
        try:
            say(f"Building the lab once, in {folder} (a minute or two)")
            from dataflex_events.adapters.verl.cpu.lab_contents import write_lab  # needs torch and Transformers

            write_lab(settings, building, say)
            try:
                building.rename(folder)
            except OSError:
                if not (folder / "lab.json").is_file():
                    raise
        finally:
            shutil.rmtree(building, ignore_errors=True)
    facts = json.loads((folder / "lab.json").read_text(encoding="utf-8"))
    return Lab(folder, settings, facts["solve_rates"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line; see the module's docstring."""
    from dataflex_events.adapters.verl.cpu.overrides import lab_environment, lab_overrides

    parser = argparse.ArgumentParser(prog="python -m dataflex_events.adapters.verl.cpu.lab")
    parser.add_argument("--tiny", action="store_true", help="the lab of the tests: built in seconds, solves little")
    parser.add_argument("--root", type=Path, help="folder for labs (default: the user's cache folder)")
    show = parser.add_mutually_exclusive_group()
    show.add_argument("--print-overrides", action="store_true", help="print verl's overrides, one a line")
    show.add_argument("--print-environment", action="store_true", help="print NAME=VALUE lines")
    options = parser.parse_args(arguments)
    if options.print_environment:
        print("\n".join(f"{name}={value}" for name, value in lab_environment().items()))
        return
    lab = build_lab(LabSettings.tiny() if options.tiny else LabSettings(), options.root)
    if options.print_overrides:
        print("\n".join(lab_overrides(lab)))
        return
    print(lab.root)
    for domain, rate in lab.solve_rates.items():
        print(f"{domain:10} solves {rate:.0%}")


if __name__ == "__main__":
    main()
