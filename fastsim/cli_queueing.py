"""Commands of classic load balancing and of the lecture's figures; `fastsim.cli` registers them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from fastsim.cli_shared import Json, Whole, print_json
from fastsim.errors import InputError


def queue(
    *,
    servers: Whole = 1,
    dispatcher: str = "random",
    d: Whole | None = None,
    without_replacement: bool = False,
    memory: bool = False,
    cutoff: tuple[float, ...] = (),
    utilisation: float | None = None,
    rate: float | None = None,
    size: str = "exponential",
    arrivals: str = "poisson",
    trace: Path | None = None,
    time_unit: Literal["s", "ms", "us", "ns"] | None = None,
    discipline: str = "fcfs",
    speed: tuple[float, ...] = (),
    update: str = "live",
    period: float = 0.0,
    age: str = "constant",
    dispatchers: Whole = 1,
    add_own: bool = False,
    allow_unstable: bool = False,
    requests: Whole | None = None,
    replications: Whole = 10,
    warmup: Whole | None = None,
    rel_half_width: float | None = None,
    quantile: tuple[float, ...] = (0.5, 0.9, 0.99),
    seed: Whole = 0,
    jobs: Whole | None = None,
    as_json: Json = False,
) -> None:
    """Simulate servers behind a dispatcher: response times with intervals, and theory where there is any.

    Parameters
    ----------
    servers
        Number of servers.
    dispatcher
        random, weighted_random, round_robin, sita, jsq, jsq_d, lwl, lwl_d, sed, sed_d, jiq or central_queue.
    d
        Servers that jsq_d, lwl_d and sed_d look at, by default 2.
    without_replacement
        Look at d different servers.
    memory
        Look at the best of the last d again.
    cutoff
        Size at which sita goes on to the next server, by default equal loads. May be repeated.
    utilisation
        Work offered over work that can be done, below 1; this or the rate.
    rate
        Arrivals per time unit, over all servers.
    size
        Law of the sizes, such as exponential, "lognormal(cv=3)" or "bounded_pareto(alpha=1.5, ratio=1e4)".
    arrivals
        poisson, "renewal(cv=2)" or "modulated(levels=(1, 3), stays=(50, 10))".
    trace
        File in any format of `fastsim workloads`, whose timestamps are the arrivals.
    time_unit
        Unit of the trace's times, by default that of its format.
    discipline
        How a server treats its requests: fcfs or ps.
    speed
        Work a server does in a time unit, one for each server. May be repeated.
    update
        What the dispatcher knows of queues: live, periodic, continuous, individual or own.
    period
        Age of what it knows, in the time unit of the sizes.
    age
        Law of that age: constant, uniform or exponential.
    dispatchers
        Dispatchers that requests are split over.
    add_own
        Dispatchers add what they have sent since to what is posted.
    allow_unstable
        Simulate an overload all the same, without quantiles.
    requests
        Measured in each replication, by default enough for the quantiles.
    replications
        Independent runs, where no relative half-width is asked for.
    warmup
        Requests left out before, by default found by pilot runs.
    rel_half_width
        Add replications until the mean and the quantiles are known to this relative half-width.
    quantile
        Probability of a quantile. May be repeated.
    seed
        Root of all random streams.
    jobs
        Threads, by default the number of cores.
    as_json
        Print JSON.
    """
    from fastsim.queueing import simulate
    from fastsim.report import queueing as text

    found = simulate(
        servers,
        dispatcher,
        utilisation=utilisation,
        rate=rate,
        size=size,
        arrivals=_timestamps(trace, time_unit) if trace else arrivals,
        discipline=discipline,
        speeds=speed or None,
        d=d,
        replacement=not without_replacement,
        memory=memory,
        cutoffs=cutoff or None,
        update=update,
        period=period,
        age=age,
        dispatchers=dispatchers,
        add_own=add_own,
        allow_unstable=allow_unstable,
        requests=requests,
        replications=replications,
        warmup=warmup,
        rel_half_width=rel_half_width,
        quantiles=quantile,
        seed=seed,
        workers=_workers(jobs),
    )
    print_json(found.to_dict()) if as_json else print(text.queue(found))


def balls(
    *,
    bins: Whole,
    balls: Whole | None = None,
    choices: Whole = 2,
    without_replacement: bool = False,
    beta: float = 1.0,
    rule: Literal["random", "left"] = "random",
    weights: str | None = None,
    trials: Whole | None = None,
    seed: Whole = 0,
    jobs: Whole | None = None,
    as_json: Json = False,
) -> None:
    """Throw balls into bins and report the fullest bin, with theory where there is any.

    Parameters
    ----------
    bins
        Number of bins.
    balls
        Number of balls, by default as many as bins.
    choices
        Bins that each ball looks at, to go to the emptiest.
    without_replacement
        Look at different bins.
    beta
        Fraction of the balls that have their choices; the others have one.
    rule
        random, or left for always-go-left.
    weights
        Law of the balls' weights, such as exponential; all weigh 1 by default.
    trials
        Independent repetitions, by default between 30 and 10,000.
    seed
        Root of all random streams.
    jobs
        Threads, by default the number of cores.
    as_json
        Print JSON.
    """
    from fastsim.queueing import balls as throw
    from fastsim.report import queueing as text

    found = throw(
        bins,
        balls,
        choices,
        replacement=not without_replacement,
        beta=beta,
        rule=rule,
        weights=weights,
        trials=trials,
        seed=seed,
        workers=_workers(jobs),
    )
    print_json(found.to_dict()) if as_json else print(text.balls(found))


def lecture(
    *codes: str,
    rel_half_width: float | None = None,
    jobs: Whole | None = None,
    markdown: bool = False,
    as_json: Json = False,
) -> None:
    """Print every figure of the lecture's codes beside ours, with an interval and a verdict.

    Parameters
    ----------
    codes
        01 is classic load balancing, 02 affinity against balance, 03 Preble, 04 which model for which module;
        exercises. By default all.
    rel_half_width
        Add seeds until means are known to this relative half-width, by default 0.05 (02, 03, exercises).
    jobs
        Threads, by default the number of cores.
    markdown
        Print a page: docs/reproduction.md.
    as_json
        Print JSON.
    """
    from fastsim.report import lecture as report

    found = report.rows(codes, _workers(jobs), rel_half_width)
    if as_json:
        print_json([row.to_dict() for row in found])
    else:
        print(report.markdown(found) if markdown else report.table(found))


def _timestamps(trace: Path, time_unit: str | None) -> Any:
    from fastsim.workloads import load

    return load(trace, time_unit=time_unit).arrival_s


def _workers(jobs: Whole | None) -> int:
    from fastsim.sweep.backends import default_jobs

    if jobs is not None and jobs < 1:
        raise InputError(f"jobs is {jobs}; it must be at least 1")
    return jobs or default_jobs()
