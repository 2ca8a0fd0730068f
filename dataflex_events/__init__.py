"""Event bus that schedules the data of RL fine-tuning: which rollouts to train on and how much each token counts.

The core knows no trainer. `dataflex_events.handlers` holds the built-in components, `dataflex_events.adapters.verl` the
plugin for verl, `dataflex_events.testing` helps to test handlers of your own.
"""

from pathlib import Path

# In a checkout the sub-packages `handlers` and `adapters` lie next to this folder, not inside it.
_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "pyproject.toml").is_file() and (_checkout / "handlers").is_dir():
    __path__.append(str(_checkout))

from dataflex_events.batch import Batch  # noqa: E402
from dataflex_events.bus import Attachment, EventBus, Subscription, on  # noqa: E402
from dataflex_events.components import Observer, Reweighter, Scorer, Selector  # noqa: E402
from dataflex_events.context import BatchContext, ScorerKey, UpdateContext  # noqa: E402
from dataflex_events.driver import StepDriver, StepResult  # noqa: E402
from dataflex_events.errors import (  # noqa: E402
    ConfigError,
    ConfigIssue,
    DataflexError,
    FieldError,
    HandlerError,
    HandlerOutputError,
    VerificationError,
)
from dataflex_events.events import (  # noqa: E402
    AdvantageComputed,
    Event,
    RolloutDone,
    RunEnd,
    RunStart,
    ScoreReady,
    StepEnd,
    StepId,
)
from dataflex_events.plan import Plan, make_plan  # noqa: E402
from dataflex_events.registry import register  # noqa: E402
from dataflex_events.run import RunFacts  # noqa: E402

__all__ = [
    "AdvantageComputed",
    "Attachment",
    "Batch",
    "BatchContext",
    "ConfigError",
    "ConfigIssue",
    "DataflexError",
    "Event",
    "EventBus",
    "FieldError",
    "HandlerError",
    "HandlerOutputError",
    "Observer",
    "Plan",
    "Reweighter",
    "RolloutDone",
    "RunEnd",
    "RunFacts",
    "RunStart",
    "ScoreReady",
    "Scorer",
    "ScorerKey",
    "Selector",
    "StepDriver",
    "StepEnd",
    "StepId",
    "StepResult",
    "Subscription",
    "UpdateContext",
    "VerificationError",
    "make_plan",
    "on",
    "register",
]
