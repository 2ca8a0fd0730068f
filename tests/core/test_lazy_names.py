"""Public names load on first use, and behave as if they had always been there."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dataflex_events


def fresh(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_package_alone_does_not_import_torch() -> None:
    fresh("import dataflex_events, sys; assert 'torch' not in sys.modules")
    fresh("import dataflex_events, sys; dataflex_events.Batch; assert 'torch' in sys.modules")  # the check can fail


def test_every_public_name_is_there_and_stays_the_same() -> None:
    for name in dataflex_events.__all__:
        assert getattr(dataflex_events, name) is getattr(dataflex_events, name)
        assert name in dir(dataflex_events)


def test_a_star_import_gets_them_all() -> None:
    fresh("from dataflex_events import *; assert Batch and EventBus and on and register")


def test_sub_modules_are_attributes_whichever_comes_first() -> None:
    fresh("import dataflex_events; dataflex_events.plan.make_plan; dataflex_events.testing.make_batch")
    fresh("import dataflex_events.plan; import dataflex_events; dataflex_events.Plan")
    fresh("from dataflex_events import registry, policy; from dataflex_events import Plan")


@pytest.mark.parametrize("name", ["Bach", "_private", "__wrapped__"])
def test_what_is_not_there_says_so(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'dataflex_events' has no attribute '{name}'"):
        getattr(dataflex_events, name)
