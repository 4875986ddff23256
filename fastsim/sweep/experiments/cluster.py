"""The LLM cluster as an experiment: a workload on replicas behind a router."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from fastsim.errors import InputError, shown
from fastsim.sweep import params as P
from fastsim.sweep.experiments.experiment import Experiment, Metric
from fastsim.sweep.params import Params, check_keys, require_table

if TYPE_CHECKING:
    from fastsim.cluster.capacity import Capacity
    from fastsim.cluster.simulate import Result
    from fastsim.workloads import Workload

KNOWLEDGE = {"view": "native", "routers": 1, "caches": "native", "counted_from": "sent"}
TOP = ("router", "router_params", *KNOWLEDGE, "estimand", "warmup_s", "workload", "cluster")
ESTIMANDS = ("transient", "steady")
AUTO = "auto"  # a warm-up that pilot runs find
# What `workloads.load` takes and a sweep decides itself.
_NOT_SET = ("path", "seed", "replicate", "cache")


def parameters() -> list[str]:
    """Every dotted name that some cell may set."""
    from fastsim.cluster.config import Cluster
    from fastsim.cluster.orders import ORDERS
    from fastsim.cluster.routers import ROUTERS
    from fastsim.workloads import GENERATORS

    names = ["router", *KNOWLEDGE, "estimand", "warmup_s", "workload.name", "workload.trace"]
    names += [f"cluster.{field.name}" for field in dataclasses.fields(Cluster)]
    for order in ORDERS.values():
        names += [f"cluster.order_params.{name}" for name in order.params.__struct_fields__]
    for entry in GENERATORS.values():
        names += [f"workload.{name}" for name in entry.params.__struct_fields__]
    names += ["workload.preset", *(f"workload.{name}" for name in _load_options())]
    for policy in ROUTERS.values():
        names += [f"router_params.{name}" for name in policy.params.__struct_fields__]
    return list(dict.fromkeys(names))


def lists() -> list[str]:
    """Dotted names of the parameters whose value is a list."""
    from fastsim.cluster.config import Cluster
    from fastsim.typed import parameters_of

    return [f"cluster.{each.name}" for each in parameters_of(Cluster) if each.is_list]


def validate(raw: Mapping[str, Any]) -> Params:
    """All parameters of a cell, defaults filled in."""
    check_keys(raw, TOP, "[base]")
    for table in ("router_params", "workload", "cluster"):
        require_table(table, raw.get(table, {}))
    workload, cluster = _workload(raw.get("workload", {})), cluster_params(raw.get("cluster", {}))
    return {
        **router_and_knowledge(raw.get("router", "round_robin"), raw.get("router_params", {}), raw),
        **_estimand(raw, workload, cluster),
        "workload": workload,
        "cluster": cluster,
    }


def _estimand(raw: Mapping[str, Any], workload: Params, cluster: Params) -> Params:
    """What is estimated, and the warm-up that is left out.

    A fleet's owner asks of made-up traffic what a fleet that has been up for long will do: the steady state.
    A trace, arrivals as in one, and replicas that fail or join are events of a given day: the transient.
    """
    from fastsim.cluster.simulate import simulate
    from fastsim.typed import check_call

    traced = "trace" in workload or workload.get("arrivals") == "trace"
    dated = traced or _has_outages(cluster)
    estimand = raw.get("estimand", "transient" if dated else "steady")
    if estimand not in ESTIMANDS:
        raise InputError(f"estimand is {estimand!r}; it must be 'transient' or 'steady'")
    if estimand == "steady" and dated:
        reason = "a trace is a given day" if traced else "restarts and joins happen at given times"
        raise InputError(f"estimand is 'steady', but {reason}; only 'transient' has a meaning here")
    warmup_s = raw.get("warmup_s", AUTO if estimand == "steady" else 0.0)
    if warmup_s == AUTO and estimand == "steady":
        return {"estimand": estimand, "warmup_s": AUTO}
    if isinstance(warmup_s, str):
        or_auto = ", or 'auto'" if estimand == "steady" else ""
        raise InputError(f"warmup_s is {warmup_s!r}; it must be 0 or more seconds{or_auto}")
    checked = check_call(simulate, {"warmup_s": warmup_s}, "[base]")["warmup_s"]
    return {"estimand": estimand, "warmup_s": float(checked)}


def _has_outages(cluster: Params) -> bool:
    return bool(cluster.get("restarts") or cluster.get("joins_s"))


def router_and_knowledge(name: Any, given: Mapping[str, Any], raw: Mapping[str, Any]) -> Params:
    """A router, its parameters and what it knows."""
    from fastsim.cluster.knowledge import settle
    from fastsim.cluster.routers import ROUTERS, get
    from fastsim.typed import check

    policy = get(name)
    own = _own_params(ROUTERS, name, given, "router")
    known = {key: raw.get(key, usual) for key, usual in KNOWLEDGE.items()}
    settle(policy, check(policy.params, own, f"router {name}"), **known)
    return {"router": name, "router_params": own, **known}


def _own_params(entries: Mapping[str, Any], name: str, given: Mapping[str, Any], what: str) -> Params:
    """Of the parameters given, those that an entry has: one table serves all entries of a sweep."""
    from fastsim.typed import check

    all_names = {known for entry in entries.values() for known in entry.params.__struct_fields__}
    check_keys(given, sorted(all_names), f"{what}_params")
    spec = entries[name].params
    own = {key: value for key, value in given.items() if key in spec.__struct_fields__}
    return msgspec.to_builtins(check(spec, own, f"{what} {name}"))


def _workload(given: Mapping[str, Any]) -> Params:
    """A generator's parameters, or a trace with its digest and the options of `workloads.load`."""
    from fastsim.workloads import GENERATORS, specify

    if "trace" in given:
        if "name" in given:
            raise InputError("workload has a name and a trace; give one of them")
        return _trace(given)
    name = given.get("name")
    if not isinstance(name, str) or name not in GENERATORS:
        wanted = "workload.name is missing" if name is None else f"workload {shown(name)} is not known"
        raise InputError(
            f"{wanted}; choose one of: {', '.join(GENERATORS)}; or give workload.trace (--trace PATH)"
        )
    own = {key: value for key, value in given.items() if key != "name"}
    _, spec = specify(name, own)
    full = {key: value for key, value in msgspec.to_builtins(spec).items() if value is not None}
    if "preset" in own:  # it may be an axis
        full = {"preset": own["preset"], **full}
    if "arrival_trace" in full:
        full["arrival_trace_digest"] = P.digest_of("workload.arrival_trace", full["arrival_trace"])
    return {"name": name, **full}


def _trace(given: Mapping[str, Any]) -> Params:
    from fastsim.typed import check_call
    from fastsim.workloads import load

    options = _load_options()
    check_keys(given, ("trace", *options), "workload with a trace")
    stated = {name: value for name, value in given.items() if name != "trace"}
    full = {name: value for name, value in options.items() if value is not None}
    full |= check_call(load, stated, "workload")
    digest = P.digest_of("trace", given["trace"], "; give one by --trace or workload.trace")
    return {**full, "trace": given["trace"], "trace_digest": digest}


def _load_options() -> dict[str, Any]:
    """Options of `workloads.load` that a sweep may set, and their defaults."""
    from fastsim.workloads import load

    known = inspect.signature(load).parameters
    return {name: parameter.default for name, parameter in known.items() if name not in _NOT_SET}


def cluster_params(given: Mapping[str, Any]) -> Params:
    """The cluster's parameters with what it derives from GPU and model; the step time as given."""
    from fastsim.cluster.config import Cluster
    from fastsim.cluster.orders import ORDERS, get

    names = [field.name for field in dataclasses.fields(Cluster)]
    check_keys(given, names, "cluster")
    order, order_params = given.get("order", "fcfs"), given.get("order_params") or {}
    require_table("cluster.order_params", order_params)
    get(order)
    own = _own_params(ORDERS, order, order_params, "order")
    cluster = Cluster(**{**given, "order": order, "order_params": own})
    full = {name: getattr(cluster, name) for name in names if name != "step_time"}
    return full if "step_time" not in given else {**full, "step_time": given["step_time"]}


def prepare(params: Params, seed: int, replicate: int) -> Workload:
    """The workload of a replicate."""
    from fastsim import workloads

    given = lengthened(params)
    if "trace" not in given:
        for name in ("preset", "arrival_trace_digest"):  # the one is spelt out, the other is for the identity
            given.pop(name, None)
        return workloads.make(given.pop("name"), seed=seed, replicate=replicate, **given)
    path = given.pop("trace")
    given.pop("trace_digest")
    return workloads.load(path, seed=seed, replicate=replicate, **given)


def lengthened(params: Params) -> Params:
    """The workload's parameters; for the steady state longer by the warm-up that is left out."""
    from fastsim.workloads.traffic import DEFAULT_DURATION_S

    given, more_s = dict(params["workload"]), params.get("warmup_s", 0.0)
    if params.get("estimand") != "steady" or more_s in (0.0, AUTO):
        return given
    if "requests" in given:
        return {**given, "requests": given["requests"] + math.ceil(more_s * given["rate_rps"])}
    return {**given, "duration_s": given.get("duration_s", DEFAULT_DURATION_S) + more_s}


def settle(cells: Sequence[Params], seed: int, note: Callable[[str], None]) -> Sequence[Params]:
    """Fill in the warm-ups that pilot runs must find; see `steady.settle`.

    Beside cells with restarts or late joins, which are transient, those without are transient, too.
    """
    from fastsim.sweep.experiments import steady

    if any(_has_outages(cell["cluster"]) for cell in cells):
        transient = {"estimand": "transient", "warmup_s": 0.0}
        return [{**cell, **transient} if cell["warmup_s"] == AUTO else cell for cell in cells]
    return steady.settle(cells, seed, note)


def estimates(cells: Sequence[Params]) -> list[str]:
    """What a table of these cells estimates."""
    said = ["estimated: the mean over runs of each run's own figure (its mean, its P99, its hit rate)"]
    for estimand in ESTIMANDS:
        warmups = sorted({cell["warmup_s"] for cell in cells if cell["estimand"] == estimand})
        if not warmups:
            continue
        span = " to ".join(f"{edge:g}" for edge in dict.fromkeys((warmups[0], warmups[-1])))
        if estimand == "transient":
            said.append(f"transient: runs begin empty, and requests that arrive from {span} s on count")
        else:
            said.append(
                f"steady: {span} s are left out before the window that counts (by pilot runs; the same for "
                "all cells on one workload)"
            )
    return [*said, "P99 of all runs' requests together: --metric latency_pooled_p99_s or ttft_pooled_p99_s"]


def worded(params: Params) -> str:
    """A workload in a few words."""
    given = params["workload"]
    rate = f" at {given['rate_rps']:g}/s" if "rate_rps" in given else ""
    return f"{given.get('name', given.get('trace'))}{rate}"


def served(params: Params, workload: Workload) -> Workload:
    """What of the workload is served: with ``skip_bad``, only the requests that fit a replica."""
    from fastsim.cluster.config import Cluster
    from fastsim.cluster.fitting import only_fitting

    if not params["workload"].get("skip_bad"):
        return workload
    kept = workload.__dict__.setdefault("_fitting", {})  # with the workload, as its compiled prompts are
    cluster = Cluster(**params["cluster"])
    key = (cluster.engine, cluster.block, cluster.kv_blocks)
    if key not in kept:
        kept[key] = only_fitting(workload, cluster)
    return kept[key]


def serve(params: Params, workload: Workload, seed: int, replicate: int, *, record: bool = False) -> Result:
    """Serve the workload."""
    from fastsim.cluster.config import Cluster
    from fastsim.cluster.simulate import simulate

    return simulate(
        served(params, workload),
        Cluster(**params["cluster"]),
        params["router"],
        params["router_params"],
        **{name: params[name] for name in KNOWLEDGE},
        seed=seed,
        replicate=replicate,
        warmup_s=params["warmup_s"],
        record=record,
    )


def run(params: Params, workload: Workload, seed: int, replicate: int) -> dict[str, Any]:
    """Serve the workload and report the run's figures, P99s too: a table withholds those of overload."""
    from fastsim.stats import is_below_capacity

    if params["warmup_s"] == AUTO:  # a sweep settles first, for all cells of a workload at once
        (params,) = settle([params], seed, lambda text: None)
        workload = prepare(params, seed, replicate)
    kept = served(params, workload)
    result = serve(params, kept, seed, replicate)
    known = result.figures
    capacity = capacity_of(params, seed)
    load = capacity.load(kept.offered_rps)
    known = {
        **known,
        "warmup_s": params["warmup_s"],
        "samples": known["requests"],
        "left_out": len(workload) - len(kept),
        "capacity_rps": capacity.rps,
        "offered_load": load,
        "stable": is_below_capacity(load, refuses=capacity.refuses),
        **_histograms(result),
    }
    return {name: known[name] for name in METRICS}


def _histograms(result: Result) -> dict[str, str | None]:
    """What a table pools over runs: the counts of all measured requests."""
    from fastsim.stats import QuantileHistogram

    columns = result.columns
    kept = (columns["arrival_s"] >= result.warmup_s) & (columns["replica"] >= 0)
    found: dict[str, str | None] = {}
    for name, end in (("ttft", "first_token_s"), ("latency", "done_s")):
        histogram = QuantileHistogram()
        histogram.add((columns[end] - columns["arrival_s"])[kept])
        found[f"{name}_pooled_p99_s"] = histogram.to_text() if histogram.n else None
    return found


def capacity_of(params: Params, seed: int) -> Capacity:
    """The capacity of a cell, measured once for all that differ in rate, length and replicate only."""
    from fastsim.cluster.capacity import Capacity
    from fastsim.sweep.experiments import capacities

    given = _without_rate(params)
    text = P.canonical(["cluster", P.identity(given), seed])
    return capacities.measured(text, [params["router"]], Capacity, lambda: _measured(given, seed))


def measure(cells: Sequence[Params], seed: int, jobs: int) -> None:
    """Measure the capacities that rows will hold."""
    from fastsim.sweep.experiments import capacities

    capacities.in_advance(lambda cell: capacity_of(cell, seed), cells, jobs)


def _measured(params: Params, seed: int) -> Capacity:
    from fastsim.cluster.capacity import capacity
    from fastsim.cluster.config import Cluster
    from fastsim.sweep.experiments import capacities

    known = {name: params[name] for name in KNOWLEDGE}
    cluster, router = Cluster(**params["cluster"]), params["router"]
    replicates = capacities.REPLICATES if "name" in params["workload"] else 1
    return capacities.together(
        [
            capacity(
                served(params, prepare(params, seed, replicate)),
                cluster,
                router,
                params["router_params"],
                **known,
                seed=seed,
                replicate=replicate,
                precision=capacities.PRECISION if replicates > 1 else capacities.PRECISION / 2,
            )
            for replicate in range(replicates)
        ]
    )


def _without_rate(params: Params) -> Params:
    """What decides a capacity: all but the rate, the length, outages and what is left out of a summary."""
    workload = dict(params["workload"])
    if "trace" in workload:
        if workload["rate_mode"] == "compress":
            workload["rate_scale"] = 1.0
        workload["repeat"] = 1
    else:
        for name in ("duration_s", *_when(workload["name"])):
            workload.pop(name, None)
        workload |= {"rate_rps": 1.0, "requests": 2}
    outages = {"restarts": None, "joins_s": None}
    return {
        **{name: params[name] for name in ("router", "router_params", *KNOWLEDGE)},
        "workload": workload,
        "cluster": {**params["cluster"], **{k: v for k, v in outages.items() if k in params["cluster"]}},
    }


def _when(name: str) -> tuple[str, ...]:
    """Parameters of a workload that decide nothing but when requests come, at whatever rate."""
    from fastsim.workloads import GENERATORS

    times = ("arrivals", "arrival_cv", "arrival_trace", "arrival_trace_digest")
    return times if GENERATORS[name].stretches else ()


def warmup(cells: Sequence[Params], note: Callable[[str], None]) -> None:
    """Compile the kernels and read the traces once, saying what was read."""
    from fastsim.cluster.simulate import warmup as compile_kernels
    from fastsim.workloads import load

    traces = [cell["workload"] for cell in cells if "trace" in cell["workload"]]
    sessions_wait = False
    for options in {P.canonical(_reading(workload)): _reading(workload) for workload in traces}.values():
        workload = load(**options)
        note(str(workload.summary))
        sessions_wait |= workload.is_closed
    if not all(map(_seeds_differ, traces)):
        note("every seed replays the same requests; workload.shuffle_sessions = true makes seeds differ")
    routers = sorted({cell["router"] for cell in cells})
    compile_kernels(routers, max((cell["cluster"]["replicas"] for cell in cells), default=1))
    if sessions_wait:
        compile_kernels(routers[:1], sessions_wait=True)


def _seeds_differ(workload: Params) -> bool:
    """Whether another seed makes other requests of a trace."""
    drawn = "arrivals" in workload or isinstance(workload.get("output_tok"), str)
    return drawn or workload["shuffle_sessions"] or workload["rate_mode"] == "thin"


def _reading(workload: Params) -> Params:
    """How a trace is read, apart from what is made of it."""
    from fastsim.workloads.load import STATED

    return {"path": workload["trace"], **{name: workload[name] for name in STATED if name in workload}}


def _latencies() -> dict[str, Metric]:
    figures = {"mean": "mean", "p50": "median", "p90": "P90", "p99": "P99"}
    times = {"ttft": "time to first token", "tpot": "time per output token", "latency": "latency"}
    return {
        f"{time}_{figure}_s": Metric(f"{word} {name}", "s", tail=figure == "p99", optional=True)
        for time, name in times.items()
        for figure, word in figures.items()
    }


METRICS = {
    "warmup_s": Metric("warm-up deleted", "s"),
    "samples": Metric("requests used", type=int),
    "left_out": Metric("requests too long for a replica", type=int),
    "stable": Metric("stable", type=bool),
    "offered_load": Metric("offered load", optional=True),
    "capacity_rps": Metric("capacity", "1/s"),
    "backlog_score": Metric("backlog score"),
    **_latencies(),
    "ttft_pooled_p99_s": Metric(
        "pooled P99 time to first token", "s", str, tail=True, pools="ttft_p99_s", optional=True
    ),
    "latency_pooled_p99_s": Metric(
        "pooled P99 latency", "s", str, tail=True, pools="latency_p99_s", optional=True
    ),
    "hit_rate": Metric(
        "hit rate", doc="cached over prompt tokens, at a request's first admission", more=True, optional=True
    ),
    "copies": Metric(
        "copies", doc="blocks cached on all replicas at the end over different blocks among them"
    ),
    "load_imbalance": Metric(
        "imbalance",
        doc="busiest replica's busy time over the mean: 1 where all are busy all the time",
        optional=True,
    ),
    "busiest_share": Metric(
        "busiest share",
        doc="share of the served requests that went to the replica with most of them",
        optional=True,
    ),
    "utilisation": Metric(
        "busy share", doc="share of the replicas' time in which a step runs", optional=True
    ),
    "throughput_rps": Metric(
        "throughput", "1/s", doc="served requests over the makespan", more=True, optional=True
    ),
    "rejected": Metric("share refused", doc="requests that routers refused; no other figure counts them"),
    "preemptions": Metric("preemptions", type=int),
    "evicted_blocks": Metric("evicted blocks", type=int),
}

CLUSTER = Experiment(
    name="cluster",
    doc="A workload on replicas behind a router.",
    parameters=parameters,
    lists=lists,
    validate=validate,
    workload=lambda params: {"workload": lengthened(params)},
    settle=settle,
    prepare=prepare,
    run=run,
    metrics=METRICS,
    table=("latency_mean_s", "latency_p99_s", "hit_rate", "load_imbalance", "busiest_share"),
    contrast=("latency_mean_s", "latency_p99_s"),
    compare="router",
    lost="rejected",
    estimates=estimates,
    warmup=warmup,
    measure=measure,
)
