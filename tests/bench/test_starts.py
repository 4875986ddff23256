"""What a user waits for before the first simulated request: compiling, importing, reading."""

from __future__ import annotations

import itertools
from pathlib import Path

from fastsim import _paths, simulate
from fastsim.workloads import load
from tests.bench import jobs
from tests.bench.measure import Job, in_fresh_process, interleaved
from tests.bench.tables import Target, judged, show

COMPILE_S, LATER_S = Target(30), Target(1)
READ_S = Target(0.12)

START = """
import json, time
begin = time.perf_counter()
from fastsim import simulate
from fastsim.workloads import load
from tests.bench import jobs
imported, cpu = time.perf_counter(), time.process_time()
workload = load(jobs.trace_path(jobs.REF), time_unit="ms")
for router in routers:
    for view in views:
        simulate(workload, jobs.cluster(), router, view=view)
done = {"import_s": imported - begin, "wall_s": time.perf_counter() - imported}
print(json.dumps(done | {"cpu_s": time.process_time() - cpu, "peak_mb": peak_mb()}))
"""
ALL = (
    "round_robin",
    "random",
    "least_loaded",
    "power_of_two",
    "least_work",
    "prefix_affinity",
    "affinity_threshold",
    "cache_aware_guard",
)
STARTS = {
    "one router": {"routers": ("cache_aware_guard",), "views": ("live",)},
    "eight routers, two views": {"routers": ALL, "views": ("live", "periodic(2.0)")},
}


def test_starts(once, tmp_path):
    """From imports done to ref simulated in fresh processes: without a cache, then with what that left."""
    once(lambda: starts(tmp_path))


def starts(folder: Path) -> None:
    rows = []
    for name, values in STARTS.items():
        cache = folder / name.replace(" ", "_")
        first = in_fresh_process(START, cache=cache, **values)
        later = [in_fresh_process(START, cache=cache, **values) for _ in range(5)]
        best = {key: min(run[key] for run in later) for key in first}
        first_row = {"start": "first", "simulating": name} | first
        rows.append(judged(first_row, first["cpu_s"], COMPILE_S))
        rows.append(judged({"start": "later", "simulating": name} | best, best["wall_s"], LATER_S))
    show("starts", "Starts (first: CPU seconds count, later: wall-clock seconds after the imports)", rows)


def test_prompts(once, tmp_path, monkeypatch):
    """Reading ref and compiling its prompts, which is what a first `simulate` takes longer than a second."""
    once(lambda: prompts(tmp_path, monkeypatch))


def prompts(folder: Path, monkeypatch) -> None:
    fresh = (folder / f"cache{turn}" for turn in itertools.count())
    cluster, path = jobs.cluster(), jobs.trace_path(jobs.REF)

    def read(cache: Path, *, cached: bool) -> None:
        monkeypatch.setenv("FASTSIM_CACHE_DIR", str(cache))
        _paths.cache_root.cache_clear()
        simulate(load(path, cache=cached), cluster)

    known = load(path)
    best = interleaved(
        {
            "nothing": Job(lambda: simulate(known, cluster)),
            "fresh, not kept": Job(lambda: read(folder, cached=False)),
            "fresh, kept": Job(lambda: read(next(fresh), cached=True)),
            "cached": Job(lambda: read(folder / "cache", cached=True)),
        }
    )
    _paths.cache_root.cache_clear()
    done = best.pop("nothing").cpu_s
    rows = []
    for name, times in best.items():
        seconds = (times.cpu_s - done) * 1e4 / len(known)
        rows.append(judged({"ref": name, "s per 10,000 requests": seconds}, seconds, READ_S))
    show("prompts", "Reading ref and compiling its prompts (CPU seconds)", rows)
