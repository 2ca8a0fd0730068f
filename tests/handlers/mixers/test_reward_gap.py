import math

import pydantic
import pytest
from histories import agrees, floored, histories, play, simple, softmax
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.handlers.mixers.reward_gap import RewardGap

NAN = math.nan


def after(history, **params):
    return play(RewardGap(**params), history)[-1].tolist()


# catalogue 3.1 and, for the floor, components.md
@pytest.mark.parametrize(
    ("temperature", "floor", "expected"),
    [(0.5, 0.0, [0.1680, 0.8320]), (0.1, 0.05, [0.0503, 0.9497]), (0.1, 0.5, [0.5, 0.5])],
)
def test_the_worked_examples(temperature, floor, expected):
    history = simple("ab", [[0.9], [0.1]])
    assert after(history, temperature=temperature, floor=floor) == pytest.approx(expected, abs=5e-5)


def test_defaults():
    # Means .8, .5, .1 at temperature 1: exp of 0, .3, .7 is 1, 1.34986, 2.01375 of 4.36361; then .05 + .85 of each.
    got = after(simple("abc", [[0.8], [0.5], [0.1]]))
    assert got == pytest.approx([0.05 + 0.85 * part / 4.36361 for part in (1, 1.34986, 2.01375)], abs=1e-5)
    assert RewardGap.default_scorer == "reward"
    assert RewardGap().keeps_steps == 50


def test_a_domain_without_a_score_counts_as_the_mean_of_the_others():
    # Means .9, .5, .1 at temperature .5: exp of 0, .8, 1.6 is 1, 2.22554, 4.95303 of 8.17857.
    for nothing in ([], [NAN], [math.inf]):
        got = after(simple("abc", [[0.9], nothing, [0.1]]), temperature=0.5, floor=0.0)
        assert got == pytest.approx([0.12227, 0.27212, 0.60561], abs=1e-5)


def test_the_others_count_alike_however_many_rollouts_they_have():
    got = after(simple("abc", [[1.0] * 9, [], [0.0]]), floor=0.0)
    assert math.log(got[1] / got[0]) == pytest.approx(0.5)


def test_without_any_score_all_are_equal():
    for history in (simple("abc"), simple("abc", [[], [], []]), simple("abc", [[NAN], [], [NAN]])):
        assert after(history, temperature=0.01) == pytest.approx([1 / 3] * 3)


def test_what_is_older_than_the_window_is_forgotten_domain_by_domain():
    history = simple("ab", [[1.0], [0.0]], [[0.0], []], [[0.0, 0.0, 1.0], []])
    # With two steps a has the four rollouts 0, 0, 0, 1: each counts, not each step; b was not generated again.
    assert math.log(after(history, window=2, floor=0.0)[1] / after(history, window=2, floor=0.0)[0]) == pytest.approx(
        0.25
    )


def test_what_cannot_be_learned_gets_the_most_for_ever():
    got = after(simple("abc", *[[[1.0], [0.5], [0.0]]] * 100), temperature=0.1, floor=0.0)
    assert got[2] > 0.99


@given(history=histories(), window=st.integers(1, 4), temperature=st.sampled_from([0.3, 1.0, 5.0]))
def test_against_plain_python(history, window, temperature):
    def slowly(step, account):
        means = [account.mean(domain, window) for domain in range(account.domains)]
        seen = [mean for mean in means if mean is not None]
        filled = [sum(seen) / len(seen) if mean is None else mean for mean in means] if seen else [0.0] * len(means)
        return floored(softmax([max(filled) - mean for mean in filled], temperature), 0.1)

    agrees(RewardGap(window=window, temperature=temperature, floor=0.1), history, slowly)


@pytest.mark.parametrize(
    "params",
    [{"temperature": 0}, {"temperature": math.inf}, {"floor": -0.1}, {"floor": 1.1}, {"floor": NAN}, {"window": 0}],
)
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        RewardGap(**params)
