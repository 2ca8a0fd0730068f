"""What of a batch counts in the update: masks, weight 0, tokens and rows; by hand, and against plain Python."""

import logging
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ragged import samples

from dataflex_events import HandlerOutputError, UpdateContext
from dataflex_events.resolve import resolve_update
from dataflex_events.testing import make_batch

# Rows of 1, 3 and 2 tokens; the last token of the second row is masked.
BATCH = make_batch([[1, 0, 1]], lengths=[1, 3, 2], mask=[[1], [1, 1, 0], [1, 1]])
MASK = BATCH["response_mask"].bool()


def resolved(*keeps, weights=None, mode="token-mean", batch=BATCH, regroup=False):
    context = UpdateContext(batch)
    for number, (mask, how) in enumerate(keeps):
        context.keep(torch.tensor(mask, dtype=torch.bool), by=f"selector {number}", **how)
    if weights is not None:
        context.weigh(torch.tensor(weights), normalize="auto", by="reweighter")
    return resolve_update(context, batch["response_mask"].bool(), mode, regroup=regroup)


def test_nothing_proposed_is_nothing_decided():
    decision = resolved()
    assert (decision.keep, decision.mask, decision.weights, decision.selects) == (None, None, None, False)


def test_masked_rows_leave_the_mask_and_get_no_weights():
    decision = resolved(([1, 0, 1], {"apply": "mask"}))
    assert decision.mask.int().tolist() == [1, 0, 0, 0, 1, 1]
    assert decision.weights is None
    assert decision.keep.tolist() == [True, False, True]


def test_masked_tokens_leave_the_mask():
    decision = resolved(([1, 0, 1, 1, 0, 1], {"apply": "mask"}))
    assert decision.mask.int().tolist() == [1, 0, 1, 0, 0, 1]  # the fourth was not valid before
    assert decision.keep is None


def test_tokens_with_weight_zero_are_not_scaled_up_unless_asked():
    tokens = [1, 0, 1, 1, 0, 1]  # 3 of the 5 valid ones
    assert resolved((tokens, {"normalize": "none"})).weights.tolist() == [1, 0, 1, 1, 0, 1]
    expected = torch.tensor([1, 0, 1, 1, 0, 1]) * 5 / 3
    torch.testing.assert_close(resolved((tokens, {"normalize": "token"})).weights, expected)
    # Kept shares of the rows: 1, 1/2 and 1/2; on average 2/3.
    expected = torch.tensor([1, 0, 1, 1, 0, 1]) * 3 / 2
    torch.testing.assert_close(resolved((tokens, {}), mode="seq-mean-token-mean").weights, expected)


def test_weights_are_normalised_over_what_counts():
    # The mask leaves the first and the last row; of their 3 valid tokens the last is given weight 0.
    decision = resolved(
        ([1, 0, 1], {"apply": "mask"}), ([1, 1, 1, 1, 1, 0], {"normalize": "token"}), weights=[1.0, 99.0, 3.0]
    )
    assert decision.mask.int().tolist() == [1, 0, 0, 0, 1, 1]
    # 2 of 3 counting tokens are kept: 3/2. Their weights 1 and 3 have the mean 2.
    torch.testing.assert_close(decision.weights[decision.mask], torch.tensor([1 / 2, 3 / 2, 0]) * 3 / 2)
    assert decision.counting.int().tolist() == [1, 0, 0, 0, 1, 0]


def test_two_selections_must_agree_however_they_are_applied():
    decision = resolved(([1, 1, 0], {"apply": "mask"}), ([0, 1, 1], {"apply": "weight"}))
    assert decision.keep.tolist() == [False, True, False]
    assert decision.mask.int().tolist() == [1, 1, 1, 0, 0, 0]
    # 2 of the 3 tokens that are left in the mask are kept.
    torch.testing.assert_close(decision.weights[decision.mask], torch.tensor([0, 1.5, 1.5]))


def test_a_lonely_row_goes_the_way_of_the_others():
    batch = make_batch([[1, 0, 1], [1, 0, 0]])
    for apply in ("mask", "weight"):
        decision = resolved(([1, 0, 0, 1, 1, 0], {"apply": apply}), batch=batch, regroup=True)
        assert decision.keep.int().tolist() == [0, 0, 0, 1, 1, 0]
        assert decision.lonely_groups == 1
        left = decision.mask if apply == "mask" else decision.weights > 0
        assert left.reshape(6, 3).all(1).int().tolist() == [0, 0, 0, 1, 1, 0]


@pytest.mark.parametrize("apply", ["mask", "weight"])
@pytest.mark.parametrize("mask", [[0, 0, 0], [0, 0, 0, 1, 0, 0]], ids=["rows", "tokens"])
def test_a_selection_that_leaves_no_valid_token_keeps_everything(mask, apply, caplog):
    with caplog.at_level(logging.WARNING, logger="dataflex"):
        decision = resolved((mask, {"apply": apply}))
    assert decision.kept_whole
    assert caplog.text.count("would empty the batch") == 1
    assert decision.counting.tolist() == MASK.tolist()
    if apply == "weight":
        assert decision.weights.tolist() == [1.0] * 6


def test_rows_and_tokens_that_have_nothing_in_common_keep_everything():
    decision = resolved(([1, 0, 0], {}), ([0, 1, 1, 1, 1, 1], {}))
    assert decision.kept_whole
    assert decision.keep.tolist() == [True] * 3
    assert decision.weights.tolist() == [1.0] * 6


@pytest.mark.parametrize("mask", [torch.ones(3), torch.ones(4, dtype=torch.bool), "all"])
def test_a_keep_proposal_must_be_bool_and_fit(mask):
    with pytest.raises(HandlerOutputError, match="'me' proposed to keep"):
        UpdateContext(BATCH).keep(mask, by="me")


WEIGHTS = st.sampled_from([0.0, 0.25, 1.0, 3.0])
WAYS = st.sampled_from(["auto", "token", "row", "none"])


def slowly(sample, weights, keeps, mode):
    """Which tokens stay valid and what each weighs."""
    unit = "token" if mode == "token-mean" else "row"
    tokens = [(at, bool(valid)) for at, row in enumerate(sample.rows) for valid in row.mask]
    finals = {row.session: at for at, row in enumerate(sample.rows) if row in sample.finals(row.uid)}
    keeps = [
        ([mask[finals[sample.rows[at].session]] for at, _ in tokens] if per == "row" else mask, per, how)
        for mask, per, how in keeps
    ]
    rows_left = [at for number, (at, _) in enumerate(tokens) if all(m[number] for m, per, _ in keeps if per == "row")]
    if not rows_left:
        keeps = [([True] * len(mask) if per == "row" else mask, per, how) for mask, per, how in keeps]
    left = [number for number, (_, valid) in enumerate(tokens) if valid and all(m[number] for m, _, _ in keeps)]
    if not left and any(valid for _, valid in tokens):  # where no token is valid there is nothing to empty
        keeps = [([True] * len(mask), per, how) for mask, per, how in keeps]

    def mean(values, counting, how):
        counted = {}  # values, by token or by row
        for number, (at, _) in enumerate(tokens):
            if counting[number]:
                counted.setdefault(number if how == "token" else at, []).append(values[number])
        means = [math.fsum(some) / len(some) for some in counted.values()]
        return (math.fsum(means) / len(means) if means else 1.0) or 1.0

    counting = [valid for _, valid in tokens]
    result = [1.0] * len(tokens)
    for stage in ("mask", "none", "row", "token"):
        masks = [mask for mask, _, how in keeps if (unit if how == "auto" else how) == stage]
        if not masks:
            continue
        kept = [all(column) for column in zip(*masks, strict=True)]
        if stage != "mask":
            scale = 1.0 if stage == "none" else mean([float(keep) for keep in kept], counting, stage)
            result = [one * keep / scale for one, keep in zip(result, kept, strict=True)]
        counting = [one and keep for one, keep in zip(counting, kept, strict=True)]
        if stage == "mask":
            masked = counting
    if not any(how == "mask" for _, _, how in keeps):
        masked = [valid for _, valid in tokens]
    for values, normalize in weights:
        how = unit if normalize == "auto" else normalize
        scale = 1.0 if how == "none" else mean(values, counting, how)
        result = [one * value / scale for one, value in zip(result, values, strict=True)]
    return masked, result


@given(sample=samples(), data=st.data(), mode=st.sampled_from(["token-mean", "seq-mean-token-mean"]))
def test_against_plain_python(sample, data, mode):
    context, weights, keeps = UpdateContext(sample.batch), [], []
    count = {"row": len(sample.rows), "token": sample.batch.tokens}
    for number in range(data.draw(st.integers(0, 2))):
        normalize, per = data.draw(WAYS), data.draw(st.sampled_from(["row", "token"]))
        values = data.draw(st.lists(WEIGHTS, min_size=count[per], max_size=count[per]))
        context.weigh(torch.tensor(values), normalize=normalize, per=per, by=f"weight {number}")
        if per == "row":
            values = [values[at] for at, row in enumerate(sample.rows) for _ in row.mask]
        weights.append((values, normalize))
    for number in range(data.draw(st.integers(0, 3))):
        how, per = data.draw(st.one_of(WAYS, st.just("mask"))), data.draw(st.sampled_from(["row", "token"]))
        mask = data.draw(st.lists(st.booleans(), min_size=count[per], max_size=count[per]))
        way = {"apply": "mask"} if how == "mask" else {"normalize": how}
        context.keep(torch.tensor(mask, dtype=torch.bool), per=per, by=f"keep {number}", **way)
        keeps.append((mask, per, how))
    decision = resolve_update(context, sample.batch["response_mask"].bool(), mode)
    masked, expected = slowly(sample, weights, keeps, mode)
    if any(how == "mask" for _, _, how in keeps):
        assert decision.mask.tolist() == masked
    if weights or any(how != "mask" for _, _, how in keeps):
        assert decision.weights.tolist() == pytest.approx(expected, rel=1e-6)
