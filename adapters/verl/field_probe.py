"""Tries whether a worker reads exactly the columns that a batch lists in `KVBatchMeta.fields`.

verl's own functions run, with a stand-in for the TransferQueue client, so neither Ray nor a queue is needed. They run
as copies with globals of their own: nothing of verl is changed, not even for a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import FunctionType, SimpleNamespace
from typing import Any

_LISTED, _OTHER = "listed", "other"
_ROWS = 2


class CannotProbe(Exception):
    """verl's functions could not be run with the stand-in. The cause is what happened."""


class _Client:
    """Knows two columns, and notes for which ones it is asked."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    async def async_kv_retrieve_meta(self, *args: Any, **kwargs: Any) -> Any:
        from transfer_queue.metadata import BatchMeta

        return BatchMeta(
            global_indexes=list(range(_ROWS)),
            partition_ids=["train"] * _ROWS,
            field_schema={_LISTED: {}, _OTHER: {}},
        )

    async def async_get_data(self, meta: Any) -> Any:
        from tensordict import TensorDict

        self.asked |= set(meta.field_names)
        return TensorDict({}, batch_size=meta.size)


def columns_read() -> str | None:
    """How a worker's read differs from what we rely on, or None if it does not.

    Raises:
        CannotProbe: It could not be tried.
    """
    try:
        some, everything = _read([_LISTED]), _read(None)
    except Exception as error:
        raise CannotProbe(f"{type(error).__name__}: {error}") from error
    if some != {_LISTED}:
        what = "others too" if _LISTED in some else "not even those"
        return f"a worker should read the columns that KVBatchMeta.fields lists and no others, but it reads {what}"
    if everything != {_LISTED, _OTHER}:
        return "a worker should read all columns if KVBatchMeta.fields is None, but it does not"
    return None


def _read(fields: list[str] | None) -> set[str]:
    """Columns that the workers ask for, after verl's dispatch has cut the batch into one piece for each of them."""
    from transfer_queue.metadata import KVBatchMeta
    from verl.utils import transferqueue_utils as verls

    client = _Client()
    queue = SimpleNamespace(get_client=lambda: client)
    translate = _copy(verls.async_kv_batch_meta2batch_meta, tq=queue, TQ_INITIALIZED=True)
    read = _copy(verls._async_meta_to_realdata, tq=queue, async_kv_batch_meta2batch_meta=translate)
    batch = KVBatchMeta(keys=["a", "b"], tags=[{}, {}], partition_id="train", fields=fields)
    for piece in _result(translate(batch)).chunk(chunks=_ROWS):
        _result(read(piece))
    return client.asked


def _copy(function: Callable[..., Any], **replaced: Any) -> Callable[..., Any]:
    assert isinstance(function, FunctionType)
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **replaced},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _result(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing, without an event loop: one may be running already."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    coroutine.close()
    raise RuntimeError("it waits for something other than TransferQueue")
