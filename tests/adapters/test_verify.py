"""The run-time verification: every way in which rows or columns can go wrong stops the run."""

from __future__ import annotations

import pytest
import torch
from fakequeue import FakeQueue
from transfer_queue.metadata import KVBatchMeta

from dataflex_events.adapters.verl.verify import verify
from dataflex_events.errors import VerificationError

KEPT, DROPPED, PADDING = ["a_0_0", "a_1_0", "b_0_0"], ["b_1_0", "b_2_0"], "pad9_0_0"


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    """The kept rows and a padding row."""
    fake = FakeQueue(monkeypatch)
    for key in [*KEPT, PADDING]:
        put(fake, key)
    return fake


def put(queue: FakeQueue, key: str) -> None:
    queue.put(key, uid=key.rsplit("_", 2)[0], responses=torch.arange(2))


def sent(queue: FakeQueue) -> KVBatchMeta:
    return queue.meta(padding=[PADDING], fields=["uid", "responses"])


@pytest.mark.parametrize("ranks", [1, 2])
def test_exactly_the_kept_rows_pass(queue: FakeQueue, ranks: int) -> None:
    verify(sent(queue), ranks, {}, KEPT, DROPPED)


def test_a_dropped_row_that_is_sent_stops_the_run(queue: FakeQueue) -> None:
    put(queue, DROPPED[0])
    with pytest.raises(VerificationError, match="4 rows are sent to the worker, but the selection kept 3"):
        verify(sent(queue), 1, {}, KEPT, DROPPED)


def test_a_kept_row_that_is_not_sent_stops_the_run(queue: FakeQueue) -> None:
    del queue.rows[KEPT[0]]
    with pytest.raises(VerificationError, match="2 rows are sent to the worker, but the selection kept 3"):
        verify(sent(queue), 1, {}, KEPT, DROPPED)


def test_another_row_than_a_kept_one_stops_the_run(queue: FakeQueue) -> None:
    del queue.rows[KEPT[0]]
    put(queue, "c_0_0")
    with pytest.raises(VerificationError, match="rows are sent to the worker"):
        verify(sent(queue), 1, {}, KEPT, DROPPED)


def test_a_dropped_row_that_stays_in_the_queue_stops_the_run(queue: FakeQueue) -> None:
    meta = sent(queue)
    put(queue, DROPPED[1])
    with pytest.raises(VerificationError, match=r"1 dropped rows are still in TransferQueue, e\.g\. b_2_0"):
        verify(meta, 1, {}, KEPT, DROPPED)


def test_rows_that_are_not_those_of_their_keys_stop_the_run(queue: FakeQueue) -> None:
    queue.rows[KEPT[0]]["uid"] = "b"
    with pytest.raises(VerificationError, match="rows that the worker reads are not the rows that were kept"):
        verify(sent(queue), 1, {}, KEPT, DROPPED)


def written(queue: FakeQueue, fields: list[str]) -> tuple[KVBatchMeta, dict[str, torch.Tensor]]:
    """A batch whose rows carry the column `advantages`, and what was written there."""
    for number, row in enumerate(queue.rows.values()):
        row["advantages"] = torch.tensor([number, number + 0.5])
    return queue.meta(padding=[PADDING], fields=fields), {"advantages": torch.arange(8) / 2}


@pytest.mark.parametrize("ranks", [1, 2])
def test_columns_as_written_pass(queue: FakeQueue, ranks: int) -> None:
    for row in queue.rows.values():
        row["response_mask"] = torch.ones(2, dtype=torch.int64)
    meta, columns = written(queue, ["uid", "advantages", "response_mask"])
    columns["advantages"] = torch.tensor([0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5])
    verify(meta, ranks, {**columns, "response_mask": torch.ones(8, dtype=torch.int64)}, KEPT, DROPPED)


def test_a_value_that_differs_stops_the_run(queue: FakeQueue) -> None:
    meta, columns = written(queue, ["uid", "advantages"])
    columns["advantages"] = torch.tensor([0, 0.5, 1, 1.5, 2, 2.5, 3, 9.0])
    with pytest.raises(VerificationError, match="1 of 8 values that the worker reads as 'advantages' are not what was"):
        verify(meta, 1, columns, KEPT, DROPPED)


def test_a_column_that_is_not_listed_stops_the_run(queue: FakeQueue) -> None:
    meta, columns = written(queue, ["uid", "responses"])
    with pytest.raises(VerificationError, match=r"does not receive the column 'advantages'.* lists: uid, responses"):
        verify(meta, 1, columns, KEPT, DROPPED)


def test_a_column_of_other_lengths_stops_the_run(queue: FakeQueue) -> None:
    meta, columns = written(queue, ["uid", "advantages"])
    queue.rows[KEPT[1]]["advantages"] = torch.zeros(3)
    with pytest.raises(VerificationError, match="'advantages' is not as long as the responses"):
        verify(meta, 1, columns, KEPT, DROPPED)
