import pytest
import torch

from dataflex_events import BatchContext, EventBus, HandlerOutputError, ScorerKey, UpdateContext
from dataflex_events.context import carry_scores
from dataflex_events.events import AdvantageComputed, StepId
from dataflex_events.testing import make_batch

BATCH = make_batch([[1, 0], [1, 1]], lengths=[1, 2, 3, 1])
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("mask", "described"),
    [
        (torch.ones(3, dtype=torch.bool), r"bool tensor of shape \(3,\)"),
        (torch.ones(4, 1, dtype=torch.bool), r"bool tensor of shape \(4, 1\)"),
        (torch.ones(4), r"float32 tensor of shape \(4,\)"),
        (torch.ones(7, dtype=torch.bool), r"bool tensor of shape \(7,\)"),
        ([True] * 4, "list"),
        (None, "NoneType"),
    ],
)
def test_a_keep_mask_of_the_wrong_kind_is_rejected_by_name(mask, described):
    with pytest.raises(HandlerOutputError, match=rf"'band' proposed to keep {described}.*bool tensor of shape \(4,\)"):
        BatchContext(BATCH).keep(mask, by="band")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(5), r"float32 tensor of shape \(5,\), expected shape \(4,\) or \(7,\)"),
        (torch.ones(4, 1), r"float32 tensor of shape \(4, 1\)"),
        ([1.0] * 4, "list"),
        (None, "NoneType"),
        (torch.tensor([1.0, NAN, 1.0, INF]), "2 weights that are negative or not finite"),
        (torch.tensor([1.0, 1.0, 1.0, -0.1]), "1 weights that are negative or not finite"),
        (torch.full((4,), 1e300, dtype=torch.float64), "4 weights that are negative or not finite"),  # inf as float32
    ],
)
def test_weights_of_the_wrong_kind_are_rejected_by_name(weights, message):
    context = UpdateContext(BATCH)
    with pytest.raises(HandlerOutputError, match=f"'softmax' proposed .*{message}"):
        context.weigh(weights, by="softmax")
    assert context.weights == {}


def test_weights_per_row_and_per_token_are_told_apart_by_their_number():
    context = UpdateContext(BATCH)
    context.weigh(torch.ones(4), by="rows")
    context.weigh(torch.ones(7), by="tokens")
    assert [(name, weights.per) for name, weights in context.weights.items()] == [("rows", "row"), ("tokens", "token")]


def test_a_stated_unit_must_fit():
    with pytest.raises(HandlerOutputError, match=r"expected shape \(7,\)$"):
        UpdateContext(BATCH).weigh(torch.ones(4), per="token", by="me")


def test_as_many_rows_as_tokens_needs_a_unit():
    # Rows of 0, 2 and 1 tokens: three numbers may mean either.
    context = UpdateContext(make_batch([[0, 1, 1]], lengths=[0, 2, 1]))
    with pytest.raises(HandlerOutputError, match="for a batch of 3 rows and 3 tokens: say which"):
        context.weigh(torch.ones(3), by="me")
    context.weigh(torch.ones(3), per="token", by="me")
    assert context.weights["me"].per == "token"


def test_one_token_in_every_row_needs_none():
    context = UpdateContext(make_batch([[0, 1, 1]], lengths=[1, 1, 1]))
    context.weigh(torch.ones(3), by="me")
    assert list(context.weights) == ["me"]


def test_proposals_are_kept_under_the_name_of_the_running_handler():
    context = UpdateContext(BATCH)
    bus = EventBus()
    bus.subscribe(AdvantageComputed, lambda event: event.context.weigh(torch.ones(4)), name="first")
    bus.subscribe(AdvantageComputed, lambda event: event.context.keep(torch.ones(4, dtype=torch.bool)), name="second")
    bus.publish(AdvantageComputed(step=StepId(1), batch=BATCH, context=context))
    context.weigh(torch.ones(4))
    assert list(context.weights) == ["first", "direct"]
    assert list(context.keeps) == ["second"]


def test_a_second_proposal_replaces_the_first():
    context = UpdateContext(BATCH)
    context.weigh(torch.ones(4), by="me")
    context.weigh(torch.zeros(4), by="me")
    assert context.weights["me"].weights.tolist() == [0.0] * 4


@pytest.mark.parametrize("value", ["high", None, torch.ones(2), [1.0]])
def test_a_metric_that_is_no_number_is_rejected_by_name(value):
    with pytest.raises(HandlerOutputError, match="metric 'mine' is not a number"):
        BatchContext(BATCH).metric("mine", value)


@pytest.mark.parametrize("value", [1, True, torch.tensor(1.0), torch.ones(1)])
def test_a_metric_is_kept_as_float(value):
    context = BatchContext(BATCH)
    context.metric("mine", value)
    assert type(context.metrics["mine"]) is float
    assert context.metrics == {"mine": 1.0}


def test_discard_forgets_keep_weights_and_metrics_of_one_handler():
    context = UpdateContext(BATCH)

    def propose(event):
        event.context.weigh(torch.ones(4))
        event.context.keep(torch.ones(4, dtype=torch.bool))

    bus = EventBus()
    for name in ("first", "second"):
        bus.subscribe(AdvantageComputed, propose, name=name)
        bus.subscribe(
            AdvantageComputed, lambda event, name=name: event.context.metric(f"of_{name}", 1), name=f"{name}_m"
        )
    bus.publish(AdvantageComputed(step=StepId(1), batch=BATCH, context=context))
    context.discard("first")
    context.discard("first_m")
    context.discard("unheard_of")
    assert list(context.weights) == list(context.keeps) == ["second"]
    assert context.metrics == {"of_second": 1.0}


def test_scores_are_carried_to_the_rows_that_are_left():
    rows, tokens = ScorerKey("rows"), ScorerKey("tokens", per="token")
    scores = {rows: torch.tensor([10.0, 20, 30, 40]), tokens: torch.arange(7.0)}
    carried = carry_scores(scores, BATCH, torch.tensor([3, 1]))  # lengths 1, 2, 3, 1
    assert carried[rows].tolist() == [40.0, 20.0]
    assert carried[tokens].tolist() == [6.0, 1.0, 2.0]


def test_scores_are_carried_where_there_are_as_many_rows_as_tokens():
    batch = make_batch([[0, 1, 1]], lengths=[0, 2, 1])
    rows, tokens = ScorerKey("rows"), ScorerKey("tokens", per="token")
    scores = {rows: torch.tensor([1.0, 2, 3]), tokens: torch.tensor([7.0, 8, 9])}
    carried = carry_scores(scores, batch, torch.tensor([1, 0]))
    assert carried[rows].tolist() == [2.0, 1.0]
    assert carried[tokens].tolist() == [7.0, 8.0]
