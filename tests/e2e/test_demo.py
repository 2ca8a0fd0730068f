"""README's first command, with fewer steps: it trains, learns, says so, and leaves its logs and nothing else behind."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from labrun import Run, run_command
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dataflex_events.adapters.verl.commands._demo_run import prepare
from dataflex_events.errors import DataflexError

pytestmark = pytest.mark.e2e

STEPS = 10


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "dataflex_events.cli", "demo", "--steps", str(STEPS), "--out", str(folder / "out")]
    return run_command(folder, command, timeout=900).succeeded()


def test_held_out_pass_rate_rises_beyond_noise(demo: Run) -> None:
    found = re.search(r"held-out pass rate +(\d\.\d+) -> (\d\.\d+)", demo.log)
    assert found is not None, demo.log
    before, after = map(float, found.groups())
    # 384 prompts: the standard error of a rate is at most .026, so this is more than two of a difference.
    assert after > before + 0.08


def test_it_shows_the_block_and_a_line_for_each_step(demo: Run) -> None:
    assert "trainer_mode: dataflex_sync" in demo.log and "threshold_band" in demo.log and "softmax" in demo.log
    steps = re.findall(r"^step +(\d+)  reward", demo.log, re.MULTILINE)
    assert [int(step) for step in steps] == list(range(1, STEPS + 1))
    assert re.search(r"^verified +\d+ times", demo.log, re.MULTILINE)


def test_verl_logs_our_scalars(demo: Run) -> None:
    log = (demo.folder / "out" / "verl.log").read_text()
    assert len(re.findall(r"step:\d+ - .*dataflex/kept_frac", log)) == STEPS


def test_tensorboard_has_scalars_and_histogram(demo: Run) -> None:
    folder = demo.folder / "out" / "tensorboard"
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    for tag in ("dataflex/kept_frac", "dataflex/weight_std", "dataflex/verified", "actor/grad_norm"):
        assert events.Scalars(tag)
    drawn = EventAccumulator(str(folder / "dataflex"), size_guidance={"histograms": 0})
    drawn.Reload()
    assert [event.step for event in drawn.Histograms("dataflex/weights")] == [1, 6]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataflexError, match="is not a folder"):
        prepare(tmp_path / "file")
