"""What holds for every mixer, whatever has happened."""

import copy
import math

import pytest
import torch
from histories import Rollout, add, commit, histories, play, shares, simple, stats_for
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events import registry
from dataflex_events.handlers.mixers.static import Static

MIXERS = {
    "static": ("static", {}),
    "reward_gap": ("reward_gap", {"window": 2, "temperature": 0.3}),
    "dump_ucb": ("dump_ucb", {"window": 3, "temperature": 0.5}),
    "tscl": ("tscl", {"window": 3}),
    "tscl signed": ("tscl", {"window": 3, "signed": True}),
    "tscl online": ("tscl", {"variant": "online", "alpha": 0.5}),
    "sec": ("sec", {}),
    "exp3": ("exp3", {}),
}
FLOORED = [label for label, (name, _) in MIXERS.items() if name not in ("static", "exp3")]
STATEFUL = ["tscl online", "sec", "exp3"]
# Scores of float32's size, and so small that they may vanish.
EXTREMES = st.sampled_from([3e38, -3e38, 1e-45, -1e-45, 0.0, 1.0, math.nan, math.inf])


def make(label, **params):
    name, own = MIXERS[label]
    return registry.find("mixer", name).component(**own, **params)


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


def test_every_mixer_is_tested_here():
    assert {name for name, _ in MIXERS.values()} == set(registry.names("mixer"))


@pytest.mark.parametrize("label", MIXERS)
@given(history=histories(), data=st.data())
def test_the_order_and_the_names_of_the_domains_decide_nothing(label, history, data):
    order = data.draw(st.permutations(range(len(history.names))))
    for got, other in zip(play(make(label), history), play(make(label), history.renamed(order)), strict=True):
        close(other, got[torch.tensor(order)])


@given(history=histories(), data=st.data())
def test_proportions_by_name_follow_their_domains(history, data):
    order = data.draw(st.permutations(range(len(history.names))))
    mixer = Static(proportions={name: 1.0 + int(name[1]) for name in history.names})
    for got, other in zip(play(mixer, history), play(mixer, history.renamed(order)), strict=True):
        close(other, got[torch.tensor(order)])


@pytest.mark.parametrize("label", FLOORED)
@pytest.mark.parametrize("extreme", [False, True])
@given(data=st.data())
def test_nobody_has_less_than_the_floor(label, extreme, data):
    history = data.draw(histories(EXTREMES) if extreme else histories())
    floor = data.draw(st.sampled_from([0.01, 0.15, 0.2]))
    for got in play(make(label, floor=floor), history):
        assert (got >= floor - 1e-12).all()


@pytest.mark.parametrize("label", FLOORED)
def test_a_floor_for_all_leaves_nothing_to_decide(label):
    history = simple("abcd", [[1.0], [0.0], [0.5], []], [[0.0], [0.0], [1.0], []])
    for got in play(make(label, floor=0.25), history):
        close(got, torch.full((4,), 0.25, dtype=torch.float64))


@pytest.mark.parametrize("label", FLOORED)
@given(domains=st.integers(2, 2000), factor=st.sampled_from([1 + 1e-15, 1.5, 2.0]))
def test_a_floor_that_not_all_can_have_is_refused(label, domains, factor):
    names, floor = [f"d{number}" for number in range(domains)], factor / domains
    with pytest.raises(ValueError, match=f"^floor {floor} is too much for {domains} domains: at most ") as refused:
        make(label, floor=floor).begin(names)
    # The one that the message names does work.
    make(label, floor=float(str(refused.value).split()[-1])).begin(names)


@pytest.mark.parametrize("label", MIXERS)
@pytest.mark.parametrize("sharp", [False, True])
@given(history=histories(EXTREMES))
def test_extreme_scores_and_parameters_still_give_proportions(label, sharp, history):
    params = {"static": {}, "exp3": {"alpha": 0.0}, "dump_ucb": {"temperature": 5e-324, "c": 1e308}}
    name, own = MIXERS[label]
    own = own | params.get(name, {"temperature": 5e-324}) if sharp else own
    mixer = registry.find("mixer", name).component(**own)
    play(mixer, history)  # `shares` looks at each
    for value in mixer.state_dict().values():
        assert value.isfinite().all()


@pytest.mark.parametrize("label", MIXERS)
def test_a_lone_domain_has_everything(label):
    for got in play(make(label), simple("a", [[0.0]], [[1.0]], [[]], [[0.5]])):
        assert got.tolist() == [pytest.approx(1.0)]


@pytest.mark.parametrize("label", MIXERS)
def test_ten_thousand_domains(label):
    size = 10_000
    generator = torch.Generator().manual_seed(1)
    mixer = make(label, **({"floor": 0.5 / size} if label in FLOORED else {}))
    names = [f"d{number}" for number in range(size)]
    mixer.begin(names)
    stats = stats_for(mixer, names)
    for number in range(1, 6):
        domain = torch.randint(size, (2000,), generator=generator)
        stats.add(domain, torch.rand(2000, generator=generator), torch.arange(2000))
        stats.commit(number, shares(mixer, stats))
        mixer.update(stats)
    got = shares(mixer, stats)
    # Nothing but what a domain has shown decides its share.
    assert len(got[stats.count == 0].unique()) == 1


@pytest.mark.parametrize("label", MIXERS)
@given(history=histories(), data=st.data())
def test_going_on_from_a_state(label, history, data):
    stop = data.draw(st.integers(0, len(history.steps)))
    expected = play(make(label), history)[stop:]

    first, second = make(label), make(label)
    for mixer in (first, second):
        mixer.begin(history.names)
    stats = stats_for(first, history.names)
    for step in history.steps[:stop]:
        commit(stats, step)
        first.update(stats)
    state = first.state_dict()
    saved = copy.deepcopy(state)
    second.load_state_dict(state)
    found = [shares(second, stats)]
    for step in history.steps[stop:]:
        commit(stats, step)
        second.update(stats)
        first.update(stats)
        found.append(shares(second, stats))
    assert all(torch.equal(got, wanted) for got, wanted in zip(found, expected, strict=True))
    assert state.keys() == saved.keys()
    for name, value in saved.items():
        assert value.isfinite().all()
        assert torch.equal(state[name], value)  # what came later did not change it


@pytest.mark.parametrize("label", MIXERS)
def test_only_what_cannot_be_learned_from_the_statistics_is_state(label):
    mixer = make(label)
    mixer.begin("abc")
    assert bool(mixer.state_dict()) == (label in STATEFUL)


@pytest.mark.parametrize("label", MIXERS)
def test_beginning_again_forgets(label):
    mixer, history = make(label), simple("abc", [[1.0], [0.0], []], [[0.0], [0.5], []], [[0.0], [1.0], []])
    once = play(mixer, history)
    again = play(mixer, history)
    assert all(torch.equal(got, wanted) for got, wanted in zip(again, once, strict=True))


@pytest.mark.parametrize("label", MIXERS)
def test_a_state_that_is_not_its_own_is_refused(label):
    mixer, other = make(label), make(label)
    mixer.begin("abc")
    other.begin("ab")
    history = simple("abc", [[1.0], [0.0], []], [[0.0], [0.5], []])
    play(mixer, history)
    state = mixer.state_dict()
    wrong = {"keys|no state": [state | {"more": torch.zeros(3)}]}
    if label in STATEFUL:
        first = next(iter(state))
        wrong["keys"] = [{}, {name: value for name, value in state.items() if name != first}]
        wrong[rf"'{first}' is torch.float64 of shape \(2,\), and should be torch.float64 of shape \(3,\)"] = [
            other.state_dict()
        ]
        wrong[f"'{first}' is torch.float32 "] = [state | {first: state[first].to(torch.float32)}]
        wrong[f"'{first}' has values that are not finite"] = [state | {first: state[first] * math.nan}]
        wrong[f"'{first}' is a list and not a tensor"] = [state | {first: [0.0] * 3}]
    before = copy.deepcopy(mixer.state_dict())
    for reason, states in wrong.items():
        for one in states:
            with pytest.raises(ValueError, match=reason):
                mixer.load_state_dict(one)
            assert all(torch.equal(value, before[name]) for name, value in mixer.state_dict().items())


@pytest.mark.parametrize("label", MIXERS)
def test_asking_twice_or_not_at_all_changes_nothing(label):
    history = simple("abc", [[1.0], [0.0], []], [[0.0], [0.5], []], [[0.0], [1.0], []])
    silent = make(label)
    silent.begin(history.names)
    stats = stats_for(silent, history.names)
    for step in history.steps:
        commit(stats, step)
        silent.update(stats)
    for _ in range(2):
        assert torch.equal(shares(silent, stats), play(make(label), history)[-1])


def test_nothing_is_shared_with_the_statistics():
    for label in MIXERS:
        mixer = make(label)
        mixer.begin("ab")
        stats = stats_for(mixer, "ab")
        add(stats, [Rollout(0, 1.0, 0), Rollout(1, 0.5, 0)])
        stats.commit(1, torch.tensor([0.5, 0.5]))
        mixer.update(stats)
        got = shares(mixer, stats)
        expected = got.clone()
        got.mul_(0)
        close(shares(mixer, stats), expected)
        close(stats.latest, torch.tensor([1.0, 0.5], dtype=torch.float64))
