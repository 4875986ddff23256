"""How the cost of a simulated request, and memory, grow with requests, output lengths and replicas."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from fastsim import simulate
from fastsim.workloads import Workload
from tests.bench import jobs
from tests.bench.measure import Best, Job, interleaved
from tests.bench.tables import Target, judged, show

TURNS = (1, 2, 4, 8)
LINEAR, LONGER = Target(1.3), Target(1.3)
WIDER = {64: Target(1.5), 512: Target(2.5)}

Case = tuple[
    str, str, Workload, int, Target | None
]  # router, what is done to ref, workload, replicas, target


def test_cost(once):
    """CPU seconds a request, as ratios to ref on eight replicas, block 16."""
    once(cost)


def cost() -> None:
    ref = jobs.without_private_symbols(jobs.trace(jobs.REF))
    check_same_outcome(jobs.trace(jobs.REF), ref)
    cases = [case for router in jobs.ROUTERS for case in cases_of(router, ref)]
    best = interleaved({f"{case[:2]}": job(*case[:4]) for case in cases})
    rows = []
    for case in cases:
        plain = best[f"{(case[0], 'as it is')}"]
        rows.append(row(case, best[f"{case[:2]}"], plain))
    show(
        "growth", "Cost of a request relative to ref as it is (CPU seconds, best of interleaved rounds)", rows
    )


def cases_of(router: str, ref: Workload) -> list[Case]:
    found: list[Case] = [(router, "as it is", ref, 8, None)]
    found += [(router, f"{times} x requests", jobs.in_turn(ref, times), 8, LINEAR) for times in TURNS[1:]]
    found.append((router, "10 x output, 1/4 of the rate", jobs.slowed(ref, 10, 4), 8, LONGER))
    for replicas, target in WIDER.items():
        wide = jobs.at_once(ref, replicas // 8)
        found.append((router, f"{replicas // 8} x rate and replicas", wide, replicas, target))
    wide = jobs.at_once(ref, 8, own_prefixes=True)
    found.append((router, "8 x rate, replicas and prefixes", wide, 64, None))
    return found


def job(router: str, _what: str, workload: Workload, replicas: int) -> Job:
    cluster = jobs.cluster(replicas)
    return Job(lambda: simulate(workload, cluster, router), rounds=5 if len(workload) > 100_000 else 10)


def row(case: Case, best: Best, plain: Best) -> dict[str, Any]:
    router, what, workload, replicas, target = case
    cost, before = best.cpu_s / len(workload), plain.cpu_s / len(plain.result.columns["request"])
    hit = best.result.columns["hit_tok"].sum() / workload.prompt_tok.sum()
    figures = {
        "router": router,
        "ref": what,
        "replicas": replicas,
        "requests": len(workload),
        "hit rate": float(hit),
        "ns/request": cost * 1e9,
        "ns/event": best.cpu_s / best.result.events * 1e9,
        "relative cost": cost / before,
    }
    return judged(figures, cost / before, target)


def check_same_outcome(workload: Workload, shorter: Workload) -> None:
    """What is measured here is ref, although its private tokens have lost their symbols."""
    one = simulate(workload, jobs.cluster(), "cache_aware_guard").columns
    other = simulate(shorter, jobs.cluster(), "cache_aware_guard").columns
    for name in one:
        assert np.array_equal(one[name], other[name]), name


def test_memory(once):
    """NumPy's largest allocation during `simulate`, workload and compiled prompts apart."""
    once(memory)


def memory() -> None:
    ref = jobs.without_private_symbols(jobs.trace(jobs.REF))
    cases = [(f"{times} x requests", jobs.in_turn(ref, times), 8) for times in TURNS]
    cases += [("as it is", ref, replicas) for replicas in (64, 512)]
    cases += [(f"{times} x rate and replicas", jobs.at_once(ref, times), 8 * times) for times in (8, 64)]
    rows = []
    for what, workload, replicas in cases:
        cluster = jobs.cluster(replicas)
        peak_mb = allocated_mb(lambda w=workload, c=cluster: simulate(w, c, "cache_aware_guard"))
        distinct = distinct_blocks(workload)
        rows.append(
            {
                "ref": what,
                "replicas": replicas,
                "requests": len(workload),
                "MB": peak_mb,
                "bytes/request": peak_mb * 1e6 / len(workload),
                "replicas x distinct blocks, MB": replicas * distinct / 1e6,
            }
        )
    show(
        "growth_memory",
        "Memory a run allocates, beside a byte for every replica and block (cache_aware_guard)",
        rows,
    )


def allocated_mb(run: Callable[[], object]) -> float:
    run()  # compiles prompts and kernels
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def distinct_blocks(workload: Workload) -> int:
    """Blocks of 16 tokens that a cache of all of them would hold."""
    shared_tok = int(workload.symbol_tok[np.unique(workload.symbols)].sum())
    of_request = np.add.reduceat(workload.symbol_tok[workload.symbols], workload.symbol_ptr[:-1])
    own_tok = int((workload.prompt_tok + workload.output_tok - of_request).sum())
    return (shared_tok + own_tok) // 16
