"""The order of the rows decides nothing but ties, and other groups decide nothing within one."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import samples

from dataflex_events import registry
from dataflex_events.segments import take_rows
from dataflex_events.testing import make_batch

GROUPS = ["group_solve_rate", "group_reward_std", "group_advantage"]
SCORERS = ["reward", "advantage_magnitude", "response_length", *GROUPS]
REWEIGHTERS = ["softmax", "difficulty_band", "per_advantage"]
WITHIN_GROUP = {"gfpo": {"k": 2}, "max_variance": {"keep_fraction": 0.6}}
BREAK_TIES = {**WITHIN_GROUP, "topk_fraction": {"fraction": 0.4}}


def make(kind, name, params=None):
    return registry.find(kind, name).component(**(params or {}))


def known(values):
    return values.where(values.isfinite(), values.new_full((), math.nan))


def orders(sample):
    return st.permutations(range(len(sample.rows))).map(lambda order: torch.tensor(order, dtype=torch.int64))


def close(got, expected):
    torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SCORERS)
@given(sample=samples(), data=st.data())
def test_scores_follow_their_rows(name, sample, data):
    order = data.draw(orders(sample))
    scorer = make("scorer", name)
    close(known(scorer.score(sample.batch.take(order))), known(scorer.score(sample.batch))[order])


@pytest.mark.parametrize("name", REWEIGHTERS)
@given(sample=samples(), data=st.data())
def test_weights_follow_their_rows(name, sample, data):
    order = data.draw(orders(sample))
    scores, reweighter = known(sample.batch["reward"]), make("reweighter", name)
    close(reweighter.weigh(scores[order], sample.batch.take(order)), reweighter.weigh(scores, sample.batch)[order])


@given(sample=samples(), data=st.data())
def test_a_choice_by_the_score_alone_follows_its_rows(sample, data):
    order = data.draw(orders(sample))
    scores, selector = known(sample.batch["reward"]), make("selector", "threshold_band")
    got = selector.select(scores[order], sample.batch.take(order))
    assert torch.equal(got, selector.select(scores, sample.batch)[order])


@given(sample=samples(), data=st.data())
def test_a_choice_of_tokens_follows_its_tokens_ties_included(sample, data):
    order = data.draw(orders(sample))
    tokens, _ = take_rows(sample.batch.offsets, order)
    scores, selector = known(sample.batch["advantages"]), make("selector", "top_entropy_tokens")
    got = selector.select(scores[tokens], sample.batch.take(order))
    assert torch.equal(got, selector.select(scores, sample.batch)[tokens])


def without_ties(seed):
    """Groups of 1 to 7 sessions of up to 3 outputs, all rewards and lengths different, some rewards unknown."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(1, 8, (5,), generator=generator).tolist()
    outputs = [torch.randint(1, 4, (size,), generator=generator).tolist() for size in sizes]
    sessions = [at for group in outputs for at, count in enumerate(group) for _ in range(count)]
    rows = len(sessions)
    rewards = torch.rand(rows, generator=generator)
    rewards[torch.rand(rows, generator=generator) < 0.1] = math.nan
    lengths = (torch.randperm(rows, generator=generator) + 1).tolist()
    ends = torch.tensor([sum(group) for group in outputs]).cumsum(0).tolist()
    groups = [rewards[begin:end].tolist() for begin, end in zip([0, *ends], ends, strict=False)]
    return make_batch(groups, lengths=lengths, sessions=sessions), torch.randperm(rows, generator=generator)


@pytest.mark.parametrize("name", BREAK_TIES)
@pytest.mark.parametrize("seed", range(20))
def test_without_ties_a_choice_by_comparison_follows_its_rows(name, seed):
    batch, order = without_ties(seed)
    selector = make("selector", name, BREAK_TIES[name])
    got = selector.select(batch["reward"][order], batch.take(order))
    assert torch.equal(got, selector.select(batch["reward"], batch)[order])


@pytest.mark.parametrize("name", BREAK_TIES)
def test_of_a_tie_the_lower_row_number_wins_wherever_the_rows_stand(name):
    batch = make_batch([[1, 1, 1, 1, 1]])
    selector = make("selector", name, BREAK_TIES[name])
    for order in ([0, 1, 2, 3, 4], [4, 2, 0, 3, 1]):
        mask = selector.select(batch["reward"][order], batch.take(torch.tensor(order)))
        assert mask.nonzero().flatten().tolist() == list(range(int(mask.sum())))


@pytest.mark.parametrize("name", WITHIN_GROUP)
@given(sample=samples(most=6))
def test_a_choice_within_a_group_does_not_depend_on_other_groups(name, sample):
    scores, selector = known(sample.batch["reward"]), make("selector", name, WITHIN_GROUP[name])
    together = selector.select(scores, sample.batch)
    for uid in range(sample.batch.groups):
        rows = (sample.batch.uid == uid).nonzero().flatten()
        assert torch.equal(selector.select(scores[rows], sample.batch.take(rows)), together[rows])


@pytest.mark.parametrize("name", GROUPS)
@given(sample=samples())
def test_a_score_of_a_group_does_not_depend_on_other_groups(name, sample):
    scorer = make("scorer", name)
    together = known(scorer.score(sample.batch))
    for uid in range(sample.batch.groups):
        rows = (sample.batch.uid == uid).nonzero().flatten()
        close(known(scorer.score(sample.batch.take(rows))), together[rows])
