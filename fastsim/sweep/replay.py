"""One trace, one run, some routers: the quick look before a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsim.errors import InputError, nearest
from fastsim.sweep.experiments import experiment
from fastsim.sweep.experiments.cluster import served
from fastsim.sweep.imports import bring_in
from fastsim.sweep.params import Params
from fastsim.sweep.spec import parse

# Compared unless told otherwise: two that look at load alone, the lecture's, and each system's that looks at
# caches. All 48 of the registry are "all".
SHORT_LIST = (
    "round_robin",
    "least_loaded",
    "cache_aware_guard",
    "sglang_cache_aware_smallest_tree",
    "production_stack_prefixaware",
    "dynamo_kv",
    "epp",
    "aibrix_prefix_cache",
    "mooncake",
    "preble",
)
SORTED_BY = "latency_p99_s"


@dataclass(frozen=True)
class Replay:
    """What a replay found.

    Attributes
    ----------
    workload : dict
        What was read, repaired and assumed.
    cluster : dict
        Parameters of the cluster, derived ones included.
    rows : list of dict
        Per router: ``router``, the experiment's metrics (a P99 is None where the run was overloaded), and
        ``speed_rps``, simulated requests a second of wall-clock time, reading, compiling and the run that
        measures the capacity excluded.
    """

    workload: dict[str, Any]
    cluster: Params
    rows: list[dict[str, Any]]
    sort: str


def replay(
    base: Params,
    routers: Sequence[str] = (),
    *,
    settings: Sequence[str] = (),
    imports: Sequence[str] = (),
    sort: str = SORTED_BY,
    note: Callable[[str], None] = lambda text: None,
) -> Replay:
    """Serve a trace behind each router in turn.

    Parameters
    ----------
    base : dict
        Parameters of the experiment ``cluster``: tables workload (with a trace) and cluster, view, and so on.
    routers : sequence of str
        By default `SHORT_LIST` and those registered from outside the package; "all" is all there are.
    settings : sequence of str
        ``"key=value"``, as for a sweep.
    imports : sequence of str
        A user's own modules to import first: files, or dotted names.
    sort : str
        Metric by which the rows are sorted, best first; where it is withheld (a P99 at overload) or missing,
        a row comes last, by its mean latency.
    note : callable
        Told what was read, repaired and assumed.

    Raises
    ------
    InputError
        For anything wrong with the trace or a parameter, before anything runs.
    """
    from fastsim.cluster.routers import ROUTERS
    from fastsim.sweep.experiments.cluster import capacity_of

    bring_in(imports, Path())
    document = {
        "sweep": {"name": "replay", "seeds": 1},
        "base": base,
        "grid": {"router": list(ROUTERS if "all" in routers else routers or (*SHORT_LIST, *ROUTERS.own()))},
    }
    sweep = parse(document, settings, where="replay")
    if sweep.grids[0].axes != ("router",):
        raise InputError("replay compares routers; for lists of other values write a sweep")
    what, cells = experiment(sweep.experiment), sweep.cells()
    if sort not in what.metrics:
        raise InputError(f"sort = {sort!r} is no metric of a replay; {nearest(sort, what.metrics)}")
    workload = served(cells[0], what.prepare(cells[0], sweep.seed, 0))
    note(f"{workload.summary}\n{_reuse(workload, cells[0]['cluster'])}")
    if not routers:
        note(f"comparing {len(cells)} routers; --router all compares all {len(ROUTERS)}, a minute to compile")
    note("compiling or loading kernels")
    what.warmup(cells, lambda text: None)
    what.row(cells[0], workload, sweep.seed, 0)  # compiles the prompts, which later runs find
    rows: list[dict[str, Any]] = []
    for cell in cells:
        capacity_of(cell, sweep.seed)  # kept, so that the run is timed without it
        start = time.perf_counter()
        row = what.row(cell, workload, sweep.seed, 0)
        seconds = time.perf_counter() - start
        hidden = {name: None for name, metric in what.metrics.items() if metric.tail and not row["stable"]}
        rows.append({"router": cell["router"], **row, **hidden, "speed_rps": len(workload) / seconds})
    rows.sort(key=lambda row: _place(row, sort, more=what.metrics[sort].more))
    return Replay(workload.summary.to_dict(), cells[0]["cluster"], rows, sort)


def _place(row: dict[str, Any], metric: str, *, more: bool) -> tuple[bool, float]:
    """Where a row comes: by the metric, or after all that have it."""
    value = row[metric]
    if value is None:
        return True, row["latency_mean_s"] or 0.0
    return False, -value if more else value


def _reuse(workload: Any, cluster: Params) -> str:
    """How much of the input any cache could save, and one of a replica's and of the cluster's size."""
    from fastsim.cluster.config import Cluster
    from fastsim.cluster.prefix import ideal_hit_rate, lru_hit_rates

    made = Cluster(**cluster)
    sizes = [made.kv_blocks, made.kv_blocks * made.replicas]
    one, all_ = lru_hit_rates(workload, made.block, sizes)
    ideal = ideal_hit_rate(workload, made.block)
    return (
        f"reuse       {ideal:.1%} of the input tokens with one infinite cache, {one:.1%} with one LRU cache "
        f"of a replica's size, {all_:.1%} with one of the cluster's (requests one by one)"
    )
