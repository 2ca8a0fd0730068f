"""What the tests of states on disk share: states of all kinds, and looks into the folder."""

import json
import math
import shutil
import struct
import time

import torch
from hypothesis import strategies as st

from dataflex_events.state import read_state, write_state

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


def numbered(number, size=16):
    return {"number": number, "tensor": torch.full((size,), number)}


def number_of(state):
    """The number of a state that is all of one piece."""
    assert (state["tensor"] == state["number"]).all(), f"{state['number']} with tensors of {state['tensor'].unique()}"
    return state["number"]


def in_place(folder, state):
    """How not to do it: the new files over the old ones, one after the other."""
    other = folder.with_name("other")
    write_state(other, state)
    for path in folder.iterdir():
        path.unlink()
    time.sleep(0.05)  # a slow disk
    for path in other.iterdir():
        shutil.copy(path, folder)
