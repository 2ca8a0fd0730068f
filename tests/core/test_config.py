"""The block: both forms, defaults, and what is wrong with one."""

import pytest

from dataflex_events import ConfigError, make_plan

SELECT = {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}}
REWEIGHT = {"mechanism": "reweight", "scorer": {"name": "reward"}, "actuator": {"name": "softmax"}}


def issues(block):
    with pytest.raises(ConfigError) as caught:
        make_plan(block)
    return [str(issue) for issue in caught.value.issues]


def test_the_short_form_is_one_policy():
    short, long = make_plan(SELECT), make_plan({"policies": [SELECT]})
    assert short.policies == long.policies
    assert [policy.name for policy in short.policies] == ["threshold_band"]


def test_defaults():
    settings = make_plan(SELECT).settings
    assert (settings.on_error, settings.verify_every, settings.tensorboard) == ("raise", 50, None)


def test_settings_stand_beside_both_forms():
    for form in (SELECT, {"policies": [SELECT]}):
        plan = make_plan({**form, "on_error": "detach", "verify_every": 0})
        assert (plan.settings.on_error, plan.settings.verify_every) == ("detach", 0)
        assert plan.bus().on_error == "detach"


def test_both_forms_at_once_are_refused():
    assert issues({"policies": [SELECT], **REWEIGHT}) == [
        "dataflex.policies: give either `policies` or the short form (mechanism, scorer, actuator), not both"
    ]


NOTHING = "dataflex: asks for nothing: give it a policy (`mechanism`, `scorer`, `actuator`), a list of `policies`, "


@pytest.mark.parametrize("block", [None, {}, {"policies": []}, {"handlers": []}, {"on_error": "detach"}])
def test_a_block_that_asks_for_nothing_is_refused(block):
    assert issues(block) == [NOTHING + "or `handlers`"]


@pytest.mark.parametrize("block", [[], "select", 3, [SELECT]])
def test_a_block_that_is_no_mapping_is_refused(block):
    assert issues(block) == [f"dataflex: should be a mapping, not {block!r}"]


def test_every_mistake_of_the_short_form_at_once():
    assert issues(
        {
            "mechansim": "select",
            "scorer": {"name": "group_solve_rat", "params": {}},
            "actuator": {"name": "threshold_band", "params": {"lo": 0.1, "high": "much"}},
            "verify_every": -1,
        }
    ) == [
        "dataflex.mechanism: is missing",
        "dataflex.verify_every: should be greater than or equal to 0, not -1",
        "dataflex.mechansim: unknown key (did you mean 'mechanism'?)",
        "dataflex.scorer.name: unknown scorer 'group_solve_rat' (did you mean 'group_solve_rate'?)",
        "dataflex.actuator.params.high: should be a valid number, not 'much'",
        "dataflex.actuator.params.lo: unknown key (did you mean 'low'?)",
    ]


def test_every_mistake_of_many_policies_at_once():
    assert issues(
        {
            "policies": [
                {**SELECT, "aply": "drop"},
                {**REWEIGHT, "mechanism": "reweigh", "actuator": {"name": "softmax", "params": {"temperature": 0}}},
                {**REWEIGHT, "scorer": {"name": "reward", "parms": {"x": 1}}},
                {**REWEIGHT, "actuator": {"name": "softmax", "params": {"temprature": 1.0}}},
                {"mechanism": "select", "actuator": {"name": "threshold_bnd"}},
                "select",
            ],
            "handlers": [{"path": "os:getcw"}, {"params": {}}, 3],
            "tensorboard": {"histograms_evry": 5},
            "on_eror": "raise",
        }
    ) == [
        "dataflex.policies[0].aply: unknown key (did you mean 'apply'?)",
        "dataflex.policies[1].mechanism: should be 'select', 'reweight', 'mix' or 'gate', not 'reweigh'",
        "dataflex.policies[2].scorer.parms: unknown key (did you mean 'params'?)",
        "dataflex.policies[5]: should be a mapping with the keys mechanism, scorer, actuator, name, apply, normalize, "
        "advantages, warmup_step, update_step, shadow, refill, domains, domain_key, unlisted, initial, window, "
        "signal, success_threshold, not 'select'",
        "dataflex.handlers[1].path: is missing",
        "dataflex.handlers[2]: should be a mapping with the keys path, params, not 3",
        "dataflex.on_eror: unknown key (did you mean 'on_error'?)",
        "dataflex.policies[4].scorer: is missing",
        "dataflex.policies[1].actuator.params.temperature: should be greater than 0, not 0",
        "dataflex.policies[3].actuator.params.temprature: unknown key (did you mean 'temperature'?)",
        "dataflex.policies[4].actuator.name: unknown selector 'threshold_bnd' (did you mean 'threshold_band'?)",
        "dataflex.handlers[0]: module 'os' has no 'getcw' (did you mean 'getcwd'?)",
        "dataflex.tensorboard.histograms_evry: unknown key (did you mean 'histograms_every'?)",
    ]


def test_a_wrong_option_is_found_beside_other_mistakes():
    assert issues({**REWEIGHT, "scorer": {"name": "rewrd"}, "apply": "drop"}) == [
        "dataflex.apply: is for `mechanism: select`; a reweighter always gives weights",
        "dataflex.scorer.name: unknown scorer 'rewrd' (did you mean 'reward'?)",
    ]
    assert issues({**SELECT, "normalize": "row", "apply": "drop", "nme": "mine"}) == [
        "dataflex.nme: unknown key (did you mean 'name'?)",
        "dataflex.normalize: is for `mechanism: reweight`, and for a selection with `apply: weight`",
    ]


def test_without_a_mechanism_an_actuator_is_looked_for_among_all():
    block = {"scorer": {"name": "reward"}, "actuator": {"name": "softmx"}}
    (message,) = issues(block)[1:]
    assert message.startswith("dataflex.actuator.name: unknown selector 'softmx' (known: difficulty_filtering, gfpo, ")
    assert message.endswith("; unknown reweighter 'softmx' (did you mean 'softmax'?)")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mechanism": None}, "dataflex.mechanism: should be 'select', 'reweight', 'mix' or 'gate', not None"),
        (
            {"mechanism": ["select"]},
            "dataflex.mechanism: should be 'select', 'reweight', 'mix' or 'gate', not ['select']",
        ),
        ({"scorer": "reward"}, "dataflex.scorer: should be a mapping with the keys name, params, not 'reward'"),
        ({"scorer": {"name": 3}}, "dataflex.scorer.name: should be text, not 3"),
        ({"scorer": {"params": {}}}, "dataflex.scorer.name: is missing"),
        (
            {"actuator": {"name": "threshold_band", "params": None}},
            "dataflex.actuator.params: should be a mapping, not None",
        ),
        ({"apply": "masks"}, "dataflex.apply: should be 'drop', 'weight' or 'mask', not 'masks'"),
        ({"update_step": 0}, "dataflex.update_step: should be greater than or equal to 1, not 0"),
        ({"warmup_step": 1.5}, "dataflex.warmup_step: should be a valid integer, not 1.5"),
        ({"advantages": "all"}, "dataflex.advantages: should be 'subset' or 'full', not 'all'"),
        ({"policy": {}}, "dataflex.policy: unknown key (did you mean 'policies'?)"),
        ({"handlers": "os:getcwd"}, "dataflex.handlers: should be a list, not 'os:getcwd'"),
        ({"tensorboard": True}, "dataflex.tensorboard: should be a mapping, not True"),
        ({"verify_every": True}, "dataflex.verify_every: should be a valid integer, not True"),
        ({"verify_every": 1.5}, "dataflex.verify_every: should be a valid integer, not 1.5"),
        ({"on_error": "ignore"}, "dataflex.on_error: should be 'raise' or 'detach', not 'ignore'"),
        ({1: 2}, "dataflex[1]: keys should be text, not 1"),
    ],
)
def test_one_mistake_one_line(changes, message):
    assert issues({**SELECT, **changes}) == [message]


def test_with_policies_only_its_own_keys_are_suggested():
    # `apply` would be right in a policy, but not here.
    assert issues({"policies": [SELECT], "aply": "drop"})[0].startswith("dataflex.aply: unknown key (known: handlers,")


def test_policies_may_stand_by_name():
    plan = make_plan({"policies": {"band": SELECT, "soft": {**REWEIGHT, "name": "mine"}}})
    assert [policy.name for policy in plan.policies] == ["band", "mine"]
    assert make_plan({"policies": {"band": {**SELECT, "name": None}}}).policies[0].name == "band"
    wrong = {"band": {**SELECT, "aply": "drop"}, "soft": {**REWEIGHT, "scorer": {"name": "rewrd"}}}
    assert issues({"policies": wrong}) == [
        "dataflex.policies.band.aply: unknown key (did you mean 'apply'?)",
        "dataflex.policies.soft.scorer.name: unknown scorer 'rewrd' (did you mean 'reward'?)",
    ]


def test_of_some_mechanisms_a_run_has_one_policy():
    gate = {"mechanism": "gate", "actuator": {"name": "greso"}}
    mix = {"mechanism": "mix", "actuator": {"name": "static"}}
    assert issues({"policies": [gate, SELECT, gate, mix, mix]}) == [
        "dataflex.policies[2].mechanism: a second 'gate': a run has one at most, and dataflex.policies[0] is one",
        "dataflex.policies[4].mechanism: a second 'mix': a run has one at most, and dataflex.policies[3] is one",
    ]
