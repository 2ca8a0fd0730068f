import json
import logging
import math

import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import samples

from dataflex_events.handlers.selectors.gfpo import Gfpo
from dataflex_events.testing import make_batch

NAN = math.nan
REWARDS, LENGTHS = [[1, 1, 0, 1]], [10, 5, 2, 20]


def choose(component, batch, scores=None):
    scores = batch["reward"] if scores is None else torch.tensor(scores, dtype=torch.float32)
    mask = component.select(scores.where(scores.isfinite(), torch.tensor(NAN)), batch)
    assert mask.dtype == torch.bool
    return mask.nonzero().flatten().tolist()


def kept(rewards, lengths=None, *, scores=None, mask=None, sessions=None, **params):
    batch = make_batch(rewards, lengths=lengths, mask=mask, sessions=sessions)
    return choose(Gfpo(**params), batch, scores)


# catalogue 2.7; rewards per token are .1, .2, 0 and .05.
def test_the_worked_examples():
    assert kept(REWARDS, LENGTHS, k=2, metric="short") == [1, 2]
    assert kept(REWARDS, LENGTHS, k=2, metric="efficiency") == [0, 1]
    assert Gfpo(k=2) == Gfpo(k=2, metric="efficiency", adaptive=False, advantages="subset")


@pytest.mark.parametrize("k", [4, 9])
def test_a_group_of_k_or_fewer_is_kept_whole(k):
    assert kept(REWARDS, LENGTHS, k=k) == [0, 1, 2, 3]
    assert kept([[1], [0, 1]], k=k) == [0, 1, 2]


def test_of_equal_ones_the_lower_row_number_wins():
    assert kept([[1, 1, 1], [0, 0, 0]], [3] * 6, k=2) == [0, 1, 3, 4]
    assert kept([[1, 1, 1]], [4, 3, 4], k=2, metric="short") == [0, 1]


def test_length_counts_valid_tokens_only():
    # Ten tokens of which two are the policy's own are shorter than three of its own.
    mask = [[1] * 2 + [0] * 8, [1] * 3, [1] * 4]
    assert kept([[1, 1, 1]], [10, 3, 4], mask=mask, k=2, metric="short") == [0, 1]
    assert kept([[1, 1, 1]], [10, 3, 4], mask=mask, k=2) == [0, 1]


def test_empty_and_fully_masked_responses_count_as_one_token_for_efficiency():
    assert kept([[0, 1, 1]], [0, 2, 3], k=2, metric="short") == [0, 1]
    assert kept([[0, 1, 1]], [0, 2, 3], k=2) == [1, 2]
    # Rewards of 1 with no valid token, with one, and with two.
    assert kept([[1, 1, 1]], [2, 2, 2], mask=[[0, 0], [1, 0], [1, 1]], k=2) == [0, 1]


@pytest.mark.parametrize("unknown", [NAN, math.inf, -math.inf])
def test_a_row_without_a_score_or_reward_is_never_kept(unknown):
    assert kept([[1, unknown, 0, 0]], k=2, scores=[1, 1, 0, 0]) == [0, 2]
    assert kept([[1, unknown, 0, 0]], k=2, scores=[1, 1, 0, 0], metric="short") == [0, 2]
    assert kept([[1, 1, 0, 0]], k=2, scores=[unknown, 0, 0, 0]) == [1, 2]
    assert kept([[unknown] * 2, [1, 0]], k=2) == [2, 3]


def test_no_rows():
    assert kept([], k=2) == []
    assert choose(Gfpo(k=2, adaptive=True), make_batch([])) == []


def test_huge_rewards():
    assert kept([[1e30, 3e38, 1]], [1, 1, 1], k=2) == [0, 1]


def test_a_session_is_chosen_by_its_final_output_and_its_length_is_that_of_all():
    # Sessions of rows 0-1 (reward 1, 6 tokens), 2 (1, 5 tokens) and 3 (1, 7 tokens).
    arguments = {"rewards": [[0, 1, 1, 1]], "lengths": [3, 3, 5, 7], "sessions": [0, 0, 1, 2]}
    assert kept(**arguments, k=2) == [0, 1, 2]
    assert kept(**arguments, k=1, advantages="full") == [2]


def test_negative_rewards_are_warned_about_once(caplog):
    component, batch = Gfpo(k=2), make_batch([[-1, -1, -1]], lengths=[2, 4, 8])
    with caplog.at_level(logging.WARNING, logger="dataflex"):
        assert choose(component, batch) == [1, 2]  # long failures first
        choose(component, batch)
        Gfpo(k=2, metric="short").select(batch["reward"], batch)
    assert [record.getMessage() for record in caplog.records] == [
        "gfpo: rewards are negative; per token, a longer failure then ranks above a shorter one"
    ]


def slowly(sample, scores, k, metric):
    chosen = []
    for finals in sample.groups():
        ranked = []
        for row in finals:
            at = next(at for at, other in enumerate(sample.rows) if other is row)
            length = sum(sum(other.mask) for other in sample.rows if other.session == row.session)
            reward = sample.reward(row)
            if math.isfinite(reward) and math.isfinite(scores[at]):
                ranked.append((length if metric == "short" else -reward / max(1, length), at))
        chosen += [sample.rows[at] for _, at in sorted(ranked)[:k]]
    return sample.whole(chosen)


@pytest.mark.parametrize("metric", ["efficiency", "short"])
@given(sample=samples(most=5), k=st.integers(1, 4), data=st.data())
def test_against_plain_python(metric, sample, k, data):
    count = len(sample.rows)
    scores = data.draw(st.lists(st.sampled_from([0.0, 1.0, NAN]), min_size=count, max_size=count))
    component = Gfpo(k=k, metric=metric, advantages="full")
    got = component.select(torch.tensor(scores, dtype=torch.float32), sample.batch)
    assert got.tolist() == slowly(sample, scores, k, metric)


HISTORY = [0, 0.1, 0.2, 0.3, 0.5, 0.6, 0.8, 0.9, 1]
ADAPTIVE = {"k": 8, "metric": "short", "adaptive": True}


def adaptive(steps=10, means=HISTORY, **params):
    component = Gfpo(**{**ADAPTIVE, **params})
    component.load_state_dict({"steps": steps, "means": means})
    return component


def group_of(rate, size=20):
    solved = round(rate * size)
    return [1] * solved + [0] * (size - solved)


# catalogue 2.7: the quartiles of the history are .2, .5 and .8.
@pytest.mark.parametrize(
    ("rate", "k"),
    [(0.1, 8), (0.3, 8), (0.6, 6), (0.95, 4), (0.0, 8), (1.0, 4), (0.2, 8), (0.5, 8), (0.55, 6), (0.8, 6), (0.85, 4)],
)
def test_the_adaptive_example(rate, k):
    # A group on a quartile (.2, .5, .8) counts as the harder.
    assert len(choose(adaptive(), make_batch([group_of(rate)]))) == k


def test_each_group_of_a_batch_has_its_own_k():
    component = adaptive(adaptive_k=[5, 4, 3, 2])
    got = choose(component, make_batch([group_of(rate) for rate in (0.1, 0.3, 0.6, 0.95)]))
    assert [sum(at // 20 == group for at in got) for group in range(4)] == [5, 4, 3, 2]


def test_it_warms_up_with_k_and_remembers_meanwhile():
    component = Gfpo(**{**ADAPTIVE, "k": 5, "warmup_steps": 2})
    batch = make_batch([group_of(rate) for rate in HISTORY])
    assert [len(choose(component, batch)) for _ in range(3)] == [45, 45, 3 * 8 + 2 * 8 + 2 * 6 + 2 * 4]
    assert component.state_dict()["steps"] == 3
    assert component.state_dict()["means"] == pytest.approx(HISTORY * 3)


def test_without_a_history_it_keeps_k():
    assert len(choose(Gfpo(**{**ADAPTIVE, "k": 5, "warmup_steps": 0}), make_batch([group_of(1)]))) == 5


def test_a_step_is_judged_by_earlier_steps_alone():
    component = adaptive()
    first = choose(component, make_batch([group_of(0.6)] * 30))
    assert len(first) == 30 * 6
    assert len(choose(component, make_batch([group_of(0.6)]))) == 8  # by now .6 is the median itself


def test_the_history_is_bounded_and_forgets_the_oldest():
    component = adaptive(history=4)
    assert component.state_dict()["means"] == [0.6, 0.8, 0.9, 1.0]
    choose(component, make_batch([[1, 0], [1, 1]]))
    assert component.state_dict()["means"] == [0.9, 1.0, 0.5, 1.0]


def test_unknown_rewards_are_not_remembered():
    component = adaptive(means=[])
    choose(component, make_batch([[1, NAN, 0], [math.inf], [1, 1]]))
    assert component.state_dict()["means"] == [0.5, 1.0]


def test_a_session_counts_once_in_the_mean():
    component = adaptive(means=[])
    choose(component, make_batch([[0, 1, 0]], sessions=[0, 0, 1]))
    assert component.state_dict()["means"] == [0.5]


@given(batches=st.lists(samples(most=5), min_size=2, max_size=4))
def test_it_goes_on_exactly_where_its_state_was_saved(batches):
    params = {"k": 2, "adaptive": True, "adaptive_k": (4, 3, 2, 2), "warmup_steps": 1, "history": 3}
    first, second = Gfpo(**params), Gfpo(**params)
    choose(first, batches[0].batch)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for sample in batches[1:]:
        assert first.state_dict() == second.state_dict()
        assert choose(first, sample.batch) == choose(second, sample.batch)


def test_a_saved_state_does_not_change_with_the_run():
    component = adaptive()
    saved = component.state_dict()
    before = json.dumps(saved)
    choose(component, make_batch([[1, 0]]))
    assert json.dumps(saved) == before


def test_only_an_adaptive_one_has_a_state():
    component = Gfpo(k=2)
    choose(component, make_batch([[1, 0]]))
    assert component.state_dict() == {}
    component.load_state_dict({})
    with pytest.raises(ValueError, match="Gfpo has no state, but is given 'steps'"):
        component.load_state_dict({"steps": 1})


@pytest.mark.parametrize(
    "state", [{}, {"steps": 1}, {"steps": 1, "means": [], "more": 0}, {"steps": 1, "means": ["x"]}]
)
def test_another_state_is_refused(state):
    with pytest.raises(ValueError):
        Gfpo(**ADAPTIVE).load_state_dict(state)


@pytest.mark.parametrize("params", [{"k": 1}, {"k": 2, "adaptive": True, "adaptive_k": [4, 3, 2, 1]}])
def test_a_lone_row_has_no_baseline(params):
    with pytest.raises(ValueError, match="keep at least 2 of a group, or say `advantages: full`"):
        Gfpo(**params)
    assert Gfpo(**params, advantages="full").baseline() == "full"


def test_constants_of_an_adaptive_one_do_not_matter_to_another():
    assert Gfpo(k=2, adaptive_k=[1, 1, 1, 1]).baseline() == "subset"


@pytest.mark.parametrize(
    "params",
    [{}, {"k": 0}, {"k": 2.0}, {"k": 2, "metric": "long"}, {"k": 2, "adaptive_k": [8, 8, 6]}, {"k": 2, "history": 0},
     {"k": 2, "adaptive_k": [8, 8, 6, 0]}, {"k": 2, "warmup_steps": -1}, {"k": 2, "advantages": None}],
)  # fmt: skip
def test_wrong_parameters_are_refused(params):
    with pytest.raises((pydantic.ValidationError, TypeError)):
        Gfpo(**params)
