"""The state of a run on disk: what comes back, what is refused, and what is left when the writer dies."""

import collections
import enum
import errno
import hashlib
import io
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
import types
from importlib.metadata import version
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dataflex_events import state as module
from dataflex_events.errors import DataflexError
from dataflex_events.state import MAX_DEPTH, MissingState, StateError, read_state, write_state

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.bfloat16, torch.float16, torch.float32, torch.float64]  # those that safetensors always had
DTYPES += [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]
DTYPES += [torch.complex32, torch.complex64, torch.complex128]
KEYS = st.text(st.characters(exclude_categories=()) | st.sampled_from("$/[]'"), max_size=4)  # surrogates included
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**200), 2**200)
    | st.floats()
    | st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack(">d", bits.to_bytes(8, "big"))[0])
    | KEYS
)


@st.composite
def tensors(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = math.prod(shape) * dtype.itemsize
    data = draw(st.lists(st.integers(0, 1 if dtype == torch.bool else 255), min_size=count, max_size=count))
    tensor = torch.tensor(data, dtype=torch.uint8).view(dtype).reshape(shape)
    if draw(st.booleans()) and dtype.itemsize > 1:
        tensor = tensor.transpose(0, -1) if tensor.ndim > 1 else tensor
    return tensor


def nested(leaves):
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
    )


STATES = st.dictionaries(KEYS, nested(LEAVES | tensors()), max_size=4)


def bits(value):
    """The value as something that is equal only where type, order of keys and every bit are."""
    if isinstance(value, dict):
        return ["dict", *((key, bits(item)) for key, item in value.items())]
    if isinstance(value, list):
        return ["list", *map(bits, value)]
    if isinstance(value, torch.Tensor):
        raw = value.contiguous().flatten().view(torch.uint8)
        return ["tensor", type(value), value.dtype, tuple(value.shape), value.device.type, bytes(raw.tolist())]
    if isinstance(value, float):
        return ["float", struct.pack(">d", value)]
    return [type(value).__name__, value]


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def manifest_of(folder):
    return json.loads((folder / "state.json").read_bytes())


def tensors_of(folder):
    (path,) = folder.glob("*.safetensors")
    return path


def named_tensors(folder):
    return manifest_of(folder)["tensors"]["file"]


def returned(folder, state):
    write_state(folder, state)
    return read_state(folder)


# ---- What is written comes back.


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@given(state=STATES)
def test_a_state_comes_back_to_the_last_bit(tmp_path_factory, state):
    before = bits(state)
    assert bits(returned(tmp_path_factory.mktemp("state"), state)) == before
    assert bits(state) == before


@pytest.mark.parametrize(
    "value",
    [math.nan, -math.nan, math.inf, -math.inf, -0.0, 0.0, 5e-324, -2.2250738585072009e-308, 1.7976931348623157e308, 0.1]
    + [struct.unpack(">d", bytes.fromhex(raw))[0] for raw in ("7ff8000000000123", "fff4000000000001")],
    ids=lambda value: struct.pack(">d", value).hex(),
)
def test_floats(folder, value):
    assert struct.pack(">d", returned(folder, {"x": value})["x"]) == struct.pack(">d", value)


@pytest.mark.parametrize("value", [0, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**624 - 1, -(16**5000)], ids=hex)
def test_integers_of_any_size(folder, value):
    assert bits(returned(folder, {"x": value})) == bits({"x": value})


def test_what_looks_like_the_format_itself_is_data(folder):
    state = {"$int": "ff", "$": {"$tensor": "0"}, "$$float": [{"$float": "7ff8000000000000"}], "x": {"$$": 1, "": 2}}
    assert returned(folder, state) == state


@pytest.mark.parametrize("text", ["\ud83d\ude00", "\ud800", "😀", "\x00\u2028\n", ""], ids=ascii)
def test_any_string_even_one_that_is_not_unicode(folder, text):
    assert returned(folder, {text: text}) == {text: text}


def test_sequences_and_mappings_become_lists_and_dicts(folder):
    point = collections.namedtuple("Point", "x y")
    state = {
        "t": (1, (2, 3)),
        "n": point(1, 2),
        "o": collections.OrderedDict(b=1, a=2),
        "m": types.MappingProxyType({}),
    }
    got = returned(folder, types.MappingProxyType(state))
    assert bits(got) == bits({"t": [1, [2, 3]], "n": [1, 2], "o": {"b": 1, "a": 2}, "m": {}})


def test_random_states_of_the_libraries_go_on_where_they_were(folder):
    rng, torch_rng = random.Random(1), torch.Generator().manual_seed(1)
    state = {
        "python": rng.getstate(),
        "torch": torch_rng.get_state(),
        "numpy": np.random.default_rng(1).bit_generator.state,
    }
    got = returned(folder, state)
    kind, words, gauss = got["python"]
    other, torch_other, numpy_other = random.Random(2), torch.Generator(), np.random.default_rng(2)
    other.setstate((kind, tuple(words), gauss))
    torch_other.set_state(got["torch"])
    numpy_other.bit_generator.state = got["numpy"]
    assert other.random() == rng.random()
    assert torch.equal(torch.rand(3, generator=torch_other), torch.rand(3, generator=torch_rng))
    assert numpy_other.random() == np.random.default_rng(1).random()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3)], ids=str)
def test_tensors_of_every_type_and_shape(folder, dtype, shape):
    raw = torch.arange(math.prod(shape) * dtype.itemsize, dtype=torch.uint8)
    tensor = (raw % 2 if dtype == torch.bool else raw).view(dtype).reshape(shape)
    assert bits(returned(folder, {"x": tensor})) == bits({"x": tensor})


def test_tensors_that_are_views(folder):
    base = torch.arange(12, dtype=torch.float32)
    imaginary = torch.tensor([1 + 2j, 3 - 4j]).conj()
    state = {
        "whole": base,
        "again": base,
        "part": base[2:5],
        "none of it": base[:0],
        "columns": base.reshape(3, 4).t(),
        "every other": base[::2],
        "broadcast": base[:1].expand(4),
        "conjugate": imaginary,
        "negated": imaginary.imag,
        "bytes": base.view(torch.uint8)[:4],
    }
    got = returned(folder, state)
    assert {name: value.tolist() for name, value in got.items()} == {
        "whole": [float(number) for number in range(12)],
        "again": [float(number) for number in range(12)],
        "part": [2.0, 3.0, 4.0],
        "none of it": [],
        "columns": [[0.0, 4.0, 8.0], [1.0, 5.0, 9.0], [2.0, 6.0, 10.0], [3.0, 7.0, 11.0]],
        "every other": [0.0, 2.0, 4.0, 6.0, 8.0, 10.0],
        "broadcast": [0.0, 0.0, 0.0, 0.0],
        "conjugate": [1 - 2j, 3 + 4j],
        "negated": [-2.0, 4.0],
        "bytes": [0, 0, 0, 0],
    }
    got["whole"].zero_()
    assert got["again"][3] == got["part"][1] == 3.0  # nothing that came back shares memory


def test_a_part_of_a_large_tensor_is_not_written_as_all_of_it(folder):
    write_state(folder, {"x": torch.zeros(1_000_000)[:2]})
    assert tensors_of(folder).stat().st_size < 1000


def test_a_parameter_comes_back_as_a_tensor(folder):
    got = returned(folder, {"x": torch.nn.Parameter(torch.tensor([1.5]))})["x"]
    assert type(got) is torch.Tensor
    assert not got.requires_grad
    assert got.tolist() == [1.5]


def test_the_manifest(folder):
    write_state(folder, {"step": 3, "x": torch.tensor([1.0, 2.0])})
    manifest, data = manifest_of(folder), tensors_of(folder).read_bytes()
    digest = manifest.pop("digest")
    assert manifest == {
        "format": "dataflex-verl state",
        "schema": 1,
        "written_by": version("dataflex-verl"),
        "tensors": {
            "file": tensors_of(folder).name,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        },
        "state": {"step": 3, "x": {"$tensor": "0", "dtype": "float32", "shape": [2]}},
    }
    assert manifest["tensors"]["sha256"][:16] in tensors_of(folder).name
    assert digest == hashlib.sha256(json.dumps(manifest, separators=(",", ":")).encode()).hexdigest()
    assert data.endswith(struct.pack("<2f", 1.0, 2.0))


# ---- What is refused, before anything is written.


class Colour(enum.IntEnum):
    RED = 1


LOOP = []
LOOP.append(LOOP)
REFUSED = {
    "set": ({"a": [0, {1, 2}]}, "state['a'][1] is of type set"),
    "bytes": ({"a": {"b": b""}}, "state['a']['b'] is of type bytes"),
    "object": ({"a": random.Random()}, "state['a'] is of type random.Random"),
    "complex": ({"a": 1j}, "state['a'] is of type complex"),
    "array": ({"a": np.zeros(2)}, "state['a'] is of type numpy.ndarray: make it a tensor with torch.as_tensor(...)"),
    "numpy int": ({"a": (np.int64(1),)}, "state['a'][0] is of type numpy.int64: convert it with int(...)"),
    "numpy float": ({"a": np.float64(1)}, "state['a'] is of type numpy.float64: convert it with float(...)"),
    "numpy float32": ({"a": np.float32(1)}, "state['a'] is of type numpy.float32: convert it with float(...)"),
    "numpy bool": ({"a": np.True_}, "state['a'] is of type numpy.bool"),
    "numpy str": ({"a": np.str_("a")}, "state['a'] is of type numpy.str_: convert it with str(...)"),
    "numpy date": ({"a": np.datetime64("2020")}, "state['a'] is of type numpy.datetime64: a state is made of"),
    "enum": ({"a": Colour.RED}, "Colour: convert it with int(...)"),
    "int key": ({"a": {"b": {3: 0}}}, "state['a']['b'] has the key 3 of type int"),
    "None key": ({None: 0}, "state has the key None of type NoneType"),
    "numpy key": ({np.str_("a"): 0}, "of type numpy.str_: make it a str"),
    "no mapping": ([1], "state is of type list"),
    "loop": ({"a": LOOP}, f"is nested more than {MAX_DEPTH} deep, or contains itself"),
    "sparse": (
        {"a": [torch.eye(2).to_sparse()]},
        "state['a'][0] is a torch.Tensor that is not an ordinary dense tensor",
    ),
    "meta": ({"a": torch.empty(2, device="meta")}, "state['a'] is a torch.Tensor that is not an ordinary dense tensor"),
    "dtype": (
        {"a": torch.zeros(2, 3, dtype=torch.uint8).view(torch.uint4).t()},
        "state['a'] is a tensor of torch.uint4",
    ),
}


class Odd(torch.Tensor):
    pass


REFUSED["subclass"] = ({"a": torch.zeros(2).as_subclass(Odd)}, "Odd that is not an ordinary dense tensor")


@pytest.mark.parametrize(("state", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_stored_is_refused_with_its_path(folder, state, message):
    with pytest.raises(StateError) as caught:
        write_state(folder, state)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{folder}: nothing was written, because ")
    assert not folder.exists()


def test_a_refused_state_leaves_the_old_one(folder):
    write_state(folder, {"n": 1, "x": torch.ones(2)})
    before = names(folder)
    with pytest.raises(StateError):
        write_state(folder, {"n": 2, "x": torch.zeros(2), "bad": object()})
    assert names(folder) == before
    assert read_state(folder)["n"] == 1


def test_as_deep_as_allowed(folder):
    def chain(depth):
        state = {"x": 1}
        for _ in range(depth - 1):
            state = {"x": [state]} if depth % 2 else {"x": state}
        return state

    assert returned(folder, chain(MAX_DEPTH)) == chain(MAX_DEPTH)
    with pytest.raises(StateError, match="make the state flatter"):
        write_state(folder, chain(MAX_DEPTH + 2))


# ---- What cannot be read.


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


@pytest.mark.parametrize("content", [b"", b"hello", b"\xff\xfe\xfd", b"[" * 100_000, b'{"a":' + b"1" * 5000 + b"}"])
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


# ---- One state after the other.


def numbered(number, size=16):
    return {"number": number, "tensor": torch.full((size,), number)}


def number_of(state):
    """The number of a state that is all of one piece."""
    assert (state["tensor"] == state["number"]).all(), f"{state['number']} with tensors of {state['tensor'].unique()}"
    return state["number"]


def test_a_new_state_replaces_the_old_one(folder):
    write_state(folder, {"old": 1, "x": torch.zeros(2), "y": torch.zeros(3)})
    write_state(folder, {"new": torch.ones(2)})
    got = read_state(folder)
    assert list(got) == ["new"]
    assert got["new"].tolist() == [1.0, 1.0]
    assert len(names(folder)) == 2


def test_the_same_state_again_does_not_touch_the_file_that_is_in_use(folder):
    write_state(folder, numbered(1))
    first = tensors_of(folder).name
    write_state(folder, numbered(1))
    assert tensors_of(folder).name != first


def test_remains_of_killed_writers_are_removed_and_other_files_are_not(folder):
    ours = ["tensors-0123456789abcdef-01234567.safetensors", "state-89abcdef.json.tmp"]
    others = ["model.safetensors", "tensors-mine.safetensors", "state.json.tmp", "a-state-89abcdef.json.tmp.bak"]
    folder.mkdir()
    for name in ours + others:
        (folder / name).write_text("")
    write_state(folder, numbered(1))
    assert names(folder) == sorted([*others, "state.json", named_tensors(folder)])


def test_remains_that_cannot_be_removed_do_not_matter(folder):
    stubborn = folder / "tensors-0123456789abcdef-01234567.safetensors"
    stubborn.mkdir(parents=True)
    write_state(folder, numbered(1))
    assert number_of(read_state(folder)) == 1
    assert stubborn.exists()


def test_a_folder_that_cannot_be_listed_does_not_matter_once_the_state_is_written(folder, monkeypatch):
    monkeypatch.setattr(Path, "iterdir", lambda self: os.listdir(self / "nowhere"))
    write_state(folder, numbered(1))
    assert number_of(read_state(folder)) == 1


def test_content_is_on_the_disk_before_its_name_and_names_before_the_old_file_goes(folder, monkeypatch):
    """What a kill cannot show and a power failure would."""
    write_state(folder, numbered(1))
    old, log = tensors_of(folder), []
    fsync, replace, unlink = os.fsync, os.replace, os.unlink

    def synced(handle):
        log.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{handle}')).split('-')[0]}")
        fsync(handle)

    def replaced(source, target):
        log.append("replace")
        replace(source, target)

    def unlinked(path, **options):
        log.append("remove")
        unlink(path, **options)

    for name, double in {"fsync": synced, "replace": replaced, "unlink": unlinked}.items():
        monkeypatch.setattr(os, name, double)
    write_state(folder, numbered(2))
    places = ["sync tensors", "sync state", "sync state", "replace", "sync state", "remove"]
    assert log == places  # the folder and the temporary file are both called state
    assert not old.exists()


# ---- The writer dies.


def in_place(folder, state):
    """How not to do it: the new files over the old ones, one after the other."""
    other = folder.with_name("other")
    write_state(other, state)
    for path in folder.iterdir():
        path.unlink()
    time.sleep(0.05)  # a slow disk
    for path in other.iterdir():
        shutil.copy(path, folder)


class Killed(BaseException):
    """Passes through everything that handles errors, as SIGKILL does."""


def killed_before_line(number, file, write, *args):
    """True if the writer was killed before it ran its line of this number (from 0, all lines of the file counted)."""
    left = number

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code.co_filename != file:
            return None
        left -= event == "line"
        if left < 0:
            raise Killed
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        write(*args)
    except Killed:
        return True
    finally:
        sys.settrace(outer)
    return False


def check_every_line(write, file, template, tmp_path, old):
    """Kill the writer before each of its lines in turn, on a copy of the template: the old state is left, or the new.

    Returns:
        How often it was the old one, and how often the new one.
    """
    numbers = []
    for line in count():
        folder = tmp_path / f"killed-{line}" / "state"
        if template.exists():
            shutil.copytree(template, folder)
        if not killed_before_line(line, file, write, folder, numbered(2)):
            break
        try:
            numbers.append(number_of(read_state(folder)))
        except MissingState:
            numbers.append(None)
        write_state(folder, numbered(3))
        assert number_of(read_state(folder)) == 3
        assert names(folder) == ["state.json", named_tensors(folder)]
    switch = numbers.count(old)
    assert numbers == [old] * switch + [2] * (len(numbers) - switch)
    return switch, len(numbers) - switch


# A file that is open when the writer dies is closed by nobody, which Python remarks on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("old", [1, None])
def test_a_writer_that_dies_between_any_two_lines_leaves_the_old_state_or_the_new(folder, tmp_path, old):
    if old is not None:
        write_state(folder, numbered(old))
    before, after = check_every_line(write_state, module.__file__, folder, tmp_path, old)
    assert before > 40  # it was killed while it packed and wrote
    assert after > 3  # and while it cleaned up


def test_that_check_can_fail(folder, tmp_path):
    write_state(folder, numbered(1))
    with pytest.raises((AssertionError, StateError)):
        check_every_line(in_place, __file__, folder, tmp_path, 1)


def half_written(number, error):
    """A double of `open`: the file of this number (from 0) takes half of what is written to it and raises."""

    class Half(io.BufferedWriter):
        def write(self, data):
            super().write(data[: len(data) // 2])
            raise error

    calls = count()
    return lambda path, mode: Half(io.FileIO(path, "x")) if next(calls) == number else open(path, mode)


@pytest.mark.parametrize("number", [0, 1], ids=["tensors", "json"])
def test_a_writer_that_dies_in_the_middle_of_a_file_leaves_the_old_state(folder, monkeypatch, number):
    write_state(folder, numbered(1))
    monkeypatch.setattr(module, "open", half_written(number, Killed()), raising=False)
    with pytest.raises(Killed):
        write_state(folder, numbered(2))
    monkeypatch.undo()
    assert len(names(folder)) == 3 + number  # what it had begun is still there
    assert number_of(read_state(folder)) == 1
    write_state(folder, numbered(3))
    assert names(folder) == ["state.json", named_tensors(folder)]


@pytest.mark.parametrize("number", [0, 1], ids=["tensors", "json"])
def test_a_full_disk_leaves_the_old_state_and_no_remains(folder, monkeypatch, number):
    write_state(folder, numbered(1))
    before = names(folder)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(module, "open", half_written(number, full), raising=False)
    with pytest.raises(StateError, match=r"cannot be written: .*No space left on device") as caught:
        write_state(folder, numbered(2))
    assert str(folder) in str(caught.value)
    assert caught.value.__cause__ is full
    assert names(folder) == before
    assert number_of(read_state(folder)) == 1


@pytest.mark.parametrize(
    ("function", "number", "left"),
    [("fsync", 0, 1), ("fsync", 1, 1), ("fsync", 2, 1), ("replace", 0, 1), ("fsync", 3, 2)],
)
def test_a_call_that_fails_leaves_the_old_state_or_the_new(folder, monkeypatch, function, number, left):
    write_state(folder, numbered(1))
    calls, real = count(), getattr(os, function)

    def double(*args):
        if next(calls) == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(*args)

    monkeypatch.setattr(os, function, double)
    with pytest.raises(StateError, match="Input/output error") as caught:
        write_state(folder, numbered(2))
    monkeypatch.undo()
    assert str(folder) in str(caught.value)
    assert number_of(read_state(folder)) == left
    write_state(folder, numbered(3))
    assert names(folder) == ["state.json", named_tensors(folder)]


# ---- The writer is killed.

SIZE = 500_000  # 4 MB


def serve_writers():
    """Fork a writer for every line `how number folder` of stdin: torch is imported once, and not in every writer."""
    for line in sys.stdin:
        how, number, folder = line.rstrip("\n").split(" ", 2)
        child = os.fork()
        if child == 0:
            os.write(1, f"pid {os.getpid()}\n".encode())
            for current in count(int(number)):
                {"write_state": write_state, "in_place": in_place}[how](Path(folder), numbered(current, SIZE))
                os.write(1, f"done {current}\n".encode())
        os.waitpid(child, 0)
        os.write(1, b"dead 0\n")


@pytest.fixture(scope="module")
def writers():
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        yield server
        server.kill()


def kill_writers(writers, how, folder, kills):
    """Let a writer go on from the state in the folder and kill it at a random moment; again and again."""
    delays, number = random.Random(0), 0
    for _ in range(kills):
        print(how, number + 1, folder, file=writers.stdin, flush=True)
        said = [writers.stdout.readline().split() for _ in range(2)]
        assert [word for word, _ in said] == ["pid", "done"]  # it has written, and goes on to write
        time.sleep(delays.uniform(0.05, 0.4))
        os.kill(int(said[0][1]), signal.SIGKILL)
        while said[-1][0] != "dead":
            said.append(writers.stdout.readline().split())
        complete = int(said[-2][1])
        number = number_of(read_state(folder))
        assert complete <= number <= complete + 1
    return number


def test_a_killed_writer_leaves_one_whole_state_and_never_an_older_one(writers, folder):
    last = kill_writers(writers, "write_state", folder, kills=10)
    assert last >= 10
    write_state(folder, numbered(last + 1))
    assert names(folder) == ["state.json", named_tensors(folder)]


def test_that_check_can_fail_as_well(writers, folder):
    with pytest.raises((AssertionError, StateError)):
        kill_writers(writers, "in_place", folder, kills=50)


if __name__ == "__main__":
    serve_writers()
