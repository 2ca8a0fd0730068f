"""One folder with the state of a run: tensors in a safetensors file, everything else in `state.json`.

`state.json` names the tensor file and holds digests of both, so reading notices every change. Writing puts a new tensor
file beside the old one and then replaces `state.json`, so whenever the writer dies, the folder holds the old state or
the new one. One process at a time may use a folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
import uuid
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from dataflex_events.errors import DataflexError

FORMAT = "dataflex-verl state"
SCHEMA = 1
MANIFEST = "state.json"
MAX_DEPTH = 100  # json itself gives up on deep nesting, at a depth that depends on the version of Python

_OURS = re.compile(r"tensors-[0-9a-f]{16}-[0-9a-f]{8}\.safetensors|state-[0-9a-f]{8}\.json\.tmp")
_START_WITHOUT = "restore the folder from a copy, or delete it to start without a state"

# Every version of safetensors has these; tensors of other types are stored as their bytes.
_NATIVE = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_NATIVE |= {torch.bfloat16, torch.float16, torch.float32, torch.float64}
_NUMPY = {"b": "bool", "i": "int", "u": "int", "f": "float", "U": "str"}


class StateError(DataflexError):
    """A state cannot be written or read. The message names the folder or file, the reason and what to do."""


class MissingState(StateError):
    """There is no state in the folder."""


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """Write a state in place of the one that the folder holds, all of it or nothing.

    Args:
        folder: Is made where it does not exist. Files of other names than a state has are left alone.
        state: Nested dicts with string keys, lists and tuples, of None, bool, int, float, str and dense tensors. It is
            not changed.

    Raises:
        StateError: Something in the state is of another type, or the operating system refuses to write. The folder
            holds what it held before, unless the message says otherwise.
    """
    packer = _Packer(folder)
    if not isinstance(state, Mapping):
        packer.refuse(state, "state")
    content = packer.pack(state, "state", 0)
    data = save(packer.tensors)
    sha, token = hashlib.sha256(data).hexdigest(), uuid.uuid4().hex[:8]
    tensors, temporary = folder / f"tensors-{sha[:16]}-{token}.safetensors", folder / f"state-{token}.json.tmp"
    manifest = {
        "format": FORMAT,
        "schema": SCHEMA,
        "written_by": version("dataflex-verl"),
        "tensors": {"file": tensors.name, "bytes": len(data), "sha256": sha},
        "state": content,
    }
    text = _dump({"digest": _digest(manifest)} | manifest)
    _put(folder, {tensors: data, temporary: text})
    try:
        os.replace(temporary, folder / MANIFEST)
        _sync(folder)
    except OSError as error:
        raise StateError(f"{folder}: this may hold the old state or the new one: {error}. Write it again.") from error
    with suppress(OSError):  # the state is written; the next write tries again
        _remove(*(path for path in folder.iterdir() if _OURS.fullmatch(path.name) and path != tensors))


def read_state(folder: Path) -> dict[str, Any]:
    """Read what `write_state` wrote: equal to the last bit, with lists for tuples and all tensors on the CPU.

    Raises:
        MissingState: The folder does not exist, or holds no state.
        StateError: What it holds was written by something else or by another version, or is not complete and unchanged.
    """
    manifest = _manifest(folder)
    path = folder / manifest["tensors"]["file"]
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise StateError(f"{path} is missing, and {MANIFEST} needs it: {_START_WITHOUT}.") from error
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error}. Put that right and read again.") from error
    size = manifest["tensors"]["bytes"]
    if len(data) < size:
        raise StateError(f"{path} is truncated: it has {len(data)} of {size} bytes; {_START_WITHOUT}.")
    if hashlib.sha256(data).hexdigest() != manifest["tensors"]["sha256"]:
        raise StateError(f"{path} was changed after it was written: {_START_WITHOUT}.")
    try:
        unpacked: dict[str, Any] = _unpack(manifest["state"], load(data))
    except AttributeError as error:
        raise StateError(
            f"{path} has a type of tensor that torch {torch.__version__} lacks: {error}. Upgrade torch."
        ) from error
    return unpacked


class _Packer:
    """Turns a state into JSON, and puts its tensors aside. `$` starts a tag; keys that start with one get a second."""

    def __init__(self, folder: Path) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._folder = folder
        self._storages: set[int] = set()

    def pack(self, value: Any, where: str, depth: int) -> Any:
        kind = type(value)  # a subclass (an enum, a numpy float) would come back as something else
        if value is None or kind is bool or kind is str:
            return value
        if kind is int:  # json has a limit of 4300 digits, hexadecimal has none
            return value if value.bit_length() < 64 else {"$int": hex(value)}
        if kind is float:  # JSON has no word for these, and only the bits tell one NaN from another
            return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
        if isinstance(value, Tensor):
            return self._tensor(value, where)
        if depth >= MAX_DEPTH:
            self._fail(where, f"is nested more than {MAX_DEPTH} deep, or contains itself: make the state flatter")
        if isinstance(value, Mapping):
            return {
                self._key(key, where): self.pack(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.pack(item, f"{where}[{at}]", depth + 1) for at, item in enumerate(value)]
        return self.refuse(value, where)

    def _key(self, key: Any, where: str) -> str:
        if type(key) is not str:
            self._fail(where, f"has the key {key!r} of type {_name(key)}: make it a str")
        return f"${key}" if key.startswith("$") else key

    def _tensor(self, value: Tensor, where: str) -> dict[str, Any]:
        dense = value.layout == torch.strided and not (value.is_quantized or value.is_nested or value.is_meta)
        if type(value) not in (Tensor, torch.nn.Parameter) or not dense:
            self._fail(where, f"is a {_name(value)} that is not an ordinary dense tensor: make it one")
        try:
            plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
            stored = plain if plain.dtype in _NATIVE else plain.flatten().view(torch.uint8)
        except RuntimeError as error:
            self._fail(where, f"is a tensor of {value.dtype} that torch cannot copy ({error}): convert it")
        storage = stored.untyped_storage().data_ptr()
        name = str(len(self.tensors))
        self.tensors[name] = stored.clone() if storage in self._storages else stored  # safetensors refuses to share
        self._storages.add(storage)
        return {"$tensor": name, "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}

    def refuse(self, value: Any, where: str) -> NoReturn:
        if isinstance(value, np.ndarray):
            advice = "make it a tensor with torch.as_tensor(...)"
        elif isinstance(value, np.generic) and value.dtype.kind in _NUMPY:
            advice = f"convert it with {_NUMPY[value.dtype.kind]}(...)"
        elif base := next((base for base in (int, float, str) if isinstance(value, base)), None):
            advice = f"convert it with {base.__name__}(...)"
        else:
            advice = "a state is made of dict, list, tuple, None, bool, int, float, str and torch.Tensor"
        self._fail(where, f"is of type {_name(value)}: {advice}")

    def _fail(self, where: str, reason: str) -> NoReturn:
        raise StateError(f"{self._folder}: nothing was written, because {where} {reason}.")


def _name(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "$int" in value:
        return int(value["$int"], 16)
    if "$float" in value:
        return struct.unpack(">d", bytes.fromhex(value["$float"]))[0]
    if "$tensor" in value:
        return tensors[value["$tensor"]].view(getattr(torch, value["dtype"])).reshape(value["shape"])
    return {key.removeprefix("$"): _unpack(item, tensors) for key, item in value.items()}


def _dump(content: Mapping[str, Any]) -> bytes:
    # Not as ASCII: two escaped lone surrogates would come back as one character.
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(_dump(manifest)).hexdigest()


def _put(folder: Path, files: Mapping[Path, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in files.items():
            with open(path, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        _sync(folder)
    except OSError as error:
        _remove(*files)  # where the disk is full, the remains of this attempt would stand in the way of the next
        raise StateError(
            f"{folder}: the state cannot be written: {error}. The folder holds what it held before; put that right."
        ) from error


def _sync(folder: Path) -> None:
    """Make names of files survive a power failure, as `os.fsync` of a file does for its content."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(*paths: Path) -> None:
    for path in paths:
        with suppress(OSError):
            path.unlink()


def _manifest(folder: Path) -> dict[str, Any]:
    """Read `state.json` and check it."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        reason = f"it has no {MANIFEST}" if folder.is_dir() else "it does not exist"
        raise MissingState(
            f"{folder} holds no state: {reason}. Name another folder, or start without a state."
        ) from error
    except OSError as error:
        raise StateError(f"{path} cannot be read: {error}. Put that right and read again.") from error
    except (ValueError, RecursionError) as error:
        raise StateError(f"{path} is truncated, or was never a state: it is not JSON; {_START_WITHOUT}.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise StateError(f"{path} was not written by dataflex-verl: name another folder.")
    schema, writer = manifest.get("schema"), f"dataflex-verl {manifest.get('written_by')}"
    if type(schema) is int and schema > SCHEMA:
        raise StateError(
            f"{path} was written by {writer} with schema {schema}; this version reads {SCHEMA}: upgrade dataflex-verl."
        )
    if type(schema) is not int or schema != SCHEMA:
        raise StateError(
            f"{path} was written by {writer} with schema {schema!r}, which this version does not know: "
            f"it reads {SCHEMA}. Install the version that wrote it."
        )
    digest = manifest.pop("digest", None)
    if digest != _digest(manifest):
        raise StateError(f"{path} was changed after it was written: {_START_WITHOUT}.")
    return manifest
