"""Ask a queueing question: servers behind a dispatcher, simulated until the answer is known well enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta
from numpy.typing import ArrayLike

from fastsim._interrupt import hears_interrupts, in_threads
from fastsim._memory import require_memory
from fastsim.queueing import views
from fastsim.queueing.arrivals import Arrivals
from fastsim.queueing.capacity import offered_load
from fastsim.queueing.expected import expected
from fastsim.queueing.laws import Law
from fastsim.queueing.result import QueueResult, label, per_replication, summarise_runs
from fastsim.queueing.run import RunResult, run_once
from fastsim.queueing.spec import Dispatchers, Period, Positive, QueueSpec, Servers, make_spec
from fastsim.queueing.warmup import (
    Settled,
    default_requests,
    fit_to_trace,
    keeps_up,
    settle,
    wanted_requests,
)
from fastsim.stats import StoppingRule
from fastsim.typed import Seed, Share, Threads, checked

__all__ = ["answer", "simulate"]

Requests = Annotated[int, Meta(ge=1, le=10**12)]  # days of one core
Warmup = Annotated[int, Meta(ge=0, le=10**12)]
Replications = Annotated[int, Meta(ge=1, le=10**6)]


@checked
def simulate(
    servers: Servers = 1,
    dispatcher: str = "random",
    *,
    utilisation: Positive | None = None,
    rate: Positive | None = None,
    size: str | Law | ArrayLike = "exponential",
    arrivals: str | Arrivals | ArrayLike = "poisson",
    discipline: str = "fcfs",
    speeds: Sequence[Positive] | None = None,
    d: Servers | None = None,
    replacement: bool = True,
    memory: bool = False,
    cutoffs: Sequence[float] | None = None,
    update: str = "live",
    period: Period = 0.0,
    age: str = "constant",
    dispatchers: Dispatchers = 1,
    add_own: bool = False,
    allow_unstable: bool = False,
    requests: Requests | None = None,
    replications: Replications = 10,
    warmup: Warmup | None = None,
    rel_half_width: Share | None = None,
    max_replications: Replications = 1000,
    quantiles: Sequence[Share] = (0.5, 0.9, 0.99),
    level: Share = 0.95,
    seed: Seed = 0,
    workers: Threads = 1,
    keep_samples: bool = False,
    queue_lengths: bool = False,
) -> QueueResult:
    """Simulate servers behind a dispatcher and report steady-state times with confidence intervals.

    Parameters
    ----------
    servers : int
        N, 1 to a million.
    dispatcher : str
        A name in `fastsim.queueing.DISPATCHERS`.
    utilisation : float, optional
        Work offered over work that can be done, below 1. One of `utilisation` and `rate` is needed, unless
        arrivals are timestamps.
    rate : float, optional
        Arrivals per time unit, over all servers.
    size : str, Law or array_like
        Law of the sizes (`fastsim.queueing.laws`), mean 1 unless told otherwise: ``"lognormal(cv=3)"``. An
        array is drawn from, with replacement.
    arrivals : str, Arrivals or array_like
        ``"poisson"``, ``"renewal(cv=2)"``, ``"modulated(levels=(1, 3), stays=(50, 10))"``, or a trace's
        timestamps.
    discipline : {"fcfs", "ps"}
        How a server treats its requests: in order of arrival, or all at once.
    speeds : sequence of float, optional
        Work each server does a time unit; 1 unless given.
    d : int, optional
        Servers that ``jsq_d``, ``lwl_d`` and ``sed_d`` look at; 2 unless given.
    replacement : bool
        Whether these are drawn with replacement.
    memory : bool
        Whether the best of them, after placing the request, is looked at again next time.
    cutoffs : sequence of float, optional
        N - 1 ascending sizes for ``sita``; equal loads unless given.
    update : {"live", "periodic", "continuous", "individual", "own"}
        What a dispatcher that reads queues knows: them as they are; a board refreshed every `period`; them as
        they were some time ago (of mean `period`); what each server posts now and then (every `period` on
        average); or only what it has sent itself and not heard back. Looking back at all queues takes time in
        proportion to their number, everything else its logarithm at most.
    period : float
        In the time unit of the sizes; 0 is live.
    age : {"constant", "uniform", "exponential"}
        Law of the age (continuous) or of the time between posts (individual); uniform on 0 to twice the mean.
    dispatchers : int
        Requests come to one of them at random; each has its own turn, memory, and counts (`update` own,
        `add_own`).
    add_own : bool
        Whether a dispatcher adds what it has sent since to what is posted.
    allow_unstable : bool
        Simulate a load at or above capacity all the same, without quantiles.
    requests : int, optional
        Measured in each replication; by default long enough for the quantiles (`warmup.default_requests`).
    replications : int
        Independent runs.
    warmup : int, optional
        Requests left out at the start of each; by default found by pilot runs (`warmup.settle`).
    rel_half_width : float, optional
        Add replications until the mean and all quantiles are known to this relative half-width, at least 10
        of them.
    max_replications : int
        Cap on those.
    quantiles : sequence of float
        Probabilities in (0, 1).
    level : float
        Of every interval by itself.
    seed : int
        Not negative. The same seed gives the same bits whatever `workers` is, and the same arrivals and sizes
        whatever the dispatcher is.
    workers : int
        Threads.
    keep_samples : bool
        Keep all response times; quantiles are then exact order statistics, else within 0.2 % of them.
    queue_lengths : bool
        Also report how many requests a server holds.

    Returns
    -------
    QueueResult
        Times in the unit of the sizes: mean service times, unless the sizes have another mean.

    Raises
    ------
    InputError
        For anything out of its range, before anything runs.
    """
    spec = make_spec(
        servers,
        dispatcher,
        utilisation=utilisation,
        rate=rate,
        size=size,
        arrivals=arrivals,
        discipline=discipline,
        speeds=speeds,
        d=d,
        replacement=replacement,
        memory=memory,
        cutoffs=cutoffs,
        update=update,
        period=period,
        age=age,
        dispatchers=dispatchers,
        add_own=add_own,
        allow_unstable=allow_unstable,
    )
    return answer(
        spec,
        requests=requests,
        replications=replications,
        warmup=warmup,
        rel_half_width=rel_half_width,
        max_replications=max_replications,
        quantiles=quantiles,
        level=level,
        seed=seed,
        workers=workers,
        keep_samples=keep_samples,
        queue_lengths=queue_lengths,
    )


@hears_interrupts
@checked
def answer(
    spec: QueueSpec,
    *,
    requests: Requests | None = None,
    replications: Replications = 10,
    warmup: Warmup | None = None,
    rel_half_width: Share | None = None,
    max_replications: Replications = 1000,
    quantiles: Sequence[Share] = (0.5, 0.9, 0.99),
    level: Share = 0.95,
    seed: Seed = 0,
    workers: Threads = 1,
    keep_samples: bool = False,
    queue_lengths: bool = False,
) -> QueueResult:
    """Simulate a checked question; see `simulate` for the parameters."""
    ps = tuple(quantiles)
    rule = _rule(rel_half_width, max_replications, level)
    planned = default_requests(spec, ps) if requests is None else requests
    if keep_samples:
        runs = replications if rel_half_width is None else max_replications
        require_memory(16.0 * planned * runs, f"keep_samples: {planned:,} requests in each of {runs:,} runs")
    settled = Settled(0, True, keeps_up(spec, seed)) if warmup is not None else settle(spec, seed, planned)
    left_out = settled.warmup if warmup is None else warmup
    measured = fit_to_trace(spec, left_out, planned, insisted=requests is not None)

    def replicate(r: int) -> RunResult:
        return run_once(
            spec,
            seed,
            r,
            warmup=left_out,
            requests=measured,
            ps=ps,
            keep_samples=keep_samples,
            queue_lengths=queue_lengths,
        )

    results = in_threads(replicate, range(rule.start if rel_half_width else replications), workers)
    reached = None
    while rel_half_width is not None:
        reached, more = _decide(rule, results, ps)
        if not more:
            break
        results += in_threads(replicate, range(len(results), len(results) + more), workers)
    return summarise_runs(
        spec,
        results,
        ps,
        stable=settled.stable,
        offered_load=offered_load(spec, seed),
        requests=measured,
        warmup=left_out,
        level=level,
        theory=expected(spec, ps),
        reached=reached,
        notes=_notes(spec, settled, results, ps, measured),
    )


def _decide(rule: StoppingRule, results: Sequence[RunResult], ps: Sequence[float]) -> tuple[bool, int]:
    """Whether all that counts is known well enough, and how many replications to add."""
    runs = per_replication(results, ps)
    names = ["response_mean", *(f"response_{label(p)}" for p in ps)]
    decisions = [rule.decide(runs[name]) for name in names]
    return all(d.reached for d in decisions), max(d.more for d in decisions)


def _rule(rel_half_width: float | None, max_replications: int, level: float) -> StoppingRule:
    width = 0.02 if rel_half_width is None else rel_half_width
    if rel_half_width is None:
        return StoppingRule(width, level)
    return StoppingRule(width, level, start=min(10, max_replications), maximum=max_replications)


def _notes(
    spec: QueueSpec, settled: Settled, results: Sequence[RunResult], ps: Sequence[float], requests: int
) -> list[str]:
    notes = []
    wanted = wanted_requests(spec, ps) if settled.stable else 0
    if not settled.stable:
        notes.append("the load is at or above capacity: there is no steady state, and no quantile of one")
    if not settled.long_enough:
        notes.append("the runs had not settled after half of their length; ask for more requests")
    elif requests < wanted and spec.arrivals.count is None:
        notes.append(f"runs of {wanted:,} requests are wanted here; shorter ones bias means and quantiles")
    blind = spec.dispatcher.rule == views.GIVEN and spec.dispatcher.name != "sita"
    if spec.discipline == "fcfs" and math.isinf(spec.size.second_moment) and (blind or spec.servers == 1):
        notes.append("sizes have infinite variance: the mean wait is infinite, only quantiles mean anything")
    unfinished = sum(r.unfinished for r in results)
    if unfinished:
        notes.append(f"{unfinished} requests had not left when the runs ended and are not counted")
    return notes
