import math

import pydantic
import pytest
from histories import agrees, floored, histories, play, simple, softmax
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.handlers.mixers.tscl import Tscl

NAN = math.nan


def after(history, **params):
    return play(Tscl(**params), history)[-1].tolist()


def progress(history, **params):
    """|Q| of each domain, relative to that of the last, as the shares tell."""
    got = after(history, floor=0.0, temperature=1.0, **params)
    return [math.log(value / got[-1]) for value in got]


# catalogue 3.4: slopes .1 and -.2, and a domain with nothing
D, E = [0.1, 0.2, 0.3, 0.4, 0.5], [0.6, 0.4, 0.2]
EXAMPLE = simple("def", *[[[d], [E[at]] if at < 3 else [], []] for at, d in enumerate(D)])


def test_the_worked_examples():
    assert after(EXAMPLE, floor=0.0) == pytest.approx([0.2447, 0.6652, 0.0900], abs=5e-5)
    assert after(EXAMPLE, floor=0.0, signed=True) == pytest.approx([0.5761, 0.2119, 0.2119], abs=5e-5)
    expected = [0.05 + 0.85 * part for part in (0.2447, 0.6652, 0.0900)]
    assert after(EXAMPLE) == pytest.approx(expected, abs=5e-5)
    assert Tscl() == Tscl(variant="window", window=10, alpha=0.1, temperature=0.1, signed=False, floor=0.05)
    assert Tscl.default_scorer == "reward"
    assert Tscl().keeps_steps == 10


def test_the_worked_example_online():
    steps = [[[0.3], []], [[0.5], []], [[0.6], []]]
    for seen, expected in enumerate([0.0, 0.0, 0.02, 0.028]):
        found = progress(simple("ab", *steps[:seen]), variant="online")
        assert found == pytest.approx([expected, 0.0], abs=1e-7)
    assert Tscl(variant="online").keeps_steps == 1


def test_signed_online():
    # r is -.5 in a and +.5 in b; Q is .5 r.
    history = simple("abc", [[1.0], [0.0], []], [[0.5], [0.5], []])
    assert progress(history, variant="online", alpha=0.5) == pytest.approx([0.25, 0.25, 0.0])
    assert progress(history, variant="online", alpha=0.5, signed=True) == pytest.approx([0.0, 0.25, 0.0])


def test_online_a_domain_that_was_left_out_keeps_its_progress_and_its_last_score():
    steps = [[[0.0], []], [[0.5], []], [[], [1.0]], [[NAN], [1.0]], [[1.0], []]]
    assert progress(simple("ab", *steps[:4]), variant="online", alpha=0.5) == pytest.approx([0.25, 0.0])
    # r is 1 - .5 after two steps without a: Q is (.5 + .25) / 2.
    assert progress(simple("ab", *steps), variant="online", alpha=0.5) == pytest.approx([0.375, 0.0])


@pytest.mark.parametrize("variant", ["window", "online"])
def test_steps_count_and_not_rollouts(variant):
    # The means of a are 0, 1 with one and four rollouts.
    history = simple("ab", [[0.0], []], [[1.0, 0.5, 1.5, 1.0], []])
    assert progress(history, variant=variant, alpha=1.0) == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize("variant", ["window", "online"])
def test_one_step_is_no_progress(variant):
    for history in (simple("ab"), simple("ab", [[1.0], []]), simple("ab", [[1.0], [0.0]])):
        assert after(history, variant=variant) == pytest.approx([0.5, 0.5])


def test_what_is_older_than_the_window_is_forgotten():
    history = simple("ab", *[[[value], []] for value in (5.0, 0.0, 0.5)])
    assert progress(history, window=2) == pytest.approx([0.5, 0.0])


@given(history=histories(), window=st.integers(2, 4), signed=st.booleans())
def test_the_window_against_plain_python(history, window, signed):
    def slowly(step, account):
        slopes = [account.slope(domain, window) for domain in range(account.domains)]
        return floored(softmax([max(slope, 0.0) if signed else abs(slope) for slope in slopes], 0.5), 0.1)

    agrees(Tscl(window=window, signed=signed, temperature=0.5, floor=0.1), history, slowly)


@given(history=histories(), alpha=st.sampled_from([0.1, 0.5, 1.0]), signed=st.booleans())
def test_online_against_plain_python(history, alpha, signed):
    q = {domain: 0.0 for domain in range(5)}
    last = {}

    def slowly(step, account):
        for domain, score in enumerate(account.latest):
            if score is not None:
                if domain in last:
                    q[domain] = alpha * (score - last[domain]) + (1 - alpha) * q[domain]
                last[domain] = score
        moves = [max(q[domain], 0.0) if signed else abs(q[domain]) for domain in range(account.domains)]
        return floored(softmax(moves, 0.5), 0.1)

    agrees(Tscl(variant="online", alpha=alpha, signed=signed, temperature=0.5, floor=0.1), history, slowly)


@pytest.mark.parametrize(
    "params",
    [
        {"variant": "sampling"},
        {"window": 1},
        {"alpha": 0},
        {"alpha": 1.1},
        {"temperature": 0},
        {"floor": -0.1},
        {"signed": 1},
    ],
)
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        Tscl(**params)
