"""How the lab's agent loop is made: directly, and others by Hydra as ever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dataflex_events.adapters.verl.cpu import install

pytestmark = pytest.mark.verl


def test_the_labs_loop_is_made_directly_and_others_by_hydra(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataflex_events.adapters.verl.cpu import agent_loop

    monkeypatch.setattr(agent_loop, "RepeatableSingleTurn", dict)
    by_hydra: list[Any] = []
    utils = SimpleNamespace(instantiate=lambda config, **arguments: by_hydra.append((config, arguments)))
    module: Any = SimpleNamespace(_agent_loop_registry={}, hydra=SimpleNamespace(utils=utils))
    install._register_agent_loop(module)
    ours = module._agent_loop_registry[install.AGENT_NAME]
    assert module.hydra.utils.instantiate(config=ours, tokenizer=3) == {"tokenizer": 3}
    assert by_hydra == []
    other = {"_target_": "somebody.Else"}
    module.hydra.utils.instantiate(config=other, tokenizer=3)
    assert by_hydra == [(other, {"tokenizer": 3})]


def test_the_tokens_of_a_prompt_are_made_once_for_all_its_sessions() -> None:
    from dataflex_events.adapters.verl.cpu.agent_loop import TokenizedPrompts

    made: list[str] = []

    def tokenize(uid: str) -> list[int]:
        made.append(uid)
        return [len(uid)]

    known = TokenizedPrompts(capacity=2)
    for uid in ("a", "bb", "a", "ccc", "a"):  # the third pushes out the first
        tokens = known.get(uid, lambda uid=uid: tokenize(uid))
        assert tokens == [len(uid)]
        tokens.append(0)  # each session has its own list
    assert made == ["a", "bb", "ccc", "a"]


def test_the_cores_are_counted_once() -> None:
    asked: list[bool] = []

    def cpu_count(logical: bool) -> int:
        asked.append(logical)
        return 2

    module: Any = SimpleNamespace(psutil=SimpleNamespace(cpu_count=cpu_count, other=3))
    install._count_cores_once(module)
    assert [module.psutil.cpu_count(logical=False) for _ in range(3)] == [2, 2, 2]
    assert asked == [False]
    assert module.psutil.other == 3
