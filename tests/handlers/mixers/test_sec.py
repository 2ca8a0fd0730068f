import math

import pydantic
import pytest
from histories import agrees, floored, histories, play, simple, softmax
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.handlers.mixers.sec import Sec


def after(history, **params):
    return play(Sec(**params), history)[-1].tolist()


# catalogue 4.2: easy, medium and hard
EXAMPLE = simple("emh", [[0.2], [1.0], []], [[], [0.6], [0.4]])


def test_the_worked_example():
    mixer = Sec()
    assert play(mixer, EXAMPLE)[-1].tolist() == pytest.approx([0.1864, 0.5742, 0.2394], abs=5e-5)
    assert mixer.state_dict()["q"].tolist() == pytest.approx([0.1, 0.55, 0.2])
    assert Sec() == Sec(alpha=0.5, temperature=0.4, floor=0.0)
    assert Sec.default_scorer == "group_advantage"


def test_the_floor():
    expected = [0.1 + 0.7 * part for part in (0.1864, 0.5742, 0.2394)]
    assert after(EXAMPLE, floor=0.1) == pytest.approx(expected, abs=5e-5)


def test_before_the_first_step_all_are_equal():
    assert after(simple("abc")) == pytest.approx([1 / 3] * 3)


def test_a_domain_without_a_score_keeps_its_q():
    mixer = Sec()
    play(mixer, simple("ab", [[1.0], [0.5]], [[], [math.nan]], [[math.inf], []]))
    assert mixer.state_dict()["q"].tolist() == [0.5, 0.25]


@given(history=histories(), alpha=st.sampled_from([0.1, 0.5, 1.0]), temperature=st.sampled_from([0.2, 1.0]))
def test_against_plain_python(history, alpha, temperature):
    q = {domain: 0.0 for domain in range(5)}

    def slowly(step, account):
        for domain, score in enumerate(account.latest):
            if score is not None:
                q[domain] = alpha * score + (1 - alpha) * q[domain]
        return floored(softmax([q[domain] for domain in range(account.domains)], temperature), 0.05)

    agrees(Sec(alpha=alpha, temperature=temperature, floor=0.05), history, slowly)


@pytest.mark.parametrize(
    "params", [{"alpha": 0}, {"alpha": 1.1}, {"temperature": 0}, {"temperature": math.nan}, {"floor": 1.5}]
)
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        Sec(**params)
