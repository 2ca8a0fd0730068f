"""`make_batch` and `Recorder`, as their documentation says."""

import doctest

import pytest
import torch

from dataflex_events import EventBus, RolloutDone, RunFacts, StepDriver, StepId, testing
from dataflex_events.testing import Recorder, make_batch


def test_the_examples_in_the_documentation():
    assert doctest.testmod(testing) == doctest.TestResults(failed=0, attempted=1)


def test_groups_rewards_and_lengths():
    batch = make_batch([[1, 0], [0.5]], lengths=[2, 1, 3])
    assert batch.uid.tolist() == [0, 0, 1]
    assert batch.offsets.tolist() == [0, 2, 3, 6]
    assert batch["rm_scores"].tolist() == [0, 1, 0, 0, 0, 0.5]  # each on the last token of its rollout
    assert batch["reward"].tolist() == [1, 0, 0.5]
    assert batch["response_mask"].tolist() == [1] * 6
    assert make_batch([[1, 0]]).length.tolist() == [3, 3]


def test_advantages_are_made_relative_to_the_group_unless_given():
    batch = make_batch([[1, 0], [1]], lengths=[1, 2, 1], mask=[[1], [1, 0], [1]])
    assert batch["advantages"].tolist() == [0.5, -0.5, 0, 0]
    given = make_batch([[1, 0]], lengths=[1, 1], tokens={"advantages": [[3.0], [4.0]], "entropy": [[0.1], [0.2]]})
    assert given["advantages"].tolist() == [3.0, 4.0]
    torch.testing.assert_close(given["entropy"], torch.tensor([0.1, 0.2]))


def test_sessions_with_several_outputs():
    batch = make_batch([[0, 1, 1], [1, 0]], sessions=[0, 0, 1, 0, 0])
    assert batch.session.tolist() == [0, 0, 1, 2, 2]  # numbered within the group, unique over the batch
    assert batch.last_output.tolist() == [False, True, True, False, True]
    assert batch["reward"].tolist() == [1, 1, 1, 0, 0]


def test_domains_of_the_groups():
    batch = make_batch([[1, 0], [1], [0]], domains=["math", "code", "math"])
    assert batch.domains == ("math", "code")
    assert batch["domain"].tolist() == [0, 0, 1, 0]
    assert "domain" not in make_batch([[1]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": [0, 1]}, "a rollout without tokens has nowhere to carry a reward"),
        ({"mask": [[1], [1, 1, 1]]}, r"'mask' has rows of \[1, 3\] tokens, the rollouts have \[3, 3\]"),
        ({"tokens": {"entropy": [[0.1] * 4, [0.1] * 2]}}, r"'entropy' has rows of \[4, 2\] tokens"),
        ({"tokens": {"entropies": [[0.1] * 3, [0.1] * 3]}}, "not token fields: entropies"),
        ({"domains": ["math", "code"]}, "2 domains for 1 groups"),
        ({"sessions": [0]}, "zip"),
    ],
)
def test_lists_that_do_not_fit_together(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_batch([[1, 0]], **arguments)


def test_a_recorder_remembers_events_in_order():
    bus = EventBus()
    recorder, only_rollouts = Recorder(bus), Recorder(bus, RolloutDone)
    driver = StepDriver(bus, RunFacts())
    driver.start()
    driver.step(StepId(1), make_batch([[1, 0]]))
    driver.end(StepId(1))
    assert recorder.names == ["RunStart", "RolloutDone", "AdvantageComputed", "StepEnd", "RunEnd"]
    assert only_rollouts.names == ["RolloutDone"]
    assert only_rollouts.events[0].step == StepId(1)
