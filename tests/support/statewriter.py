"""A process that writes states until it is killed."""

import os
import sys
from itertools import count
from pathlib import Path

from statekit import in_place, numbered

from dataflex_events.state import write_state

SIZE = 300_000  # 2.4 MB


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


if __name__ == "__main__":
    serve_writers()
