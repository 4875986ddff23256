"""Servers behind a dispatcher as an experiment; times are in mean service times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from fastsim.errors import InputError
from fastsim.sweep import params as P
from fastsim.sweep.experiments.experiment import Experiment, Metric
from fastsim.sweep.params import Params, check_keys

if TYPE_CHECKING:
    from fastsim.queueing import QueueSpec

QUANTILES = (0.5, 0.9, 0.99)


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of `fastsim.queueing.simulate`; those of one dispatcher only are left out for the others.

    Attributes
    ----------
    requests, warmup : int or None
        Measured, and left out before them; by default `warmup.default_requests` and `warmup.least_warmup`.
    """

    dispatcher: str = "random"
    servers: int = 1
    utilisation: float = 0.9
    size: str = "exponential"
    arrivals: str = "poisson"
    discipline: str = "fcfs"
    d: int = 2
    replacement: bool = True
    memory: bool = False
    update: str = "live"
    period: float = 0.0
    age: str = "constant"
    dispatchers: int = 1
    add_own: bool = False
    requests: Annotated[int, Meta(ge=1)] | None = None
    warmup: Annotated[int, Meta(ge=0)] | None = None


def validate(raw: Mapping[str, Any]) -> Params:
    """All parameters of a cell, defaults filled in, those that mean nothing to its dispatcher left out."""
    from fastsim.queueing import warmup as lengths

    check_keys(raw, Question.__struct_fields__, "[base]")
    try:
        given = msgspec.to_builtins(msgspec.convert(raw, Question))
    except msgspec.ValidationError as error:
        raise InputError(f"queueing: {error}") from None
    params = _own(given)
    spec = _spec(P.canonical(_asked(params)))
    if params["requests"] is None:
        params["requests"] = lengths.default_requests(spec, QUANTILES)
    if params["warmup"] is None:
        params["warmup"] = lengths.least_warmup(spec)
    return params


def _own(given: Params) -> Params:
    """One table of parameters serves all dispatchers of a sweep."""
    from fastsim.queueing import DISPATCHERS

    known = DISPATCHERS.get(given["dispatcher"])  # an unknown one is refused with the rest
    takes = known.takes if known else ()
    return {
        name: value
        for name, value in given.items()
        if name not in ("d", "replacement", "memory") or name in takes
    }


def _asked(params: Params) -> Params:
    return {name: value for name, value in params.items() if name not in ("requests", "warmup")}


@lru_cache(maxsize=256)
def _spec(asked: str) -> QueueSpec:
    from fastsim.queueing import make_spec

    return make_spec(**msgspec.json.decode(asked))


def run(params: Params, workload: None, seed: int, replicate: int) -> dict[str, Any]:
    """Simulate one replication and report its figures."""
    from fastsim.queueing import run_once

    spec = _spec(P.canonical(_asked(params)))
    warmup, requests = params["warmup"], params["requests"]
    found = run_once(spec, seed, replicate, warmup=warmup, requests=requests, ps=QUANTILES)
    fcfs = spec.discipline == "fcfs"
    return {
        "warmup_s": warmup / spec.arrivals.rate,
        "samples": requests - found.unfinished,
        "response_mean": found.values["response_mean"],
        "response_p50": found.response[0.5],
        "response_p90": found.response[0.9],
        "response_p99": found.response[0.99],
        "wait_mean": found.values["wait_mean"] if fcfs else None,
        "wait_p99": found.wait[0.99] if fcfs else None,
        "no_wait": found.values["no_wait"] if fcfs else None,
        "queue_length": found.values["queue_length"],
        "idle": found.values["idle"],
    }


def warmup(cells: Sequence[Params], note: Callable[[str], None]) -> None:
    """Compile what each cell needs on a short run of it."""
    for cell in cells:
        run({**cell, "warmup": 10, "requests": 100}, None, 0, 0)


TIME = "mean service times"
METRICS = {
    "warmup_s": Metric("warm-up deleted", TIME),
    "samples": Metric("requests used", type=int),
    "response_mean": Metric("mean response", TIME),
    "response_p50": Metric("median response", TIME),
    "response_p90": Metric("P90 response", TIME),
    "response_p99": Metric("P99 response", TIME),
    "wait_mean": Metric("mean wait", TIME),
    "wait_p99": Metric("P99 wait", TIME),
    "no_wait": Metric("fraction served at once"),
    "queue_length": Metric("requests a server"),
    "idle": Metric("idle fraction"),
}

# What decides arrivals and sizes, which are drawn anew from the seed in every run: nothing is prepared.
INPUT = ("servers", "utilisation", "size", "arrivals")

QUEUEING = Experiment(
    name="queueing",
    doc="Servers behind a dispatcher: classic load balancing.",
    parameters=lambda: list(Question.__struct_fields__),
    validate=validate,
    workload=lambda params: {name: params[name] for name in INPUT},
    prepare=lambda params, seed, replicate: None,
    run=run,
    metrics=METRICS,
    table=("response_mean", "response_p99"),
    contrast=("response_mean", "response_p99"),
    compare="dispatcher",
    warmup=warmup,
)
