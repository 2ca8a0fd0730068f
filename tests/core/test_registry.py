import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

from dataflex_events import ConfigError, DataflexError, Scorer, Selector, make_plan, register, registry
from dataflex_events.handlers.reweighters.softmax import Softmax
from dataflex_events.handlers.scorers.reward import Reward
from dataflex_events.handlers.selectors.threshold_band import ThresholdBand


class Unnamed(Scorer):
    def score(self, batch):
        return batch["reward"]


class Other(Scorer):
    def score(self, batch):
        return batch["reward"]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """What a test registers is gone after it."""
    registry.load()
    monkeypatch.setattr(registry, "_entries", {kind: dict(entries) for kind, entries in registry._entries.items()})


def test_names_and_aliases_of_the_built_in_components():
    names = {kind: set(registry.names(kind)) for kind in registry.KINDS}
    assert names == {
        "scorer": {
            "reward",
            "reward_difficulty",
            "group_solve_rate",
            "group_reward_std",
            "group_advantage",
            "response_length",
            "advantage_magnitude",
            "token_prob",
            "token_entropy",
        },
        "reweighter": {"softmax", "difficulty_band", "advantage_reweight", "per_advantage"},
        "selector": {
            "threshold_band",
            "difficulty_filtering",
            "topk_fraction",
            "gfpo",
            "max_variance",
            "pods",
            "pods_maxvar",
            "top_entropy_tokens",
        },
        "mixer": {"static", "reward_gap", "dump_ucb", "tscl", "sec", "exp3"},
        "gate": {"greso", "mopps", "learnability", "difficulty_pools", "adarft"},
        "observer": {"tensorboard"},
    }


def test_an_alias_is_the_same_component_under_its_own_name():
    assert registry.find("scorer", "reward_difficulty") == registry.Entry(Reward, "reward")


def test_an_alias_may_preset_parameters():
    entry = registry.find("selector", "difficulty_filtering")
    assert (entry.component, entry.name, entry.preset) == (ThresholdBand, "threshold_band", {"low": 0.2, "high": 0.8})


def band(params):
    policy = {
        "mechanism": "select",
        "scorer": {"name": "group_solve_rate"},
        "actuator": {"name": "difficulty_filtering", "params": params},
    }
    return make_plan(policy).policies[0].actuator


def test_the_users_parameters_go_before_the_preset():
    assert band({}) == ThresholdBand(low=0.2, high=0.8)
    assert band({"low": 0.1}) == ThresholdBand(low=0.1, high=0.8)
    assert band({"high": 0.9, "inclusive": True}) == ThresholdBand(low=0.2, high=0.9, inclusive=True)


def test_the_preset_is_checked_together_with_the_users_parameters():
    with pytest.raises(ConfigError, match=r"no score lies between low 0\.9 and high 0\.8"):
        band({"low": 0.9})


def test_a_component_of_ones_own_registers_in_the_same_way():
    register("mine", aliases=["my_alias"])(Unnamed)
    assert registry.find("scorer", "mine") == registry.find("scorer", "my_alias") == registry.Entry(Unnamed, "mine")


def test_a_taken_name_is_an_error_that_says_by_whom():
    with pytest.raises(DataflexError, match=r"scorer name 'reward' is taken by .*handlers\.scorers\.reward:Reward"):
        register("reward")(Unnamed)
    assert registry.find("scorer", "reward").component is Reward


def test_a_taken_alias_leaves_nothing_of_the_component_behind():
    with pytest.raises(DataflexError, match="'reward_difficulty' is taken"):
        register("mine", aliases=["reward_difficulty"])(Unnamed)
    assert "mine" not in registry.names("scorer")


def test_the_same_name_may_be_used_for_another_kind():
    @register("reward")
    @dataclass
    class Keep(Selector):
        def select(self, scores, batch):
            return scores > 0

    assert registry.find("selector", "reward").component is Keep


def test_registering_again_is_fine_where_a_module_is_imported_again():
    register("mine")(Unnamed)
    again = type("Unnamed", (Unnamed,), {"__module__": Unnamed.__module__, "__qualname__": Unnamed.__qualname__})
    register("mine")(again)
    assert registry.find("scorer", "mine").component is again


def test_only_components_can_be_registered():
    with pytest.raises(DataflexError, match="is not a component: derive it from one of Scorer, Reweighter, Selector"):
        register("mine")(dict)


def test_an_unknown_name_is_an_error_with_the_nearest_one():
    with pytest.raises(DataflexError, match=r"unknown scorer 'rewrd' \(did you mean 'reward'\?\)"):
        registry.find("scorer", "rewrd")


def test_a_name_of_another_kind_is_an_error_that_says_so():
    with pytest.raises(DataflexError, match=r"unknown selector 'softmax' \(it is a reweighter\)"):
        registry.find("selector", "softmax")


def test_import_strings():
    path = "dataflex_events.handlers.reweighters.softmax:Softmax"
    assert registry.find("reweighter", path) == registry.Entry(Softmax, path)
    assert registry.import_object("os:path.join").__name__ == "join"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no_such_module_at_all:X", "cannot import 'no_such_module_at_all': ModuleNotFoundError"),
        ("dataflex_events:Rewar", r"module 'dataflex_events' has no 'Rewar'$"),
        ("os:path.joinn", r"module 'os' has no 'path.joinn' \(did you mean 'join'\?\)"),
        ("sys:maxsize.x", "module 'sys' has no 'maxsize.x'"),
        ("os:getcwd", "'os:getcwd' is not a Scorer class"),
        ("dataflex_events:Selector", "is not a Scorer class"),
        (":X", "not an import string of the form 'module:attribute'"),
        ("os:", "not an import string of the form 'module:attribute'"),
    ],
)
def test_wrong_import_strings(path, message):
    with pytest.raises(DataflexError, match=message):
        registry.find("scorer", path)


@pytest.fixture
def installed(monkeypatch):
    """Pretends that packages with these entry points are installed."""

    def install(*points):
        group = registry.ENTRY_POINTS
        made = [EntryPoint(name, value, group) for name, value in points]
        monkeypatch.setattr(registry, "entry_points", lambda group: [one for one in made if one.group == group])
        monkeypatch.setattr(registry, "_loaded", False)

    return install


def test_entry_points_of_other_packages_are_loaded(installed, monkeypatch, tmp_path):
    source = """
from dataflex_events import Scorer, register

@register("theirs")
class Theirs(Scorer):
    def score(self, batch):
        return batch["reward"]
"""
    (tmp_path / "their_package.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_package", raising=False)
    installed(("theirs", "their_package"))
    assert registry.find("scorer", "theirs").component.__name__ == "Theirs"
    sys.modules.pop("their_package")


def test_packages_are_looked_for_once(installed, monkeypatch):
    looked = []
    installed()
    monkeypatch.setattr(registry, "entry_points", lambda group: looked.append(group) or [])
    for _ in range(3):
        registry.find("scorer", "reward")
    assert looked == ["dataflex_events.handlers"]


def test_a_broken_entry_point_is_an_error_that_names_it(installed):
    installed(("theirs", "no_such_package.components"))
    message = r"components 'theirs' \(no_such_package.components\) cannot be imported: ModuleNotFoundError"
    for _ in range(2):  # and stays one: a half-loaded registry would report unknown names instead
        with pytest.raises(DataflexError, match=message):
            registry.find("scorer", "reward")


def test_a_broken_entry_point_reaches_the_user_as_a_configuration_error(installed):
    installed(("theirs", "no_such_package.components"))
    with pytest.raises(ConfigError, match=r"dataflex\.scorer\.name: the dataflex components 'theirs'"):
        make_plan({"mechanism": "reweight", "scorer": {"name": "reward"}, "actuator": {"name": "softmax"}})
    with pytest.raises(ConfigError, match=r"dataflex\.tensorboard: the dataflex components 'theirs'"):
        make_plan({"tensorboard": {}})
