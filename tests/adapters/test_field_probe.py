"""Which columns a worker reads is tried with verl's own functions, and a change in them is noticed."""

from __future__ import annotations

from typing import Any

import pytest
import transfer_queue as tq
from verl.utils import transferqueue_utils as verls

from dataflex_events import ContractError
from dataflex_events.adapters.verl import contract
from dataflex_events.adapters.verl.field_probe import CannotProbe, columns_read

pytestmark = pytest.mark.verl


async def reads_everything(meta: Any) -> Any:
    """As verl's own, without the selection."""
    return await tq.get_client().async_kv_retrieve_meta(keys=meta.keys, partition_id=meta.partition_id, create=False)


async def reads_nothing(meta: Any) -> Any:
    return (await reads_everything_of(meta)).select_fields([])


async def reads_only_the_first(meta: Any) -> Any:
    return (await reads_everything_of(meta)).select_fields(["listed"])


async def reads_everything_of(meta: Any) -> Any:
    from transfer_queue.metadata import BatchMeta

    columns: dict[str, Any] = {"listed": {}, "other": {}}
    return BatchMeta(global_indexes=[0, 1], partition_ids=["train"] * 2, field_schema=columns)


def test_verl_reads_what_is_listed_and_is_left_as_it_was() -> None:
    before = dict(vars(verls))
    assert columns_read() is None
    assert {name: vars(verls)[name] for name in before} == before


@pytest.mark.parametrize(
    ("function", "finding"),
    [
        (
            reads_everything,
            "a worker should read the columns that KVBatchMeta.fields lists and no others, but it reads others too",
        ),
        (
            reads_nothing,
            "a worker should read the columns that KVBatchMeta.fields lists and no others, but it reads not even those",
        ),
        (reads_only_the_first, "a worker should read all columns if KVBatchMeta.fields is None, but it does not"),
    ],
)
def test_another_meaning_of_fields_is_refused(function: Any, finding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verls, "async_kv_batch_meta2batch_meta", function)
    assert columns_read() == finding
    with pytest.raises(ContractError) as refused:
        contract.require()
    assert refused.value.findings == (finding,)


def test_what_cannot_be_tried_is_left_to_the_verification_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asks_otherwise(meta: Any) -> Any:
        return await tq.get_client().another_method(meta)

    monkeypatch.setattr(verls, "async_kv_batch_meta2batch_meta", asks_otherwise)
    with pytest.raises(CannotProbe, match="AttributeError: '_Client' object has no attribute 'another_method'"):
        columns_read()
    contract.require()


def test_it_works_while_an_event_loop_is_running() -> None:
    import asyncio

    async def inside() -> str | None:
        return columns_read()

    assert asyncio.run(inside()) is None
