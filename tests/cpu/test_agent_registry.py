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
