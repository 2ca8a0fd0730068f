import pytest
from hypothesis import given
from ragged import samples

from dataflex_events.handlers.scorers.response_length import ResponseLength
from dataflex_events.testing import make_batch


def test_tokens_that_the_policy_wrote_or_all():
    batch = make_batch([[0, 0, 0]], lengths=[3, 0, 2], mask=[[1, 0, 1], [], [0, 0]])
    assert ResponseLength().score(batch).tolist() == [2.0, 0.0, 0.0]
    assert ResponseLength(valid_only=False).score(batch).tolist() == [3.0, 0.0, 2.0]


@pytest.mark.parametrize("valid_only", [True, False])
@given(sample=samples())
def test_against_plain_python(sample, valid_only):
    expected = [float(sum(row.mask) if valid_only else len(row.mask)) for row in sample.rows]
    assert ResponseLength(valid_only=valid_only).score(sample.batch).tolist() == expected
