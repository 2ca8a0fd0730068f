"""The state of a run on disk: what is written comes back."""

import collections
import hashlib
import json
import math
import random
import struct
import types
from importlib.metadata import version

import numpy as np
import pytest
import torch
from hypothesis import given
from statekit import DTYPES, STATES, bits, manifest_of, returned, tensors_of

from dataflex_events.state import write_state


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


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
    json.loads((folder / "state.json").read_bytes(), parse_constant=pytest.fail)  # NaN and Infinity are not JSON


@pytest.mark.parametrize(
    "value",
    [0, -1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 2**624 - 1, -(16**5000)],
    ids=lambda value: f"{value.bit_length()} bits",
)
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
        "negated, one": imaginary[:1].imag,
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
        "negated, one": [-2.0],
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
