"""How much each token counts: by hand, and against plain Python.

The batch of the examples has rows of 1, 3 and 2 tokens; the last token of the second row is masked.
"""

import pytest
import torch

from dataflex_events import HandlerOutputError, UpdateContext
from dataflex_events.resolve import resolve_update
from dataflex_events.testing import make_batch

BATCH = make_batch([[1, 0, 1]], lengths=[1, 3, 2], mask=[[1], [1, 1, 0], [1, 1]])
MASK = BATCH["response_mask"].bool()
ROWS = torch.tensor([1.0, 2.0, 5.0])
TOKENS = torch.tensor([1.0, 2.0, 4.0, 99.0, 0.0, 3.0])


def resolved(*proposals, keep=None, mode="token-mean", batch=BATCH, mask=MASK):
    context = UpdateContext(batch)
    for number, (weights, normalize) in enumerate(proposals):
        context.weigh(weights, normalize=normalize, by=str(number))
    if keep is not None:
        context.keep(torch.tensor(keep, dtype=torch.bool), by="selector")
    return resolve_update(context, mask, mode).weights


def test_without_a_proposal_there_are_no_weights():
    assert resolved() is None


def test_none_leaves_weights_as_they_are():
    assert resolved((ROWS, "none")).tolist() == [1, 2, 2, 2, 5, 5]
    assert resolved((TOKENS, "none")).tolist() == TOKENS.tolist()


def test_token_makes_the_mean_over_valid_tokens_one():
    # Valid tokens 1, 2, 2, 5, 5: mean 3. The masked one is scaled too but does not count.
    torch.testing.assert_close(resolved((ROWS, "token")), torch.tensor([1.0, 2, 2, 2, 5, 5]) / 3)
    # Valid tokens 1, 2, 4, 0, 3: mean 2.
    torch.testing.assert_close(resolved((TOKENS, "token")), TOKENS / 2)


def test_row_makes_the_mean_over_rows_one():
    # Rows 1, 2, 5: mean 8/3.
    torch.testing.assert_close(resolved((ROWS, "row")), torch.tensor([1.0, 2, 2, 2, 5, 5]) * 3 / 8)
    # Row means over valid tokens 1, 3, 1.5: mean 5.5/3.
    torch.testing.assert_close(resolved((TOKENS, "row")), TOKENS * 3 / 5.5)


@pytest.mark.parametrize(
    ("mode", "unit"),
    [
        ("token-mean", "token"),
        ("seq-mean-token-mean", "row"),
        ("seq-mean-token-sum", "row"),
        ("seq-mean-token-sum-norm", "row"),
        ("token-sum", "token"),
    ],
)
def test_auto_follows_the_loss(mode, unit):
    assert torch.equal(resolved((TOKENS, "auto"), mode=mode), resolved((TOKENS, unit)))
    assert not torch.equal(resolved((TOKENS, "auto"), mode=mode), resolved((TOKENS, "none")))


def test_dropped_rows_get_zero_and_the_rest_is_scaled_up_token_mean():
    # 3 of 5 valid tokens are left: each counts 5/3, so that the sum over tokens stays what it was.
    expected = torch.tensor([5 / 3, 0, 0, 0, 5 / 3, 5 / 3])
    torch.testing.assert_close(resolved(keep=[1, 0, 1]), expected)


def test_dropped_rows_get_zero_and_the_rest_is_scaled_up_seq_mean():
    # 2 of 3 rows are left: each counts 3/2.
    expected = torch.tensor([1.5, 0, 0, 0, 1.5, 1.5])
    torch.testing.assert_close(resolved(keep=[1, 0, 1], mode="seq-mean-token-mean"), expected)


def test_weights_are_normalised_over_what_is_kept():
    # Kept valid tokens have the weights 1, 5, 5: mean 11/3. Then 5/3 for the share that is left.
    expected = torch.tensor([1, 0, 0, 0, 5, 5]) * 3 / 11 * 5 / 3
    torch.testing.assert_close(resolved((ROWS, "token"), keep=[1, 0, 1]), expected)
    # Kept rows have the weights 1 and 5: mean 3. Then 3/2.
    expected = torch.tensor([1, 0, 0, 0, 5, 5]) / 3 * 3 / 2
    torch.testing.assert_close(resolved((ROWS, "auto"), keep=[1, 0, 1], mode="seq-mean-token-sum"), expected)


def test_keeping_everything_scales_nothing():
    assert resolved(keep=[1, 1, 1]).tolist() == [1.0] * 6


def test_two_policies_multiply_each_normalised_as_it_asks():
    # ROWS over token mean 3, TOKENS as they are.
    expected = torch.tensor([1.0, 2, 2, 2, 5, 5]) / 3 * TOKENS
    torch.testing.assert_close(resolved((ROWS, "token"), (TOKENS, "none")), expected)


def test_the_product_does_not_depend_on_who_ran_first():
    # 1e38 to the ninth is beyond float64: the order of multiplication shows here more than in a last bit.
    values = {f"{number:02}": 1e38 if number % 2 else 1e-38 for number in range(18)}
    results = []
    for order in (values, sorted(values, key=values.get)):
        context = UpdateContext(BATCH)
        for name in order:
            context.weigh(ROWS * 0 + values[name], by=name)
        results.append(resolve_update(context, MASK, "token-mean").weights)
    assert torch.equal(*results)
    torch.testing.assert_close(results[0], torch.ones(6))


def test_weights_that_are_all_zero_stay_zero():
    assert resolved((torch.zeros(3), "token")).tolist() == [0.0] * 6
    assert resolved((torch.zeros(3), "row")).tolist() == [0.0] * 6


def test_a_row_without_a_valid_token_does_not_count_as_a_row():
    mask = torch.tensor([True, False, False, False, True, True])
    # Rows 1 and 5 count: mean 3.
    torch.testing.assert_close(resolved((ROWS, "row"), mask=mask), torch.tensor([1.0, 2, 2, 2, 5, 5]) / 3)


def test_a_batch_without_a_valid_token():
    assert resolved((ROWS, "token"), mask=torch.zeros(6, dtype=torch.bool)).tolist() == [1, 2, 2, 2, 5, 5]


def test_an_empty_batch():
    nothing = make_batch([])
    weights = resolved((torch.zeros(0), "token"), batch=nothing, mask=torch.zeros(0, dtype=torch.bool))
    assert weights.tolist() == []


def test_one_token_in_every_row_means_the_same_per_row_and_per_token():
    batch = make_batch([[1, 0, 1]], lengths=[1, 1, 1])
    mask = torch.ones(3, dtype=torch.bool)
    for mode in ("token-mean", "seq-mean-token-mean"):
        weights = resolved((ROWS, "auto"), batch=batch, mask=mask, mode=mode)
        torch.testing.assert_close(weights, ROWS * 3 / 8)


def test_token_weights_where_there_are_as_many_rows_as_tokens():
    batch = make_batch([[0, 1, 1]], lengths=[0, 2, 1])
    for per, expected in (("token", [1.0, 2.0, 5.0]), ("row", [2.0, 2.0, 5.0])):
        context = UpdateContext(batch)
        context.weigh(ROWS, per=per, by="me")
        weights = resolve_update(context, torch.ones(3, dtype=torch.bool), "token-mean").weights
        assert weights.tolist() == expected


def test_a_product_beyond_float32_is_an_error_that_names_the_handlers():
    with pytest.raises(HandlerOutputError, match="the product of the weights of 0, 1 is not finite"):
        resolved((ROWS * 1e30, "none"), (ROWS * 1e30, "none"))
