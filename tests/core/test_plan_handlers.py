"""Handlers that a block names by import string."""

import pytest

from dataflex_events import ConfigError, RunFacts, StepDriver, StepId, make_plan
from dataflex_events.testing import make_batch


def issues(block):
    with pytest.raises(ConfigError) as caught:
        make_plan(block)
    return [str(issue) for issue in caught.value.issues]


def metrics(block):
    return StepDriver(make_plan(block).bus(), RunFacts()).step(StepId(1), make_batch([[1, 0]])).metrics


def test_handlers_may_stand_alone():
    assert metrics({"handlers": ["toys:watch"]})["watched"] == 1.0


def test_a_class_is_made_with_its_parameters():
    block = {"handlers": [{"path": "toys:Watcher", "params": {"label": "a"}}, "toys:Watcher"]}
    assert {"watched/a", "watched/none"} <= metrics(block).keys()


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("no_such_module:watch", "dataflex.handlers[0]: cannot import 'no_such_module': ModuleNotFoundError"),
        (
            "toys:wach",
            "dataflex.handlers[0]: module 'toys' has no 'wach' (did you mean 'watch'?)",
        ),
        ("watch", "dataflex.handlers[0]: 'watch' is not an import string of the form 'module:attribute'"),
        ("toys:NothingMarked", "dataflex.handlers[0]: <toys.NothingMarked object"),
        (
            {"path": "toys:watch", "params": {"label": "a"}},
            "dataflex.handlers[0].params: 'toys:watch' is not a class and takes no parameters",
        ),
        (
            {"path": "toys:Watcher", "params": {"lable": "a"}},
            "dataflex.handlers[0]: Watcher.__init__() got an unexpected keyword argument 'lable'",
        ),
        (
            {"path": "toys:Watcher", "params": {"label": "lost"}},
            "dataflex.handlers[0]: KeyError: 'lost'",
        ),
        (
            {"path": "toys:CheckedWatcher", "params": {"every": 0}},
            "dataflex.handlers[0].params.every: should be greater than 0, not 0",
        ),
        (
            {"path": "toys:CheckedWatcher", "params": {"evry": 1}},
            "dataflex.handlers[0].params.evry: unknown key (did you mean 'every'?)",
        ),
    ],
)
def test_wrong_handlers(handler, message):
    (issue,) = issues({"handlers": [handler]})
    assert issue.startswith(message)
