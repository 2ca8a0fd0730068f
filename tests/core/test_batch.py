import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import samples, to_batch

from dataflex_events import Batch, FieldError
from dataflex_events.testing import make_batch


def build(**changes):
    values = {
        "offsets": torch.tensor([0, 2, 3]),
        "uid": torch.tensor([0, 0]),
        "session": torch.tensor([0, 1]),
        "output": torch.tensor([0, 0]),
        "token_fields": {"rm_scores": torch.tensor([0.0, 1.0, 2.0])},
        "row_fields": {"domain": torch.tensor([0, 0])},
    }
    return Batch.build(**{**values, **changes})


def test_sizes():
    batch = make_batch([[1, 0, 1], [0]], lengths=[2, 0, 3, 1], mask=[[1, 1], [], [1, 0, 1], [1]])
    assert (len(batch), batch.tokens, batch.groups) == (4, 6, 2)
    assert batch.offsets.tolist() == [0, 2, 2, 5, 6]
    assert batch.length.tolist() == [2, 0, 3, 1]


def test_reward_is_the_sum_over_all_tokens_masked_ones_included():
    # A reward may sit on a masked token, for example where a tool has the last word.
    batch = build(
        offsets=torch.tensor([0, 3, 6, 9]),
        uid=torch.tensor([0, 0, 0]),
        session=torch.tensor([0, 1, 2]),
        output=torch.tensor([0, 0, 0]),
        token_fields={
            "rm_scores": torch.tensor([0.0, 0, 1, 0, 1, 0, 0, 0, 1]),
            "response_mask": torch.tensor([1, 1, 1, 1, 1, 0, 1, 1, 0]),
        },
        row_fields={},
    )
    assert batch["reward"].tolist() == [1.0, 1.0, 1.0]


def test_all_outputs_of_a_session_have_the_reward_of_the_last_one():
    batch = build(
        offsets=torch.tensor([0, 1, 2, 4, 5]),
        uid=torch.tensor([0, 0, 0, 0]),
        session=torch.tensor([1, 0, 1, 0]),
        output=torch.tensor([0, 7, 1, 3]),  # 7 comes after 3, wherever it stands
        token_fields={"rm_scores": torch.tensor([5.0, 2.0, 1.0, 0.5, 9.0])},
        row_fields={},
    )
    assert batch.last_output.tolist() == [False, True, True, False]
    assert batch["reward"].tolist() == [1.5, 2.0, 1.5, 2.0]


@given(sample=samples())
def test_reward_against_plain_python(sample):
    expected = torch.tensor([sample.reward(row) for row in sample.rows])
    torch.testing.assert_close(sample.batch["reward"], expected, equal_nan=True)


@given(sample=samples(), data=st.data())
def test_take_gives_the_batch_of_those_rows(sample, data):
    # Whole sessions in any order, as a selection leaves them.
    kept = {session for session in {row.session for row in sample.rows} if data.draw(st.booleans())}
    order = data.draw(st.permutations([at for at, row in enumerate(sample.rows) if row.session in kept]))
    taken = sample.batch.take(torch.tensor(order, dtype=torch.int64))
    rows = [sample.rows[at] for at in order]
    fresh = to_batch(rows)
    for name in ("rm_scores", "response_mask", "advantages", "reward"):
        torch.testing.assert_close(taken[name], fresh[name], equal_nan=True)
    assert taken.offsets.tolist() == fresh.offsets.tolist()
    assert taken.last_output.tolist() == fresh.last_output.tolist()
    # Codes are dense again, and equal where they were equal.
    assert sorted(set(taken.uid.tolist())) == list(range(taken.groups))
    for codes, name in ((taken.uid.tolist(), "uid"), (taken.session.tolist(), "session")):
        pairs = {(code, getattr(row, name)) for code, row in zip(codes, rows, strict=True)}
        assert len(pairs) == len({code for code, _ in pairs}) == len({was for _, was in pairs})


def test_take_makes_group_and_session_codes_dense_again():
    batch = make_batch([[1, 0], [1, 0], [0, 1]]).take(torch.tensor([4, 5, 0]))
    assert batch.uid.tolist() == [1, 1, 0]
    assert batch.session.tolist() == [1, 2, 0]
    assert batch.groups == 2


def test_take_keeps_what_the_reader_declared():
    batch = make_batch([[1, 0]]).only(["reward"], "reader").take(torch.tensor([1]))
    assert batch["reward"].tolist() == [0.0]
    with pytest.raises(FieldError, match="'reader'"):
        batch["rm_scores"]


@pytest.mark.parametrize("rewards", [[], [[]]])
def test_an_empty_batch(rewards):
    batch = make_batch(rewards)
    assert (len(batch), batch.tokens, batch.groups) == (0, 0, 0)
    assert batch["reward"].tolist() == []
    assert batch.last_output.tolist() == []
    assert len(batch.take(torch.tensor([], dtype=torch.int64))) == 0


def test_an_undeclared_field_is_an_error_that_names_reader_field_and_what_was_declared():
    batch = make_batch([[1, 0]]).only(["reward", "response_mask"], "my_scorer")
    with pytest.raises(FieldError) as caught:
        batch["advantages"]
    assert str(caught.value) == (
        "handler 'my_scorer' reads the field 'advantages' without declaring it (declared: response_mask, reward)"
    )


def test_a_misspelt_field_is_an_error_with_the_nearest_name():
    batch = make_batch([[1, 0]]).only([], "my_scorer")
    with pytest.raises(FieldError, match=r"'rewards' without declaring it \(declared: none\) \(did you mean 'reward'"):
        batch["rewards"]


def test_a_field_that_the_run_lacks_is_an_error_that_names_reader_and_field():
    batch = build().only(["entropy"], "my_scorer")
    with pytest.raises(FieldError) as caught:
        batch["entropy"]
    assert str(caught.value) == (
        "handler 'my_scorer' needs the field 'entropy', which this run does not have here "
        "(it has: domain, reward, rm_scores)"
    )
    with pytest.raises(FieldError, match="the reader needs the field 'entropy'"):
        build()["entropy"]


def test_an_attribute_read_as_a_field_is_an_error_that_says_so():
    with pytest.raises(FieldError, match=r"it is an attribute, `batch\.length`"):
        make_batch([[1, 0]])["length"]


def test_contains_and_available_follow_the_declaration():
    batch = build()
    assert batch.available == {"domain", "reward", "rm_scores"}
    assert "reward" in batch
    assert "entropy" not in batch
    reader = batch.only(["reward", "entropy"], "reader")
    assert reader.available == {"reward"}
    assert "rm_scores" not in reader


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_fields": {"rm_scores": torch.zeros(2)}}, r"'rm_scores' has shape \(2,\), expected \(3,\)"),
        ({"token_fields": {"rm_scores": torch.zeros(4)}}, r"'rm_scores' has shape \(4,\), expected \(3,\)"),
        ({"token_fields": {"values": torch.zeros(3, 1)}}, r"'values' has shape \(3, 1\), expected \(3,\)"),
        ({"row_fields": {"domain": torch.zeros(3)}}, r"'domain' has shape \(3,\), expected \(2,\)"),
        ({"uid": torch.tensor([0])}, r"'uid' has shape \(1,\), expected \(2,\)"),
        ({"session": torch.tensor([0, 1, 2])}, r"'session' has shape \(3,\), expected \(2,\)"),
        ({"output": torch.tensor([0])}, r"'output' has shape \(1,\), expected \(2,\)"),
    ],
)
def test_columns_of_the_wrong_length_are_rejected_before_they_are_read(changes, message):
    with pytest.raises(FieldError, match=message):
        build(**changes)
