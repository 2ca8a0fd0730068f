"""The public names of `dataflex_events`."""

from dataflex_events.batch import Batch
from dataflex_events.bus import Attachment, EventBus, Subscription
from dataflex_events.components import Mixer, Observer, Reweighter, Scorer, Selector
from dataflex_events.context import BatchContext, ScoreContext, ScorerKey, UpdateContext
from dataflex_events.draw import DrawContext
from dataflex_events.driver import StepDriver, StepResult
from dataflex_events.errors import (
    ConfigError,
    ConfigIssue,
    ContractError,
    DataflexError,
    FieldError,
    HandlerError,
    HandlerOutputError,
    VerificationError,
)
from dataflex_events.events import (
    AdvantageComputed,
    BufferSample,
    Event,
    Groups,
    GroupsFinished,
    RolloutDone,
    RunEnd,
    RunStart,
    ScoreReady,
    StepEnd,
    StepId,
)
from dataflex_events.marks import on
from dataflex_events.plan import Plan, make_plan
from dataflex_events.registry import register
from dataflex_events.run import RunFacts
from dataflex_events.stats import DomainStats

__all__ = [
    "AdvantageComputed",
    "Attachment",
    "Batch",
    "BatchContext",
    "BufferSample",
    "ConfigError",
    "ConfigIssue",
    "ContractError",
    "DataflexError",
    "DomainStats",
    "DrawContext",
    "Event",
    "EventBus",
    "FieldError",
    "Groups",
    "GroupsFinished",
    "HandlerError",
    "HandlerOutputError",
    "Mixer",
    "Observer",
    "Plan",
    "Reweighter",
    "RolloutDone",
    "RunEnd",
    "RunFacts",
    "RunStart",
    "ScoreContext",
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
