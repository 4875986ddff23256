"""Times that can be compared on a busy machine, and memory that can be believed."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

TURN_S = 0.05

# Largest resident size of the process so far, in MB; not ru_maxrss, which a child takes over from its parent.
PEAK_MB = """
def peak_mb():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1e3
"""


@dataclass
class Job:
    """Something to be timed.

    Parameters
    ----------
    run : callable
    rounds : int
        Turns it takes; slow jobs take fewer.
    warm_up : bool, optional
        Whether it takes another turn before these that does not count.
    share : callable, optional
        From the result and the wall-clock time, the share of that time that counts; by default all of it.
    """

    run: Callable[[], Any]
    rounds: int = 9
    warm_up: bool = True
    share: Callable[[Any, float], float] | None = None


@dataclass
class Best:
    """The shortest times of a job, in seconds, and the last result."""

    cpu_s: float = float("inf")
    wall_s: float = float("inf")
    result: Any = None


def interleaved(jobs: Mapping[str, Job]) -> dict[str, Best]:
    """Let jobs take turns, so that all meet the same load; a short job runs several times in its turn.

    CPU seconds (of all threads, the system's included) are what a clock shows on an idle machine. On a busy
    one, whose caches are shared, they have been up to 1.5 times as many; a clock shows several times as many.
    """
    best = {name: Best() for name in jobs}
    for turn in range(1 + max(job.rounds for job in jobs.values())):
        for name, job in jobs.items():
            if (turn > 0 or job.warm_up) and turn <= job.rounds:
                _take_turn(job, best[name], counts=turn > 0)
    return best


def _take_turn(job: Job, best: Best, *, counts: bool) -> None:
    gc.collect()
    gc.disable()
    begin = time.perf_counter()
    try:
        while True:
            best.result = None  # not two results at a time
            wall, cpu = time.perf_counter(), time.process_time()
            best.result = job.run()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if counts:
                share = job.share(best.result, wall) if job.share else 1.0
                best.cpu_s = min(best.cpu_s, share * cpu)
                best.wall_s = min(best.wall_s, share * wall)
            if time.perf_counter() - begin > TURN_S:
                return
    finally:
        gc.enable()


def in_fresh_process(code: str, cache: Path | None = None, **values: Any) -> dict[str, Any]:
    """Run code in a new interpreter, with the given names defined, and return what it prints as JSON last.

    Parameters
    ----------
    code : str
        May call `peak_mb`.
    cache : Path, optional
        Where it keeps kernels and traces, in place of the usual folder.
    """
    given = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    environment = dict(os.environ) | ({"FASTSIM_CACHE_DIR": str(cache)} if cache else {})
    done = subprocess.run(
        [sys.executable, "-c", PEAK_MB + given + code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
