"""The C programs of `queueing_yardstick.c`, compiled on the spot, called on our random streams."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from fastsim.rng import stream

SOURCE = Path(__file__).with_name("queueing_yardstick.c")
COMMAND = ["gcc", "-O3", "-march=native", "-shared", "-fPIC"]
MISSING = "gcc is not installed, so there is no yardstick to compare with"
_BUCKETS = 2 + (70 << 9)

_POINTER, _LONG, _DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class Yardstick:
    """The compiled library.

    Parameters
    ----------
    folder : Path
        Where to put it.
    """

    def __init__(self, folder: Path) -> None:
        library = folder / "yardstick.so"
        subprocess.run([*COMMAND, str(SOURCE), "-o", str(library), "-lm"], check=True)
        self._library = ctypes.CDLL(str(library))

    def fullest(self, choices: int, bins: int, balls: int, seed: int) -> int:
        """Balls in the fullest bin."""
        routing = stream(seed, 0, "routing")
        function = self._library.one_choice if choices == 1 else self._library.two_choices
        function.restype = _LONG
        return function(_POINTER(routing.ctypes.data), _LONG(bins), _LONG(balls))

    def response_mean(self, name: str, servers: int, requests: int, utilisation: float, seed: int) -> float:
        """Mean time in system of FCFS servers from an empty start, all of it counted in a histogram."""
        states = [stream(seed, 0, key) for key in ("arrivals", "sizes", "routing")]
        if name == "least_work":
            del states[2]
        counts = np.zeros(_BUCKETS, np.int64)
        arguments: list[Any] = [_POINTER(state.ctypes.data) for state in states]
        arguments += [_LONG(servers), _LONG(requests), _DOUBLE(1.0 / (utilisation * servers))]
        if name.startswith("shortest"):
            arguments.append(_LONG(64 * servers + 100_000))  # departures to come, at most
        function = getattr(self._library, name)
        function.restype = _DOUBLE
        total = function(*arguments, _POINTER(counts.ctypes.data))
        assert counts.sum() == requests
        return total / requests


def installed() -> bool:
    """Whether there is a compiler."""
    return shutil.which(COMMAND[0]) is not None
