"""Servers behind a dispatcher as an experiment; times are in mean service times."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fastsim.errors import InputError
from fastsim.sweep import params as P
from fastsim.sweep.experiments.experiment import Experiment, Metric
from fastsim.sweep.params import Params, check_keys
from fastsim.typed import check

if TYPE_CHECKING:
    from fastsim.queueing import QueueSpec

QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
PLANNED = (0.5, 0.9, 0.99)  # what runs are long enough for by default; P99.9 is a by-product
MSER5 = "mser5"


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of `fastsim.queueing.simulate`; those of one dispatcher only are left out for the others.

    Attributes
    ----------
    utilisation, rate : float or None
        One of them; by default the trace's own rate, or utilisation 0.9 without one. At or above capacity a
        point is simulated, called unstable, and has no quantiles.
    speeds, cutoffs : list of float, or str
        Numbers, or text such as ``"8*2, 8*1"``, which can be an axis.
    trace : str or None
        File whose timestamps are the arrivals, in any format of `fastsim workloads`.
    time_unit : {"s", "ms", "us", "ns"} or None
        Unit of the trace's times; by default that of its format.
    requests : int or None
        By default `fastsim.queueing.warmup.default_requests`.
    warmup : int or ``"mser5"``
        Requests left out; ``"mser5"`` asks pilot runs, and all cells on one workload get the same.
    """

    dispatcher: str = "random"
    servers: int = 1
    utilisation: float | None = None
    rate: float | None = None
    size: str = "exponential"
    arrivals: str = "poisson"
    trace: str | None = None
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    discipline: str = "fcfs"
    speeds: list[float] | str | None = None
    d: int = 2
    replacement: bool = True
    memory: bool = False
    cutoffs: list[float] | str | None = None
    update: str = "live"
    period: float = 0.0
    age: str = "constant"
    dispatchers: int = 1
    add_own: bool = False
    requests: Annotated[int, Meta(ge=1)] | None = None
    warmup: Annotated[int, Meta(ge=0)] | Literal["mser5"] = MSER5


def validate(raw: Mapping[str, Any]) -> Params:
    """All parameters of a cell, defaults filled in, those that mean nothing to its dispatcher left out."""
    from fastsim.queueing import warmup as lengths

    check_keys(raw, [*Question.__struct_fields__, "trace_digest"], "[base]")
    given = {name: value for name, value in raw.items() if name != "trace_digest"}
    params = _traced(_own(msgspec.to_builtins(check(Question, given, "queueing"))))
    for name in ("speeds", "cutoffs"):
        if params.get(name) is not None:
            params[name] = _as_text(name, params[name])
    params: Params = {
        name: value for name, value in params.items() if value is not None or name == "requests"
    }
    spec = spec_of(params)
    insisted, left_out = params["requests"] is not None, params["warmup"]
    requests: Any = params["requests"] if insisted else lengths.default_requests(spec, PLANNED)
    if left_out != MSER5:
        requests = lengths.fit_to_trace(spec, left_out, requests, insisted=insisted)
    return {**params, "requests": requests}


def _own(given: Params) -> Params:
    """One table of parameters serves all dispatchers of a sweep."""
    from fastsim.queueing import DISPATCHERS

    known = DISPATCHERS.get(given["dispatcher"])  # an unknown one is refused with the rest
    takes = known.takes if known else ()
    return {
        name: value
        for name, value in given.items()
        if name not in ("d", "replacement", "memory", "cutoffs") or name in takes
    }


def _traced(params: Params) -> Params:
    """Arrivals of a trace are known by what is in the file; without one there is a load to assume."""
    if params["trace"] is None:
        if params["time_unit"] is not None:
            raise InputError(f"time_unit is {params['time_unit']!r}, but there is no trace whose times it is")
        bare = params["utilisation"] is None and params["rate"] is None
        return {**params, "utilisation": 0.9} if bare else params
    if params["arrivals"] != Question().arrivals:
        raise InputError(f"arrivals is {params['arrivals']!r} and there is a trace; give one of them")
    return {**params, "arrivals": None, "trace_digest": P.digest_of("trace", params["trace"])}


def _as_text(name: str, given: list[float] | str) -> str:
    """Numbers as text, which can be the value of an axis, equal neighbours as ``"8*2.0"``."""
    runs = [(number, len(list(same))) for number, same in itertools.groupby(_numbers(name, given))]
    return ", ".join(f"{count}*{number!r}" if count > 1 else repr(number) for number, count in runs)


def _numbers(name: str, given: list[float] | str) -> list[float]:
    from fastsim.queueing.spec import SERVERS_MAX

    if not isinstance(given, str):
        return given
    found: list[float] = []
    for part in filter(None, (part.strip() for part in given.split(","))):
        count, times, number = part.rpartition("*")
        try:
            found += [float(number)] * (min(int(count), SERVERS_MAX + 1) if times else 1)
        except ValueError:
            raise InputError(f"{name} holds {part!r}; it must be numbers such as '8*2, 8*1'") from None
    return found


def spec_of(params: Params) -> QueueSpec:
    """The checked question of a cell."""
    asked = {name: value for name, value in params.items() if name not in ("requests", "warmup")}
    return _spec(P.canonical(asked))


@lru_cache(maxsize=256)
def _spec(asked: str) -> QueueSpec:
    from fastsim.queueing import make_spec

    given = msgspec.json.decode(asked)
    for name in ("speeds", "cutoffs"):
        if name in given:
            given[name] = _numbers(name, given[name])
    if "trace" in given:
        path, digest = given.pop("trace"), given.pop("trace_digest")
        given["arrivals"] = _timestamps(path, digest, given.pop("time_unit", None))
    return make_spec(**given, allow_unstable=True)


@lru_cache(maxsize=4)
def _timestamps(path: str, digest: str, time_unit: str | None) -> Any:
    from fastsim.workloads import load

    return load(path, time_unit=time_unit).arrival_s


def settle(cells: Sequence[Params], seed: int, note: Callable[[str], None]) -> list[Params]:
    """Give the cells of one workload that ask for it the same warm-up, by MSER-5 on pilot runs."""
    from fastsim.queueing import warmup as lengths

    asking = [cell for cell in cells if cell["warmup"] == MSER5]
    if not asking:
        return list(cells)
    found = lengths.settle([spec_of(cell) for cell in asking], seed, max(c["requests"] for c in asking))
    if not found.long_enough:
        words = ", ".join(f"{name} {value}" for name, value in workload_of(asking[0]).items())
        note(f"runs had not settled after half of their length; ask for more requests ({words})")

    def settled(cell: Params) -> Params:
        requests = lengths.fit_to_trace(spec_of(cell), found.warmup, cell["requests"], insisted=False)
        return {**cell, "warmup": found.warmup, "requests": requests}

    return [settled(cell) if cell["warmup"] == MSER5 else cell for cell in cells]


def run(params: Params, workload: None, seed: int, replicate: int) -> dict[str, Any]:
    """Simulate one replication and report its figures."""
    from fastsim.queueing import run_once
    from fastsim.queueing import warmup as lengths
    from fastsim.queueing.capacity import offered_load

    (params,) = settle([params], seed, lambda text: None)  # nothing to do in a sweep, which settles first
    spec = spec_of(params)
    warmup, requests = params["warmup"], params["requests"]
    found = run_once(spec, seed, replicate, warmup=warmup, requests=requests, ps=QUANTILES)
    fcfs = spec.discipline == "fcfs"
    return {
        "warmup_s": warmup / spec.arrivals.rate,
        "samples": requests - found.unfinished,
        "stable": lengths.keeps_up(spec, seed),
        "offered_load": offered_load(spec, seed),
        "response_mean": found.values["response_mean"],
        "response_p50": found.response[0.5],
        "response_p90": found.response[0.9],
        "response_p95": found.response[0.95],
        "response_p99": found.response[0.99],
        "response_p999": found.response[0.999],
        "wait_mean": found.values["wait_mean"] if fcfs else None,
        "wait_p99": found.wait[0.99] if fcfs else None,
        "no_wait": found.values["no_wait"] if fcfs else None,
        "queue_length": found.values["queue_length"],
        "idle": found.values["idle"],
    }


def warmup(cells: Sequence[Params], note: Callable[[str], None]) -> None:
    """Compile what each cell needs on a short run of it."""
    if any("trace" in cell for cell in cells):
        note("every seed has the arrivals of the trace; only sizes and choices differ")
    for cell in cells:
        run({**cell, "warmup": 10, "requests": 100}, None, 0, 0)


def estimates(cells: Sequence[Params]) -> list[str]:
    """What a table of these cells estimates."""
    warmups = sorted({cell["warmup"] for cell in cells if cell["warmup"] != MSER5})
    if not warmups:
        return []
    span = " to ".join(f"{edge:,}" for edge in dict.fromkeys((warmups[0], warmups[-1])))
    state = "steady" if warmups[-1] > 0 else "transient"
    return [
        "estimated: the mean over runs of each run's own figure (its mean, its P99)",
        f"{state}: queues begin empty, and the first {span} requests are left out",
    ]


TIME = "mean service times"
METRICS = {
    "warmup_s": Metric("warm-up deleted", TIME),
    "samples": Metric("requests used", type=int),
    "stable": Metric("stable", type=bool),
    "offered_load": Metric("offered load"),
    "response_mean": Metric("mean response", TIME),
    "response_p50": Metric("median response", TIME, tail=True),
    "response_p90": Metric("P90 response", TIME, tail=True),
    "response_p95": Metric("P95 response", TIME, tail=True),
    "response_p99": Metric("P99 response", TIME, tail=True),
    "response_p999": Metric("P99.9 response", TIME, tail=True),
    "wait_mean": Metric("mean wait", TIME, optional=True),
    "wait_p99": Metric("P99 wait", TIME, tail=True, optional=True),
    "no_wait": Metric("fraction served at once", optional=True),
    "queue_length": Metric("requests a server"),
    "idle": Metric("idle fraction"),
}

# What decides arrivals and sizes, which are drawn anew from the seed in every run: nothing is prepared.
INPUT = ("servers", "speeds", "utilisation", "rate", "size", "arrivals", "trace", "trace_digest", "time_unit")


def workload_of(params: Params) -> Params:
    """The parameters that decide arrivals and sizes."""
    return {name: params[name] for name in INPUT if name in params}


QUEUEING = Experiment(
    name="queueing",
    doc="Servers behind a dispatcher: classic load balancing.",
    parameters=lambda: list(Question.__struct_fields__),
    lists=lambda: ["speeds", "cutoffs"],
    validate=validate,
    workload=workload_of,
    settle=settle,
    prepare=lambda params, seed, replicate: None,
    run=run,
    metrics=METRICS,
    table=("response_mean", "response_p99"),
    contrast=("response_mean", "response_p99"),
    compare="dispatcher",
    estimates=estimates,
    warmup=warmup,
)
