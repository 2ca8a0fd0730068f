import math

import pydantic
import pytest
import torch
from histories import SCORES, Rollout, Step, add, agrees, commit, histories, shares, softmax, stats_for
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.handlers.mixers.exp3 import Exp3


def follow(names, observations, **params):
    """Shares and estimates after each step, which draws by those of the step before and sees one domain's score."""
    mixer = Exp3(**params)
    mixer.begin(names)
    stats = stats_for(mixer, names)
    found = [(shares(mixer, stats).tolist(), mixer.state_dict()["estimate"].tolist())]
    for number, (domain, score) in enumerate(observations, 1):
        add(stats, [Rollout(domain, score, 0)])
        stats.commit(number, torch.tensor(found[-1][0], dtype=torch.float64))
        mixer.update(stats)
        found.append((shares(mixer, stats).tolist(), mixer.state_dict()["estimate"].tolist()))
    return found


def estimates(*steps, **params):
    mixer = Exp3(**params)
    names = range(len(steps[0].proportions))
    mixer.begin(names)
    stats = stats_for(mixer, names)
    for step in steps:
        commit(stats, step)
        mixer.update(stats)
    return mixer.state_dict()["estimate"].tolist()


# catalogue 4.1
def test_the_worked_example():
    found = follow("ab", [(0, 1.0), (0, 1.0), (1, 0.2), (0, 1.0)])
    expected = [
        ([0.5, 0.5], [0.0, 0.0]),
        ([0.5, 0.5], [0.2, 0.0]),
        ([0.50793, 0.49207], [0.38, 0.0]),
        ([0.51129, 0.48871], [0.38, 0.040645]),
        ([0.51733, 0.48267], [0.53758, 0.040645]),
    ]
    for (shares_, estimates_), (wanted_shares, wanted_estimates) in zip(found, expected, strict=True):
        assert shares_ == pytest.approx(wanted_shares, abs=6e-6)
        assert estimates_ == pytest.approx(wanted_estimates, abs=6e-6)
    assert Exp3() == Exp3(alpha=0.9)
    assert Exp3.default_scorer == "group_advantage"


@pytest.mark.parametrize(("domains", "equal"), [(2, 1), (3, 3), (4, 5), (20, 59)])
def test_it_begins_with_equal_shares(domains, equal):
    # e_t is 1 / D up to t = D ln D: 1.39, 3.30, 5.55, 59.9.
    found = follow(range(domains), [(0, 1.0)] * (equal + 1))
    for got, _ in found[:-1]:
        assert got == pytest.approx([1 / domains] * domains)
    assert found[-1][0][0] > 1.001 / domains


def test_every_share_is_at_least_the_exploration():
    # Beside a huge reward nothing else is left: after 200 steps with D = 3 it is sqrt(ln 3 / 600).
    exploration = math.sqrt(math.log(3) / 600)
    assert follow("abc", [(0, 1e6)] * 200)[-1][0] == pytest.approx([1 - 2 * exploration, exploration, exploration])


def test_rewards_up_to_one_never_move_it_far():
    mixer = Exp3()
    mixer.begin("abcd")
    stats = stats_for(mixer, "abcd")
    first = [shares(mixer, stats)[0].item()]
    for number in range(1, 1001):
        add(stats, [Rollout(domain, float(domain == 0), 0) for domain in range(4)])
        stats.commit(number, mixer.mix(stats))
        mixer.update(stats)
        first.append(shares(mixer, stats)[0].item())
    assert max(first) == first[26] == pytest.approx(0.2925, abs=5e-5)
    assert first[26] > first[100] > first[1000] > 0.25


def test_the_reward_is_weighted_by_the_share_that_the_step_drew_by():
    # (1 - .9) * 1 / .25 and (1 - .9) * 1 / .75
    step = Step(1, [Rollout(0, 1.0, 0), Rollout(1, 1.0, 1)], [0.25, 0.75])
    assert estimates(step) == pytest.approx([0.4, 0.1 / 0.75])
    # a is .9 * .4 + .1 * .5 / .5, b was not generated
    assert estimates(step, Step(2, [Rollout(0, 0.5, 0)], [0.5, 0.5])) == pytest.approx([0.46, 0.1 / 0.75])


@pytest.mark.parametrize("share", [0.0, 1e-12, 5e-324])
def test_nothing_is_learned_of_a_domain_that_the_step_did_not_draw(share):
    step = Step(1, [Rollout(0, 1.0, 0), Rollout(1, 1.0, 1)], [share, 1.0])
    assert estimates(step) == pytest.approx([0.0, 0.1])


def test_a_step_without_scores_does_not_count():
    even = [0.5, 0.5]
    seen = Step(1, [Rollout(0, 1.0, 0)], even)
    for nothing in (Step(2, [], even), Step(2, [Rollout(0, math.nan, 0)], even), Step(2, [Rollout(0, 1.0, 0)], [0, 1])):
        mixer = Exp3()
        mixer.begin("ab")
        stats = stats_for(mixer, "ab")
        commit(stats, seen)
        mixer.update(stats)
        before = mixer.state_dict()
        commit(stats, nothing)
        mixer.update(stats)
        after = mixer.state_dict()
        assert int(after["t"]) == int(before["t"]) == 1
        assert torch.equal(after["estimate"], before["estimate"])


def test_one_domain_has_everything():
    assert [got for got, _ in follow("a", [(0, 1.0)] * 5)] == [[pytest.approx(1.0)]] * 6


@given(history=histories(), alpha=st.sampled_from([0.0, 0.5, 0.9]))
def test_against_plain_python(history, alpha):
    domains = len(history.names)
    estimate = [0.0] * domains
    seen = []

    def epsilon(t):
        return min(1 / domains, math.sqrt(math.log(domains) / (domains * t)))

    def slowly(step, account):
        if step is not None:
            drawn = [d for d in range(domains) if account.latest[d] is not None and step.proportions[d] > 0]
            for domain in drawn:
                reward = account.latest[domain] / step.proportions[domain]
                estimate[domain] = alpha * estimate[domain] + (1 - alpha) * reward
            seen.extend(drawn[:1])
        t = len(seen)
        if t < 2:  # e_1 is 1 / D for every D > 1
            return [1 / domains] * domains
        chances = softmax([epsilon(t - 1) * value for value in estimate], 1.0)
        return [(1 - domains * epsilon(t)) * chance + epsilon(t) for chance in chances]

    agrees(Exp3(alpha=alpha), history, slowly)


@given(history=histories(SCORES), data=st.data())
def test_scores_on_a_larger_scale_are_sharper(history, data):
    # The reward is meant to be in [0, 1]: nothing rescales it.
    larger = [step._replace(rollouts=[r._replace(score=4 * r.score) for r in step.rollouts]) for step in history.steps]
    if history.steps:
        assert estimates(*larger) == pytest.approx([4 * value for value in estimates(*history.steps)])


@pytest.mark.parametrize("params", [{"alpha": -0.1}, {"alpha": 1.0}, {"alpha": math.nan}])
def test_wrong_parameters_are_refused(params):
    with pytest.raises(pydantic.ValidationError):
        Exp3(**params)
