"""From a block to handlers on a bus."""

import pytest

from dataflex_events import AdvantageComputed, ConfigError, RolloutDone, make_plan
from dataflex_events.plan import examine

SELECT = {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}}
LATE = {"mechanism": "select", "scorer": {"name": "advantage_magnitude"}, "actuator": {"name": "threshold_band"}}
REWEIGHT = {"mechanism": "reweight", "scorer": {"name": "reward"}, "actuator": {"name": "softmax"}}


def issues(block):
    with pytest.raises(ConfigError) as caught:
        make_plan(block)
    return [str(issue) for issue in caught.value.issues]


def test_a_selector_drops_where_its_score_is_early_and_weighs_where_it_is_late():
    plan = make_plan({"policies": [SELECT]})
    assert (plan.policies[0].acts_at, plan.drops, plan.weighs) == (RolloutDone, True, False)
    plan = make_plan({"policies": [LATE]})
    assert (plan.policies[0].acts_at, plan.drops, plan.weighs) == (AdvantageComputed, False, True)


def test_apply_says_where_a_selector_acts():
    assert make_plan({**SELECT, "apply": "drop"}).policies[0].acts_at is RolloutDone
    assert make_plan({**SELECT, "apply": "weight"}).policies[0].acts_at is AdvantageComputed
    assert make_plan({**LATE, "apply": "weight"}).policies[0].acts_at is AdvantageComputed


def test_a_reweighter_acts_once_advantages_are_there_however_early_its_score_is():
    plan = make_plan(REWEIGHT)
    assert (plan.policies[0].acts_at, plan.drops, plan.weighs) == (AdvantageComputed, False, True)


def test_a_selector_that_reads_a_late_field_cannot_drop():
    block = {**SELECT, "actuator": {"name": "toys:LateSelector"}}
    assert make_plan(block).policies[0].acts_at is AdvantageComputed
    assert issues({**block, "apply": "drop"}) == [
        "dataflex.apply: 'toys:LateSelector' can run only after advantages are computed, "
        "too late to drop rows; use `apply: weight` or `apply: mask`"
    ]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (
            {**LATE, "apply": "drop"},
            "dataflex.apply: 'advantage_magnitude' can run only after advantages are computed, "
            "too late to drop rows; use `apply: weight` or `apply: mask`",
        ),
        (
            {**REWEIGHT, "apply": "drop"},
            "dataflex.apply: is for `mechanism: select`; a reweighter always gives weights",
        ),
        (
            {**SELECT, "normalize": "row"},
            "dataflex.normalize: is for `mechanism: reweight`, and for a selection with `apply: weight`",
        ),
        (
            {**SELECT, "apply": "mask", "normalize": "row"},
            "dataflex.normalize: is for `mechanism: reweight`, and for a selection with `apply: weight`",
        ),
        (
            {**SELECT, "scorer": {"name": "toys:TokenNumber"}, "actuator": {"name": "toys:Best"}},
            "dataflex.scorer.name: scores tokens; the selector 'toys:Best' compares rows and needs a score per row",
        ),
        (
            {**SELECT, "actuator": {"name": "toys:Tokens"}},
            "dataflex.scorer.name: scores rows; the selector 'toys:Tokens' chooses tokens and needs a score per token",
        ),
        (
            {**SELECT, "scorer": {"name": "toys:TokenNumber"}, "apply": "drop"},
            "dataflex.apply: tokens cannot be dropped; use `apply: weight` or `apply: mask`",
        ),
        ({**REWEIGHT, "advantages": "full"}, "dataflex.advantages: is for `mechanism: select`"),
        (
            {**SELECT, "actuator": {"name": "toys:Best"}, "refill": True},
            "dataflex.refill: needs a selector that keeps or drops whole groups; "
            "'toys:Best' chooses rows of the whole batch",
        ),
        (
            {**SELECT, "scorer": {"name": "reward"}, "refill": {"eager": True}},
            "dataflex.refill: needs a selector that keeps or drops whole groups; 'threshold_band' chooses single rows",
        ),
        (
            {**SELECT, "actuator": {"name": "softmax"}},
            "dataflex.actuator.name: unknown selector 'softmax' (it is a reweighter)",
        ),
        (
            {**REWEIGHT, "actuator": {"name": "toys:LateSelector"}},
            "dataflex.actuator.name: 'toys:LateSelector' is not a Reweighter class",
        ),
        (
            {**REWEIGHT, "scorer": {"name": "dataflex_events:Scorer"}},
            "dataflex.scorer.params: Can't instantiate abstract class Scorer",
        ),
        (
            {**REWEIGHT, "actuator": {"name": "toys:Picky", "params": {"share": 2}}},
            "dataflex.actuator.params: share 2.0 is more than all",
        ),
        (
            {**REWEIGHT, "actuator": {"name": "toys:NoDataclass", "params": {"share": 2}}},
            "dataflex.actuator.params: NoDataclass is not a dataclass, so it has no parameters",
        ),
        (
            {**REWEIGHT, "scorer": {"name": "reward", "params": {"threshold": 1}}},
            "dataflex.scorer.params.threshold: unknown key (there are none)",
        ),
    ],
)
def test_impossible_combinations(block, message):
    (issue,) = issues(block)
    assert issue.startswith(message)


def test_one_baseline_a_run():
    subset, full = ({**SELECT, "advantages": which} for which in ("subset", "full"))
    assert make_plan({"policies": [SELECT, subset, REWEIGHT]}).baseline == "subset"
    assert make_plan(SELECT).baseline is None
    assert issues({"policies": [subset, SELECT, {**full, "name": "other"}]}) == [
        "dataflex.policies[2].advantages: is 'full', but 'subset' for the policy 'threshold_band'; a run has one"
    ]
    assert make_plan({"policies": [subset, {**full, "shadow": True}]}).baseline == "subset"


def test_the_baseline_is_said_once():
    gfpo = {**SELECT, "scorer": {"name": "reward"}, "actuator": {"name": "gfpo", "params": {"k": 1}}}
    assert make_plan({**gfpo, "advantages": "full"}).baseline == "full"
    both = {**gfpo, "advantages": "subset", "actuator": {"name": "gfpo", "params": {"k": 1, "advantages": "full"}}}
    assert issues(both) == ["dataflex.actuator.params.advantages: is 'full', but 'subset' in the policy; say it once"]
    (lone,) = issues({**gfpo, "advantages": "subset"})
    assert lone.startswith("dataflex.actuator.params: a lone rollout has no baseline")


def test_a_selector_may_choose_tokens():
    policy = make_plan({**SELECT, "scorer": {"name": "toys:TokenNumber"}}).policies[0]
    assert (policy.acts_at, policy.apply) == (AdvantageComputed, "weight")
    plan = make_plan({**SELECT, "scorer": {"name": "toys:TokenNumber"}, "apply": "mask"})
    assert (plan.weighs, plan.masks) == (False, True)


def test_a_shadow_applies_nothing():
    for block in ({**SELECT, "shadow": True}, {"policies": [{**SELECT, "shadow": True}]}):
        plan = make_plan(block)
        assert (plan.applied, plan.drops, plan.weighs) == ((), False, False)


def test_policies_of_one_name_get_names_of_their_own():
    plan = make_plan({"policies": [SELECT, {**SELECT, "name": "mine"}, LATE, {**REWEIGHT, "name": "mine"}]})
    assert [policy.name for policy in plan.policies] == ["threshold_band", "mine", "threshold_band_2", "mine_2"]


def test_normalize_is_the_policys_else_the_reweighters():
    assert make_plan(REWEIGHT).policies[0].normalize == "auto"
    assert make_plan({**REWEIGHT, "normalize": "none"}).policies[0].normalize == "none"


def test_policies_come_before_handlers_and_actuators_before_scorers():
    plan = make_plan({"policies": [REWEIGHT], "handlers": ["toys:watch"], "tensorboard": {}})
    assert plan.bus().describe() == [
        ("score_ready", "softmax"),
        ("rollout_done", "reward()"),
        ("advantage_computed", "reward()"),
        ("step_end", "watch"),
        ("run_start", "tensorboard"),
        ("step_end", "tensorboard"),
        ("run_end", "tensorboard"),
    ]


def test_what_could_be_made_is_made_even_where_something_is_wrong():
    plan, found = examine({"policies": [SELECT, {**SELECT, "aply": "drop"}], "handlers": ["toys:watch"]})
    assert [policy.name for policy in plan.policies] == ["threshold_band"]
    assert len(plan.observers) == 1
    assert len(found) == 1


def test_every_bus_of_a_plan_is_its_own():
    plan = make_plan(SELECT)
    first, second = plan.bus(), plan.bus()
    first.close()
    assert second.has_subscribers(RolloutDone)
