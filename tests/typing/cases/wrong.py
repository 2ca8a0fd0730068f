"""Every mistake here must be reported by a type checker, on the lines that say what is wrong, and on no other."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dataflex_events import (
    AdvantageComputed,
    Batch,
    EventBus,
    Observer,
    Reweighter,
    RolloutDone,
    RunFacts,
    RunStart,
    Scorer,
    ScoreReady,
    Selector,
    StepEnd,
    StepId,
    on,
    register,
)

bus = EventBus()


@on(RolloutDone)  # wrong: the function takes another event
def takes_another_event(event: StepEnd) -> None:
    print(event.metrics)


@on(RolloutDone, AdvantageComputed)  # wrong: the function takes only one of the two
def takes_one_of_two(event: RolloutDone) -> None:
    print(event.batch)


@on(AdvantageComputed)  # wrong: nobody awaits it
async def asynchronous(event: AdvantageComputed) -> None:
    print(event.batch)


@on(StepEnd)
def reads_what_is_not_there(event: StepEnd) -> None:
    print(event.batch)  # wrong: StepEnd has no batch


@on(RolloutDone)
def weighs_too_early(event: RolloutDone) -> None:
    event.context.weigh(event.batch["reward"])  # wrong: weights are for AdvantageComputed


@on(StepEnd)
def assigns_to_a_frozen_field(event: StepEnd) -> None:
    event.weights = None  # wrong: events are frozen


class Watcher(Observer):
    @on(ScoreReady)  # wrong: the method takes another event
    def takes_another_event(self, event: RolloutDone) -> None:
        print(event.batch)

    @on(StepEnd)  # wrong: too many arguments
    def takes_too_much(self, event: StepEnd, more: int) -> None:
        print(event.metrics, more)


def takes_rollouts(event: RolloutDone) -> None:
    print(event.batch)


async def waits(event: StepEnd) -> None:
    print(event)


bus.subscribe(StepEnd, takes_rollouts)  # wrong: the function takes another event
bus.subscribe(StepEnd, waits)  # wrong: nobody awaits it
bus.subscribe(RunStart, lambda event: print(event.run.no_such_fact))  # wrong: RunFacts has no such attribute
bus.subscribe(int, print)  # wrong: not an event class
bus.publish("step_end")  # wrong: not an event
bus.publish(StepEnd(step=StepId(1), rollout=None, update=None, weights=None))  # wrong: `metrics` is missing
bus.on_error = "ignore"  # wrong: "raise" or "detach"


class ReturnsAList(Scorer):
    def score(self, batch: Batch) -> list[float]:  # wrong: a score is a tensor
        return [float(len(batch))]


class TakesAnEvent(Reweighter):
    def weigh(self, scores: Tensor, batch: RolloutDone) -> Tensor:  # wrong: the batch is given
        return scores


class ForgetsItsMethod(Selector): ...


ForgetsItsMethod()  # wrong: `select` is abstract


@register("not_a_component")  # wrong: no kind of component
@dataclass
class Plain:
    factor: float = 1.0


def reads_facts(run: RunFacts) -> None:
    run.step = 1  # wrong: there is none, and facts are frozen
