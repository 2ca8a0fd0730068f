"""`StepShape`: how kept rows are cut into cells, one for each rank and mini-batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events.adapters.verl.shape import StepShape, largest_divisor


@st.composite
def shapes(draw: st.DrawFn, micro: bool = True) -> StepShape:
    """A fitted shape of at most 300 rows."""
    micro_batch = st.none() | st.integers(1, 9) if micro else st.none()
    rows = st.integers(1, 20) | st.integers(1, 300)  # the fewer rows, the more depends on each
    return StepShape.fit(draw(rows), draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(micro_batch))


@st.composite
def paddings(draw: st.DrawFn) -> tuple[StepShape, np.ndarray]:
    """A shape and its padding rows: at the end of the batch, where verl puts them, or anywhere."""
    shape = draw(shapes())
    padding = np.arange(shape.total) >= shape.rows
    if draw(st.booleans()):
        padding = padding[draw(st.permutations(range(shape.total)))]
    return shape, padding


# ---------------------------------------------------------------- fit


@pytest.mark.parametrize(
    ("rows", "ranks", "mini_batches", "micro", "made", "cell"),
    [
        (96, 2, 4, None, 4, 12),  # divides
        (91, 2, 4, None, 4, 12),
        (91, 1, 1, None, 1, 91),
        (7, 2, 4, None, 3, 2),  # not one row for each of eight cells, but for each of six
        (2, 2, 4, None, 1, 1),
        (1, 4, 4, None, 1, 1),  # three ranks get padding only; the mini-batch as a whole does not
        (91, 2, 2, 4, 2, 24),  # six micro-batches of four
        (36, 2, 2, 4, 2, 9),  # three micro-batches of three instead of two of four and one of one
        (13, 1, 1, 8, 1, 14),  # two micro-batches of seven
    ],
)
def test_examples(rows: int, ranks: int, mini_batches: int, micro: int | None, made: int, cell: int) -> None:
    shape = StepShape.fit(rows, ranks, mini_batches, micro)
    assert (shape.mini_batches, shape.cell) == (made, cell)


@given(shapes())
def test_all_kept_rows_have_a_place(shape: StepShape) -> None:
    assert shape.padding >= 0
    assert shape.total == shape.ranks * shape.mini_batches * shape.cell
    assert shape.mini_batch_size == shape.ranks * shape.cell


@given(shapes(micro=False))
def test_padding_is_the_least_that_divides(shape: StepShape) -> None:
    assert shape.padding < shape.ranks * shape.mini_batches


@given(st.integers(1, 300), st.integers(1, 8), st.integers(1, 8), st.none() | st.integers(1, 9))
def test_mini_batches_stay_while_there_is_a_row_for_every_cell(
    rows: int, ranks: int, mini_batches: int, micro: int | None
) -> None:
    made = StepShape.fit(rows, ranks, mini_batches, micro).mini_batches
    assert 1 <= made <= mini_batches
    assert made == mini_batches or rows < ranks * (made + 1)


@given(st.integers(1, 300), st.integers(1, 8), st.integers(1, 8), st.integers(1, 9))
def test_a_cell_divides_into_equal_micro_batches(rows: int, ranks: int, mini_batches: int, micro: int) -> None:
    shape = StepShape.fit(rows, ranks, mini_batches, micro)
    least = -(-rows // (ranks * shape.mini_batches))
    needed = -(-least // micro)  # micro-batches; fewer cannot hold the rows
    assert shape.cell // largest_divisor(shape.cell, micro) == needed
    assert shape.cell - least < needed


@given(shapes())
def test_sequence_means_divide_by_the_kept_rows(shape: StepShape) -> None:
    assert shape.mini_batch_rows * shape.mini_batches == pytest.approx(shape.rows)


# ---------------------------------------------------------------- deal


def cells(shape: StepShape, dealt: np.ndarray) -> np.ndarray:
    """What lies in each cell: verl cuts by rank, then by mini-batch. `(ranks, mini-batches, cell)`."""
    return dealt.reshape(shape.ranks, shape.mini_batches, shape.cell)


@given(paddings())
def test_dealing_is_a_permutation(case: tuple[StepShape, np.ndarray]) -> None:
    shape, padding = case
    assert sorted(shape.deal(padding)) == list(range(shape.total))


@given(paddings())
def test_every_cell_gets_its_even_share(case: tuple[StepShape, np.ndarray]) -> None:
    shape, padding = case
    share = (~cells(shape, padding[shape.deal(padding)])).sum(-1)
    assert share.max() - share.min() <= 1
    assert share.min() >= 1 or shape.rows < shape.ranks


@given(paddings())
def test_no_mini_batch_is_padding_only(case: tuple[StepShape, np.ndarray]) -> None:
    shape, padding = case
    assert (~cells(shape, padding[shape.deal(padding)])).any(axis=(0, 2)).all()


@given(paddings())
def test_kept_rows_stay_in_order_and_padding_is_last_in_its_cell(case: tuple[StepShape, np.ndarray]) -> None:
    shape, padding = case
    order = shape.deal(padding)
    kept = order[~padding[order]]
    assert (np.diff(kept) > 0).all()
    assert (np.diff(cells(shape, padding[order]).astype(int), axis=-1) >= 0).all()


def test_undealt_padding_would_fill_a_mini_batch() -> None:
    """verl appends padding: without dealing, the last of these four mini-batches would have no row at all."""
    shape = StepShape.fit(5, 1, 4, None)
    appended = np.arange(shape.total) >= shape.rows
    assert cells(shape, appended)[0, -1].all()
    assert not cells(shape, appended[shape.deal(appended)])[0].all(-1).any()


# ---------------------------------------------------------------- micro-batches


@pytest.mark.parametrize(("rows", "limit", "size"), [(12, 4, 4), (18, 4, 3), (13, 4, 1), (3, 8, 3), (1, 1, 1)])
def test_largest_divisor_examples(rows: int, limit: int, size: int) -> None:
    assert largest_divisor(rows, limit) == size


@given(st.integers(1, 500), st.integers(1, 64))
def test_largest_divisor(rows: int, limit: int) -> None:
    size = largest_divisor(rows, limit)
    assert rows % size == 0
    assert size <= limit
    assert not any(rows % other == 0 for other in range(size + 1, min(rows, limit) + 1))
