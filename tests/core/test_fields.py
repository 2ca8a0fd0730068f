import pytest

from dataflex_events.fields import ALWAYS, FIELDS, first_moment
from dataflex_events.testing import make_batch


@pytest.mark.parametrize(
    ("fields", "moment"),
    [
        ([], "rollout_done"),
        (["reward", "response_mask", "rm_scores", "rollout_log_probs", "domain"], "rollout_done"),
        (["reward", "advantages"], "advantage_computed"),
        (["old_log_probs"], "advantage_computed"),
        (["entropy"], "advantage_computed"),
        (["values"], "advantage_computed"),
        (["ref_log_prob"], "advantage_computed"),
    ],
)
def test_the_first_moment_is_that_of_the_latest_field(fields, moment):
    assert first_moment(fields) == moment


def test_attributes_of_every_batch_are_no_fields():
    assert not set(ALWAYS) & set(FIELDS)
    batch = make_batch([[1, 0]])
    assert all(len(getattr(batch, name)) == 2 for name in ALWAYS)
