"""Reading trajectories from TransferQueue, and taking them out of it."""

from __future__ import annotations

import pytest
import torch
from fakequeue import PARTITION, FakeQueue

from dataflex_events.adapters.verl.rows import is_padding, read_batch, remove_rows
from dataflex_events.errors import FieldError


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    """Two groups; a session with two outputs; a padding row."""
    fake = FakeQueue(monkeypatch)
    # key, response length, reward, domain
    rows = [
        ("b_0_0", 3, 0.0, "sort"),
        ("b_1_0", 1, 1.0, "sort"),
        ("a_0_0", 2, 0.5, "add"),
        ("a_0_1", 4, 0.5, "add"),
        ("a_10_0", 1, 0.0, "add"),
        ("pad9_0_0", 1, 0.0, "sort"),
    ]
    for key, length, reward, domain in rows:
        scores = torch.zeros(length)
        scores[-1] = reward
        responses = torch.arange(length)
        fake.put(key, responses=responses, rm_scores=scores, response_mask=torch.ones(length), domain=domain)
    return fake


def test_padding_rows_are_known_by_their_tag(queue: FakeQueue) -> None:
    assert is_padding(queue.meta(padding=["pad9_0_0"])).tolist() == [False] * 5 + [True]


def test_groups_sessions_and_final_outputs_come_from_the_keys(queue: FakeQueue) -> None:
    batch = read_batch(queue.meta(padding=["pad9_0_0"]), ["reward"])
    assert batch.uid.tolist() == [1, 1, 0, 0, 0]
    assert batch.session.unique().numel() == 4
    assert batch.session[2] == batch.session[3]
    assert batch.last_output.tolist() == [True, True, False, True, True]
    assert batch.length.tolist() == [3, 1, 2, 4, 1]


def test_fields_are_flat_and_in_the_order_of_the_rows(queue: FakeQueue) -> None:
    batch = read_batch(queue.meta(padding=["pad9_0_0"]), ["reward", "response_mask", "domain"])
    assert batch["response_mask"].tolist() == [1.0] * 11
    assert batch["reward"].tolist() == [0.0, 1.0, 0.5, 0.5, 0.0]
    assert [batch.domains[code] for code in batch["domain"]] == ["sort", "sort", "add", "add", "add"]


def test_only_what_was_asked_for_is_read(queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    get = queue.kv_batch_get

    def spy(*, keys: list[str], partition_id: str, select_fields: list[str]) -> object:
        asked.append(select_fields)
        return get(keys=keys, partition_id=partition_id, select_fields=select_fields)

    monkeypatch.setattr("transfer_queue.kv_batch_get", spy)
    read_batch(queue.meta(padding=["pad9_0_0"]), ["response_mask"])
    read_batch(queue.meta(padding=["pad9_0_0"]), [])
    assert asked == [["response_mask"]]


def test_a_missing_column_is_an_error_that_names_it(queue: FakeQueue) -> None:
    del queue.rows["a_0_1"]["rm_scores"]  # TransferQueue then hides the column of all rows, without a word
    with pytest.raises(FieldError, match="does not have the columns rm_scores"):
        read_batch(queue.meta(padding=["pad9_0_0"]), ["reward", "response_mask"])


def test_a_missing_row_is_an_error(queue: FakeQueue) -> None:
    meta = queue.meta(padding=["pad9_0_0"])
    queue.kv_clear(keys=["b_1_0"], partition_id=PARTITION)
    with pytest.raises(FieldError, match="returned 4 of 5 rows"):
        read_batch(meta, ["reward"])


def test_a_column_of_another_length_is_an_error(queue: FakeQueue) -> None:
    queue.rows["b_0_0"]["response_mask"] = torch.ones(5)
    with pytest.raises(FieldError, match="'response_mask' is not as long as the responses"):
        read_batch(queue.meta(padding=["pad9_0_0"]), ["response_mask"])


def test_removed_rows_leave_the_batch_and_the_queue(queue: FakeQueue) -> None:
    meta = queue.meta(fields=["responses"])
    meta.extra_info = {"temperature": 0.5}
    kept = remove_rows(meta, torch.tensor([True, False, True, True, False, True]))
    assert kept.keys == ["b_0_0", "a_0_0", "a_0_1", "pad9_0_0"]
    assert list(queue.rows) == kept.keys
    assert [tag["response_len"] for tag in kept.tags] == [3, 2, 4, 1]
    assert kept.fields == ["responses"]
    assert kept.extra_info == {"temperature": 0.5}


def test_nothing_is_removed_where_all_is_kept(queue: FakeQueue) -> None:
    meta = queue.meta()
    assert remove_rows(meta, torch.ones(6, dtype=torch.bool)) is meta
    assert len(queue.rows) == 6
