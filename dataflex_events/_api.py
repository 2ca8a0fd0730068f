"""The public names of `dataflex_events`."""

from dataflex_events.batch import Batch
from dataflex_events.bus import Attachment, EventBus, Subscription
from dataflex_events.components import Mixer, Observer, Reweighter, Scorer, Selector
from dataflex_events.context import BatchContext, GroupContext, ScoreContext, ScorerKey, UpdateContext
from dataflex_events.draw import DrawContext, DrawDecision
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
from dataflex_events.gate import ChanceGate, Gate
from dataflex_events.marks import on
from dataflex_events.plan import Plan, make_plan
from dataflex_events.pools import DomainTable, RowSource
from dataflex_events.prompt_stats import PromptHistory, PromptStats, StepGroups
from dataflex_events.registry import register
from dataflex_events.run import RunFacts
from dataflex_events.stats import DomainStats

__all__ = [
    "AdvantageComputed",
    "Attachment",
    "Batch",
    "BatchContext",
    "BufferSample",
    "ChanceGate",
    "ConfigError",
    "ConfigIssue",
    "ContractError",
    "DataflexError",
    "DomainStats",
    "DomainTable",
    "DrawContext",
    "DrawDecision",
    "Event",
    "EventBus",
    "FieldError",
    "Gate",
    "GroupContext",
    "Groups",
    "GroupsFinished",
    "HandlerError",
    "HandlerOutputError",
    "Mixer",
    "Observer",
    "Plan",
    "PromptHistory",
    "PromptStats",
    "Reweighter",
    "RolloutDone",
    "RowSource",
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
    "StepGroups",
    "StepId",
    "StepResult",
    "Subscription",
    "UpdateContext",
    "VerificationError",
    "make_plan",
    "on",
    "register",
]
