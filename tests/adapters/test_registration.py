"""verl finds our trainers, whichever module is imported first."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHECK = """
from verl.trainer.ppo.v1 import get_trainer_cls
for name in ("dataflex_sync", "dataflex_mix_sync"):
    assert get_trainer_cls(name).__name__ == "DataflexSync"
assert get_trainer_cls("sync").__name__ == "PPOTrainerSync"
"""


@pytest.mark.parametrize(
    "first", ["import verl", "import verl.trainer.ppo.v1", "import dataflex_events.adapters.verl.trainer"]
)
def test_trainers_are_registered(first: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"{first}\n{CHECK}"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "dataflex" not in done.stderr
