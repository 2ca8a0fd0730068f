"""The state of a run on disk: what cannot be read, and why."""

import hashlib
import json
import math

import pytest
import torch
from statekit import manifest_of, tensors_of

from dataflex_events.errors import DataflexError
from dataflex_events.state import MissingState, StateError, read_state, write_state


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


def refused(folder, *parts, kind=StateError):
    with pytest.raises(StateError) as caught:
        read_state(folder)
    assert type(caught.value) is kind
    assert all(part in str(caught.value) for part in (str(folder), *parts)), str(caught.value)


@pytest.fixture
def written(folder):
    write_state(folder, {"step": 3, "text": "hello", "list": [1.5, None, True], "x": torch.arange(4)})
    return folder


def tamper(folder, *, seal=True, **changes):
    """Change the manifest, and with `seal` its digest, so that only the change itself can be found."""
    manifest = manifest_of(folder) | changes
    del manifest["digest"]
    digest = hashlib.sha256(json.dumps(manifest, separators=(",", ":")).encode()).hexdigest()
    (folder / "state.json").write_text(json.dumps({"digest": digest if seal else "0" * 64} | manifest))


def test_the_kinds_of_error():
    assert issubclass(StateError, DataflexError)
    assert issubclass(MissingState, StateError)


def test_no_folder(folder):
    refused(folder, "holds no state: it does not exist", kind=MissingState)


def test_no_state_in_the_folder(written):
    (written / "state.json").unlink()
    refused(written, "holds no state: it has no state.json", kind=MissingState)


def test_a_file_in_place_of_the_folder(folder):
    folder.write_text("")
    refused(folder, "cannot be read")
    with pytest.raises(StateError, match="cannot be written"):
        write_state(folder, {})
    assert folder.read_text() == ""


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"\xff\xfe\xfd", b"[" * 100_000, b"1" * 5000],
    ids=["empty", "text", "binary", "deep", "long number"],
)
def test_not_json(written, content):
    (written / "state.json").write_bytes(content)
    refused(written, "it is not JSON", "delete it")


@pytest.mark.parametrize("content", ["[]", "{}", "1", "null", '{"format": "other"}', '{"schema": 1}'])
def test_json_of_something_else(written, content):
    (written / "state.json").write_text(content)
    refused(written, "was not written by dataflex-verl", "name another folder")


def test_a_newer_schema(written):
    tamper(written, schema=2, written_by="7.8.9", seal=False)  # whatever its digest means
    refused(written, "written by dataflex-verl 7.8.9 with schema 2; this version reads 1: upgrade")


@pytest.mark.parametrize("schema", [0, -1, None, "1", 1.0, True])
def test_an_older_or_unknown_schema(written, schema):
    tamper(written, schema=schema, written_by="0.0.1")
    refused(written, f"written by dataflex-verl 0.0.1 with schema {schema!r}, which this version does not know")


def test_the_tampering_of_these_tests_is_not_found_for_another_reason(written):
    tamper(written, state={"step": 4})
    assert read_state(written) == {"step": 4}


@pytest.mark.parametrize(
    "change", [{"state": {"step": 4}}, {"written_by": "9"}, {"more": 1}, {"state": {"a": math.nan}}]
)
def test_changed_json(written, change):
    tamper(written, seal=False, **change)
    refused(written, "state.json was changed after it was written", "restore")


def test_json_without_a_digest(written):
    manifest = manifest_of(written)
    del manifest["digest"]
    (written / "state.json").write_text(json.dumps(manifest))
    refused(written, "state.json was changed after it was written")


def test_json_truncated_anywhere(written):
    whole = (written / "state.json").read_bytes()
    for length in range(len(whole)):
        (written / "state.json").write_bytes(whole[:length])
        refused(written, "state.json is truncated")
    (written / "state.json").write_bytes(whole)
    assert read_state(written)["step"] == 3


def test_json_changed_anywhere(written):
    whole = (written / "state.json").read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1
        (written / "state.json").write_bytes(changed)
        refused(written)


def test_json_laid_out_anew_is_the_same(written):
    (written / "state.json").write_text(json.dumps(manifest_of(written), indent=2))
    assert read_state(written)["list"] == [1.5, None, True]


def test_a_missing_tensor_file(written):
    path = tensors_of(written)
    path.unlink()
    refused(written, f"{path} is missing", "restore")


def test_a_tensor_file_that_cannot_be_read(written):
    path = tensors_of(written)
    path.unlink()
    path.mkdir()
    refused(written, f"{path} cannot be read")


def test_a_tensor_file_truncated_anywhere(written):
    path = tensors_of(written)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(written, f"{path} is truncated: it has {length} of {len(whole)} bytes")


def test_a_tensor_file_changed_anywhere(written):
    path = tensors_of(written)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        refused(written, f"{path} was changed")
    path.write_bytes(whole + b"\0")
    refused(written, f"{path} was changed")


def test_a_type_of_tensor_that_this_torch_does_not_have(written):
    tamper(written, state={"x": {"$tensor": "0", "dtype": "float3", "shape": [4]}})
    refused(written, "has a type of tensor that torch", torch.__version__, "float3")
