"""A sweep on one core and on two."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

from fastsim import sweep
from tests.bench.measure import Job, interleaved
from tests.bench.tables import Target, judged, show

SPEEDUP = Target(1.8, at_least=True)
POINTS = 100
# 4 routers x 5 rates x 5 seeds, 20,000 to 40,000 requests each: some 30 ms a point, most of it in the kernel.
SPEC = {
    "sweep": {"name": "cores", "seed": 1, "seeds": 5},
    "base": {
        "workload": {"name": "long_documents", "duration_s": 20_000.0},
        "cluster": {"engine": "lecture", "replicas": 8},
    },
    "grid": {
        "router": ["round_robin", "least_loaded", "affinity_threshold", "cache_aware_guard"],
        "rate_rps": [1.0, 1.25, 1.5, 1.75, 2.0],
    },
}


def test_two_jobs(once, tmp_path):
    """Wall-clock time of 100 points with one job and with two, results written; threads and processes."""
    once(lambda: two_jobs(tmp_path))


def two_jobs(folder: Path) -> None:
    fresh = (folder / f"run{turn}" for turn in itertools.count())
    spec = sweep.parse(SPEC)

    def run(workers: int, backend: str) -> sweep.RunReport:
        report = sweep.run(spec, next(fresh), jobs=workers, backend=backend)
        assert report.simulated == POINTS
        return report

    todo = {
        f"{backend} {workers}": Job(lambda w=workers, b=backend: run(w, b), rounds=3)
        for backend in ("threads", "processes")
        for workers in (1, 2)
    }
    best = interleaved(todo)
    rows = []
    for backend in ("threads", "processes"):
        one, two = best[f"{backend} 1"].wall_s, best[f"{backend} 2"].wall_s
        figures = {"backend": backend, "1 job, s": one, "2 jobs, s": two, "speedup": one / two}
        rows.append(judged(figures, one / two, SPEEDUP if backend == "threads" else None))
    show("cores", f"A sweep of {POINTS} points on {os.cpu_count()} cores (wall-clock seconds)", rows)
