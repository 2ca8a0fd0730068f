"""What mixers make of a learner: one domain that it masters, one that it cannot learn, and two that it learns."""

from functools import cache
from statistics import fmean

import pytest
from mixlearner import IMPOSSIBLE, MASTERED, Learner, Skill, train

from dataflex_events import registry

FOUR = {
    "mastered": MASTERED,
    "impossible": IMPOSSIBLE,
    "ahead": Skill(0.5, 0.95, 4000),
    "behind": Skill(0.1, 0.9, 4000),
}
THREE = {name: skill for name, skill in FOUR.items() if name != "impossible"}
MOVING = {
    "mastered": MASTERED,
    "impossible": IMPOSSIBLE,
    "steady": Skill(0.5, 0.5),
    "moving": Skill(0.0, 1.0, 1500),
}
ALIKE = dict.fromkeys("abcd", Skill(0.5, 0.5))
seeds = pytest.mark.parametrize("seed", range(3))


def trained(name, skills, seed, *, steps=60, **params):
    """Mean share of each domain, and the learner."""
    mixer = registry.find("mixer", name).component(**params)
    learner = Learner(skills, seed)
    shares = train(mixer, registry.find("scorer", mixer.default_scorer).component(), learner, steps=steps)
    return {domain: fmean(values) for domain, values in shares.items()}, learner


@cache
def in_four(name, seed):
    return trained(name, FOUR, seed)


@seeds
@pytest.mark.parametrize(
    ("name", "little", "much"), [("dump_ucb", 0.05, 0.33), ("sec", 0.12, 0.33), ("exp3", 0.24, 0.26)]
)
def test_what_teaches_nothing_loses_to_what_can_be_learned(name, little, much, seed):
    shares, _ = in_four(name, seed)
    assert max(shares["mastered"], shares["impossible"]) < little
    assert min(shares["ahead"], shares["behind"]) > much


@seeds
@pytest.mark.parametrize("name", ["dump_ucb", "sec"])
def test_so_more_is_learned_than_with_equal_shares(name, seed):
    _, learner = in_four(name, seed)
    _, evenly = in_four("static", seed)
    assert sum(learner.spent.values()) == sum(evenly.spent.values())
    for domain in ("ahead", "behind"):
        assert learner.pass_rates[domain] > evenly.pass_rates[domain] + 0.03


@seeds
def test_what_lags_gains_under_reward_gap(seed):
    shares, _ = trained("reward_gap", THREE, seed)
    assert shares["behind"] > 1 / 3 + 0.03
    assert shares["behind"] > shares["ahead"] + 0.05 > shares["mastered"] + 0.05


@seeds
def test_what_cannot_be_learned_gains_even_more_under_reward_gap(seed):
    shares, _ = in_four("reward_gap", seed)
    assert shares["impossible"] > shares["behind"] + 0.04 > 0.25 + 0.04
    assert min(shares["behind"], 0.25) > shares["ahead"] > shares["mastered"]


@seeds
@pytest.mark.parametrize("params", [{}, {"signed": True}, {"variant": "online"}])
def test_what_moves_gains_under_tscl(params, seed):
    shares, _ = trained("tscl", MOVING, seed, steps=40, **params)
    # A little only: it moves by up to 0.04 a step, which at temperature 0.1 makes it e^0.4 times as likely.
    assert shares["moving"] > 0.265
    assert shares["moving"] > max(shares["mastered"], shares["impossible"], shares["steady"]) + 0.01


@seeds
def test_a_sharper_tscl(seed):
    shares, _ = trained("tscl", MOVING, seed, steps=40, temperature=0.02)
    assert shares["moving"] > 0.35


def test_static_gives_what_it_is_told():
    skills = {"a": MASTERED, "b": IMPOSSIBLE, "c": Skill(0.1, 0.9, 4000)}
    mixer = registry.find("mixer", "static").component([0.2, 0.3, 0.5])
    learner = Learner(skills, 0)
    shares = train(mixer, registry.find("scorer", "reward").component(), learner, steps=100)
    assert shares == {"a": [0.2] * 100, "b": [0.3] * 100, "c": [0.5] * 100}
    # 3200 prompts by chance: a standard deviation is less than 0.01
    assert [spent / 25600 for spent in learner.spent.values()] == pytest.approx([0.2, 0.3, 0.5], abs=0.04)


@seeds
@pytest.mark.parametrize("name", ["dump_ucb", "sec", "exp3", "reward_gap", "tscl"])
def test_nobody_gains_where_all_are_alike(name, seed):
    shares, _ = trained(name, ALIKE, seed, steps=40)
    assert list(shares.values()) == pytest.approx([0.25] * 4, abs=0.05)
