"""Where a user sees what differs from DataFlex-RL: at the start of a run, and in `dataflex-events check`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from fakequeue import FakeQueue
from madeup import MadeUpRun
from verlconfig import SYNC, verl_config

from dataflex_events import cli

pytestmark = pytest.mark.verl

AR = "{mechanism:reweight,scorer:{name:token_prob},actuator:{name:advantage_reweight}}"
LISTED = f"{{policies:[{AR}]}}"
LINES = [
    "reweight: weights multiply verl's importance weights, theirs replace them",
    "advantage_reweight: alpha is 0.2, theirs 0.5",
    "advantage_reweight: weights are as they are, theirs are divided by their mean (`normalize: token`)",
]


@pytest.mark.parametrize(("block", "lines"), [(AR, LINES), (LISTED, [])], ids=["its form", "another"])
def test_at_the_start_of_a_run(
    block: str, lines: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "dataflex"):
        MadeUpRun(verl_config(SYNC, f"++dataflex={block}"), FakeQueue(monkeypatch), [])
    first, *told = caplog.messages[0].splitlines()
    assert first.endswith(" is active, policies: advantage_reweight")
    assert told[0] == "policy 'advantage_reweight' (reweight)"
    assert caplog.messages[1:] == [f"differs from DataFlex-RL: {line}" for line in lines]


@pytest.mark.parametrize(("text", "lines"), [(AR, LINES), (LISTED, [])], ids=["its form", "another"])
def test_in_a_check_of_the_block(
    text: str, lines: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "block.yaml").write_text(text.replace(":", ": ").replace(",", ", "))
    assert cli.main(["check", str(tmp_path / "block.yaml")]) == 0
    shown = capsys.readouterr().out
    expected = "\n".join(["\n\ndifferent from DataFlex-RL", *(f"  {line}" for line in lines), "\n"])
    assert (expected in shown) == bool(lines)
    assert ("DataFlex-RL" in shown) == bool(lines)
