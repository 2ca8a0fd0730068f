"""The state of a run on disk: one state after the other, and a writer that dies in between."""

import errno
import io
import os
import shutil
import sys
from itertools import count
from pathlib import Path

import pytest
import statekit
import torch
from statekit import in_place, named_tensors, names, number_of, numbered, tensors_of

from dataflex_events import state as module
from dataflex_events.state import MissingState, StateError, read_state, write_state


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


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
    others = ["model.safetensors", "tensors-mine.safetensors", "state.json.tmp", "state-89abcdef.json.tmp.bak"]
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
        check_every_line(in_place, statekit.__file__, folder, tmp_path, 1)


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
