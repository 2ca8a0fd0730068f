import math

import pydantic
import pytest
from histories import agrees, floored, histories, play, simple, softmax
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.handlers.mixers.dump_ucb import DumpUcb

NAN = math.nan


def after(history, **params):
    return play(DumpUcb(**params), history)[-1].tolist()


# catalogue 3.3: L is (.5, .5), n is (100, 1)
EXAMPLE = simple("ab", [[0.5] * 100, [0.5]])


def test_the_worked_examples():
    assert after(EXAMPLE, temperature=1.0) == pytest.approx([0.1361, 0.8639], abs=5e-5)
    assert after(EXAMPLE) == pytest.approx([9e-9, 1.0], rel=0.05)
    assert DumpUcb() == DumpUcb(temperature=0.1, c=1.0, window=300, floor=0.0)
    assert DumpUcb.default_scorer == "group_advantage"
    assert DumpUcb().keeps_rollouts == 300


def test_the_bonus_is_scaled_by_c():
    # Bonuses of the example are .3026 and 2.1506; half of their difference is .9240, and 1 / (1 + e^.9240) is .2841.
    assert after(EXAMPLE, temperature=1.0, c=0.5) == pytest.approx([0.2841, 0.7159], abs=5e-5)
    assert after(EXAMPLE, temperature=1.0, c=0.0) == [0.5, 0.5]


def test_the_floor():
    assert after(EXAMPLE, floor=0.05) == pytest.approx([0.05, 0.95], abs=1e-6)


def test_a_domain_that_was_never_drawn_has_no_mean_and_the_largest_bonus():
    # n is (3, 0): bonuses are sqrt(2 ln 4 / 4) = .83255 and sqrt(2 ln 4 / 1) = 1.66511; L is (.25, 0).
    got = after(simple("ab", [[0.25] * 3, []]), temperature=1.0)
    assert math.log(got[1] / got[0]) == pytest.approx(1.66511 - 0.83255 - 0.25, abs=1e-5)


def test_before_the_first_step_all_are_equal():
    assert after(simple("abc")) == pytest.approx([1 / 3] * 3)


def test_the_window_is_in_rollouts_and_the_counts_are_of_the_whole_run():
    # L of the last 2 of 4: a (0 + 1) / 2, b 0; n is (4, 4), so the bonuses are equal.
    history = simple("ab", [[1.0, 1.0], [1.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]])
    got = after(history, window=2, temperature=1.0)
    assert math.log(got[0] / got[1]) == pytest.approx(0.5)
    # n is (4, 1) whatever the window is: bonuses sqrt(2 ln 6 / 5) = .84658 and sqrt(2 ln 6 / 2) = 1.33856.
    got = after(simple("ab", [[0.5] * 4, [0.5]]), window=1, temperature=1.0)
    assert math.log(got[1] / got[0]) == pytest.approx(1.33856 - 0.84658, abs=1e-5)


@given(history=histories(), window=st.integers(1, 6), c=st.sampled_from([0.0, 0.5, 2.0]))
def test_against_plain_python(history, window, c):
    def slowly(step, account):
        counts = [len(account.scores(domain)) for domain in range(account.domains)]
        bounds = []
        for domain, count in enumerate(counts):
            bonus = math.sqrt(2 * math.log(sum(counts) + 1) / (count + 1))
            bounds.append((account.recent(domain, window) or 0.0) + c * bonus)
        return floored(softmax(bounds, 0.3), 0.05)

    agrees(DumpUcb(window=window, c=c, temperature=0.3, floor=0.05), history, slowly)


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0},
        {"temperature": NAN},
        {"c": -1},
        {"c": math.inf},
        {"window": 0},
        {"floor": -0.1},
        {"floor": 2},
    ],
)
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        DumpUcb(**params)
