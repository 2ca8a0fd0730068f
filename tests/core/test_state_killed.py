"""The state of a run on disk: a writer that is killed at any moment leaves one whole state."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import statewriter
from statekit import named_tensors, names, number_of, numbered

from dataflex_events.state import StateError, read_state, write_state


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


@pytest.fixture(scope="module")
def writers():
    with subprocess.Popen(
        [sys.executable, statewriter.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
