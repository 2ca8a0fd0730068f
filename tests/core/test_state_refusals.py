"""The state of a run on disk: what cannot be stored is refused before anything is written."""

import enum
import random

import numpy as np
import pytest
import torch
from statekit import names, returned

from dataflex_events.state import MAX_DEPTH, StateError, read_state, write_state


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


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


@pytest.mark.parametrize("wrap", [lambda inner: {"x": inner}, lambda inner: [inner]], ids=["dict", "list"])
def test_as_deep_as_allowed(folder, wrap):
    value = 1
    for _ in range(MAX_DEPTH - 1):
        value = wrap(value)
    assert returned(folder, {"x": value}) == {"x": value}
    with pytest.raises(StateError, match="make the state flatter"):
        write_state(folder, {"x": wrap(value)})
