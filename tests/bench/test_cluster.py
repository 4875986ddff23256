"""The main jobs: how fast a cluster is simulated on one core, in how much memory, and how fast by a peer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fastsim import simulate
from tests.bench import jobs
from tests.bench.measure import Best, Job, in_fresh_process, interleaved
from tests.bench.peer import MISSING, peer, replay, simulating, unpacked
from tests.bench.tables import Target, judged, show

MAIN = [(jobs.REF, block, router) for router in jobs.ROUTERS for block in (16, 64)]
MAIN += [(jobs.MOONCAKE, 16, router) for router in jobs.ROUTERS]
REQUESTS_PER_S = {jobs.REF: Target(1.5e6, at_least=True), jobs.MOONCAKE: Target(1.0e6, at_least=True)}
PEAK_MB = Target(400)

ONE_RUN = """
import json
from fastsim import simulate
from fastsim.workloads import load
from tests.bench import jobs
result = simulate(load(jobs.trace_path(trace)), jobs.cluster(block_tok=block), router)
print(json.dumps({"peak_mb": peak_mb(), "requests": len(result.requests)}))
"""


def test_main_jobs(once, tmp_path):
    """Requests a second of `simulate`: state set up, every request recorded, nothing read or compiled."""
    once(lambda: main_jobs(tmp_path))


def main_jobs(folder: Path) -> None:
    core = peer()
    todo: dict[str, Job] = {}
    for job in MAIN:
        todo[f"{job}"] = our_job(*job)
        if core is not None:
            name, block, router = job
            copy = unpacked(jobs.trace_path(name), folder)
            run = replay(core, copy, jobs.HASH_TOK[name], block, router)
            todo[f"peer {job}"] = Job(run, rounds=2, warm_up=False, share=simulating)
    best = interleaved(todo)
    rows = [row(job, best[f"{job}"], best.get(f"peer {job}")) for job in MAIN]
    show("cluster", "Eight replicas, one core (CPU seconds, best of interleaved rounds)", rows)
    if core is None:
        pytest.skip(f"the rest is done: {MISSING}")


def our_job(name: str, block: int, router: str) -> Job:
    workload, cluster = jobs.trace(name), jobs.cluster(block_tok=block)
    return Job(lambda: simulate(workload, cluster, router), rounds=15)


def row(job: tuple[str, int, str], ours: Best, theirs: Best | None) -> dict[str, Any]:
    name, block, router = job
    n = len(ours.result.columns["request"])
    steps = int(ours.result.replicas["steps"].sum())
    figures = {
        "trace": name,
        "block": block,
        "router": router,
        "requests/s": n / ours.cpu_s,
        "steps/s": steps / ours.cpu_s,
        "ns/event": ours.cpu_s / ours.result.events * 1e9,
        "ns/request": ours.cpu_s / n * 1e9,
    }
    figures = judged(figures, n / ours.cpu_s, REQUESTS_PER_S[name])
    if theirs is not None:
        figures |= {"peer requests/s": n / theirs.cpu_s, "ratio": theirs.cpu_s / ours.cpu_s}
    return figures


def test_peak_memory(once):
    """Largest resident size of a process that reads a trace, simulates it and makes the requests' table."""
    once(peak_memory)


def peak_memory() -> None:
    rows = []
    for name, block, router in MAIN:
        in_fresh_process(ONE_RUN, trace=name, block=block, router=router)  # leaves kernels in the cache
        peak_mb = in_fresh_process(ONE_RUN, trace=name, block=block, router=router)["peak_mb"]
        figures = {"trace": name, "block": block, "router": router, "peak MB": peak_mb}
        rows.append(judged(figures, peak_mb, PEAK_MB if name == jobs.REF else None))
    show("memory", "Peak memory of the whole process, reading included", rows)
