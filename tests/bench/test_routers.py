"""What a routing policy costs: beside another, on many replicas, alone with its index, and those not used."""

from __future__ import annotations

import numpy as np

from fastsim import router, simulate
from fastsim.cluster.routers import ROUTERS
from fastsim.workloads import Workload, make
from tests.bench import jobs
from tests.bench.measure import Job, in_fresh_process, interleaved
from tests.bench.routing import Burst
from tests.bench.tables import Cell, Row, Target, judged, show

YARDSTICK = "cache_aware_guard"
BESIDE = Target(2)

FEW, MANY = 8, 1024
WINDOW = 3000  # requests of ref: many replicas get as many each, so all of it would take minutes
IN_TURN = "round robin that looks"
OF_TWO = ("power_of_two", "sglang_power_of_two", "aibrix_power_of_two")
WIDE, WIDE_OF_TWO = Target(3), Target(1.1)

SERVED, AT_ONCE = 5_000, 50_000
PREBLE_RPS = {"tool_use": 245.0, "video_qa": 2931.0}  # of its global scheduler, by its paper
WORKLOADS = ("tool_use", "embodied_agent", "programming", "video_qa", "long_documents")
DECISIONS_PER_S = Target(100_000, at_least=True)
PREBLE = ("preble", "preble_code")

OTHERS = Target(1.05)


# --- beside another -----------------------------------------------------------------------------------------


def test_cost(once):
    """CPU time of `simulate` behind every policy, as a ratio to one of them, on eight replicas and on 64."""
    once(cost)


def cost() -> None:
    ref = jobs.without_private_symbols(jobs.trace(jobs.REF))
    rows = []
    for replicas, rounds in ((8, 10), (64, 6)):
        workload = jobs.at_once(ref, replicas // 8)
        cluster = jobs.cluster(replicas)
        best = interleaved(
            {
                name: Job(lambda n=name, w=workload, c=cluster: simulate(w, c, n), rounds=rounds)
                for name in ROUTERS
            }
        )
        for name in ROUTERS:
            ratio = best[name].cpu_s / best[YARDSTICK].cpu_s
            figures = {
                "router": name,
                "replicas": replicas,
                "ns/request": best[name].cpu_s / len(workload) * 1e9,
                "events/request": best[name].result.events / len(workload),
                f"of {YARDSTICK}": ratio,
            }
            rows.append(judged(figures, ratio, BESIDE))
    title = "Cost of a request on ref behind every policy (CPU seconds, best of interleaved rounds)"
    show("routers", title, rows)


# --- on many replicas ---------------------------------------------------------------------------------------


def test_growth(once):
    """CPU time a request on 1,024 replicas beside that on eight, each with the same load and prefixes."""
    once(growth)


def growth() -> None:
    add_in_turn()
    try:
        costs = {name: cost_few_and_many(name) for name in (IN_TURN, *ROUTERS)}
    finally:
        del ROUTERS[IN_TURN]
    engine = costs[IN_TURN][1] / costs[IN_TURN][0]
    rows = []
    for name, (few, many) in costs.items():
        growth = many / few
        figures = {
            "router": name,
            f"ns/request on {FEW}": few * 1e9,
            f"on {MANY}": many * 1e9,
            "growth": growth,
            "of the engine's": growth / engine,
        }
        of_two = name in OF_TWO
        rows.append(judged(figures, growth / engine if of_two else growth, WIDE_OF_TWO if of_two else WIDE))
    show(
        "routers_growth",
        f"Cost of a request on {MANY:,} replicas beside {FEW} (CPU seconds, best of interleaved rounds); "
        f"{', '.join(OF_TWO)} beside the engine's growth",
        rows,
    )


def add_in_turn() -> None:
    """Register a policy that looks at nothing, but is not known for it: its runs cost what the engine does.

    Replicas of one that is known to be blind are served one after the other, which others cannot be.
    """

    @router(IN_TURN)
    def in_turn(view, request):
        turn = view.memory[0]
        view.memory[0] = turn + 1
        return turn % view.load.shape[0]


def cost_few_and_many(name: str) -> tuple[float, float]:
    """CPU seconds a request on few replicas and on many."""
    best = interleaved({str(replicas): wide_job(name, replicas) for replicas in (FEW, MANY)})
    few, many = (best[str(replicas)].cpu_s / len(window(replicas)) for replicas in (FEW, MANY))
    return few, many


def wide_job(name: str, replicas: int) -> Job:
    workload, cluster = window(replicas), jobs.cluster(replicas)
    return Job(lambda: simulate(workload, cluster, name), rounds=10 if replicas == FEW else 2)


def window(replicas: int) -> Workload:
    """The start of ref, on few replicas several times in turn, on many as many times at once.

    In turn, so that setting up a run of few requests does not count; and either way the same prefixes come
    back.
    """
    ref = jobs.without_private_symbols(jobs.trace(jobs.REF))
    start = ref.arranged(np.arange(WINDOW), ref.arrival_s[:WINDOW])
    return jobs.in_turn(start, 8) if replicas == FEW else jobs.at_once(start, replicas // FEW)


# --- alone --------------------------------------------------------------------------------------------------


def test_decisions(once):
    """Decisions a second with 50,000 requests at once, as Preble measures them."""
    once(decisions)


def decisions() -> None:
    best = {(name, what): float("inf") for name in ROUTERS for what in WORKLOADS}
    for what in WORKLOADS:
        workload = make(what, requests=SERVED + AT_ONCE)
        for turn in range(4):
            for name in ROUTERS:
                cpu_s = Burst.after(SERVED, workload, jobs.cluster(), name).route()
                if turn:
                    best[name, what] = min(best[name, what], cpu_s)
    rows: list[Row] = [{"router": "Preble's scheduler, by its paper"} | PREBLE_RPS]
    for name in ROUTERS:
        rates = {what: AT_ONCE / best[name, what] for what in WORKLOADS}
        slowest = min(rates.values())
        rows.append(judged({"router": name, **rates}, slowest, DECISIONS_PER_S if name in PREBLE else None))
    show(
        "routers_decisions",
        f"Decisions a second, {AT_ONCE:,} requests at once on {FEW} replicas that have served {SERVED:,}, "
        "one core (CPU seconds, best of interleaved rounds)",
        rows,
    )


# --- not used -----------------------------------------------------------------------------------------------

# Importing, a first run, and runs on ref, behind one policy; with all registered or with this one only.
ONE_POLICY = """
import json, sys, time
import numba, numpy
begin = time.process_time()
import fastsim
fastsim.simulate
done = {"import_s": time.process_time() - begin}
from fastsim.cluster.routers import ROUTERS
for other in set(ROUTERS) - {router} if alone else ():
    del ROUTERS[other]
begin = time.process_time()
fastsim.simulate(fastsim.workloads.make("long_documents", requests=3), fastsim.Cluster(2), router)
done["first_run_s"] = time.process_time() - begin
done["modules"] = sum(name.startswith("fastsim.cluster.routers.") for name in sys.modules)
from tests.bench import jobs
workload, cluster = jobs.trace(jobs.REF), jobs.cluster()
fastsim.simulate(workload, cluster, router)
done["run_s"] = float("inf")
for _ in range(30):
    begin = time.process_time()
    fastsim.simulate(workload, cluster, router)
    done["run_s"] = min(done["run_s"], time.process_time() - begin)
print(json.dumps(done))
"""


def test_others(once):
    """What all policies that are not used cost one that is: importing, its first run, and all later ones."""
    once(others)


def others() -> None:
    kinds = {"all": False, "this one": True}
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    for _ in range(6):
        for kind, alone in kinds.items():
            runs[kind].append(in_fresh_process(ONE_POLICY, router=YARDSTICK, alone=alone))
    best = {kind: {key: min(run[key] for run in runs[kind]) for key in runs[kind][0]} for kind in kinds}
    rows = []
    for kind in kinds:
        ratio = best[kind]["run_s"] / best["this one"]["run_s"]
        row: dict[str, Cell] = {"registered": kind, **best[kind], "ratio of runs": ratio}
        rows.append(judged(row, ratio, OTHERS))
    show("routers_others", f"{YARDSTICK} beside other policies (CPU seconds, best of fresh processes)", rows)
