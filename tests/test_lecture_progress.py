"""Long computations of the lecture show how far they are, on a terminal and nowhere else."""

import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = """
from fastsim.lecture import toy_worlds
from fastsim.lecture.cluster_runs import Bench, Policy, documents
from fastsim.lecture.progress import counted
toy_worlds.across(toy_worlds.demonstration, range(2), 1)
Bench(1, None)(documents(1.0, 60.0), [Policy("turns", "round_robin")])
list(counted(range(3), "codes", 3))
"""


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_only(terminal):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (25, 100))
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=theirs if terminal else subprocess.PIPE,
        check=True,
    )
    os.close(theirs)
    if not terminal:
        assert done.stderr == b""
        return
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    for words in (b"demonstration: ", b"1 policies: ", b"codes: "):
        assert words in shown
