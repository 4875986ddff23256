"""One queueing question, checked: servers, dispatcher, arrivals, sizes, and what is known of the queues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike, NDArray

from fastsim.errors import InputError
from fastsim.queueing.arrivals import Arrivals, Timestamps
from fastsim.queueing.arrivals import arrivals as arrival_process
from fastsim.queueing.capacity import known_capacity
from fastsim.queueing.checks import numbers
from fastsim.queueing.dispatchers import AGES, DISCIPLINES, DISPATCHERS, UPDATES, Dispatcher
from fastsim.queueing.laws import Empirical, Law, law
from fastsim.typed import checked, named

__all__ = ["QueueSpec", "make_spec"]

Array = NDArray[np.float64]

SERVERS_MAX = 1_000_000
Servers = Annotated[int, Meta(ge=1, le=SERVERS_MAX)]
Dispatchers = Annotated[int, Meta(ge=1, le=100_000_000)]
Positive = Annotated[float, Meta(gt=0.0, le=1e300)]
Period = Annotated[float, Meta(ge=0.0, le=1e300)]
COUNTS_MAX = 100_000_000
POSTS_MAX = 10_000
AGE_MAX = 10_000_000
REACH = (1e-7, 1e10)  # mean times of service that histograms can tell


@dataclass(frozen=True, eq=False)
class QueueSpec:
    """A checked question; made by `make_spec`, whose parameters explain the attributes.

    Attributes
    ----------
    servers : int
    dispatcher : Dispatcher
    arrivals : Arrivals
        At its final rate.
    size : Law
    discipline : str
    speeds : float64[servers]
    d : int
    replacement, memory, add_own : bool
    cutoffs : float64[servers - 1] or None
        Ascending sizes, for SITA.
    update, age : str
    period : float
    dispatchers : int
    """

    servers: int
    dispatcher: Dispatcher
    arrivals: Arrivals
    size: Law
    discipline: str
    speeds: Array
    d: int
    replacement: bool
    memory: bool
    cutoffs: Array | None
    update: str
    period: float
    age: str
    dispatchers: int
    add_own: bool

    @property
    def utilisation(self) -> float:
        """Work that arrives over work that can be done, per time unit."""
        return self.arrivals.rate * self.size.mean / float(self.speeds.sum())

    @property
    def equal_speeds(self) -> bool:
        """Whether all servers are alike."""
        return bool((self.speeds == self.speeds[0]).all())

    @property
    def variability(self) -> float:
        """(c_a^2 + c_s^2) / 2; gaps that depend on one another count as Poisson."""
        gaps = self.arrivals.scv
        return 0.5 * ((1.0 if math.isnan(gaps) else gaps) + self.size.scv)

    @cached_property
    def loads(self) -> Array | None:
        """Utilisation of each server where the dispatcher reads no queue and it is known, else None."""
        if self.dispatcher.score is not None:
            return None
        if self.dispatcher.name == "sita":
            return self._interval_loads()
        fast = self.speeds if self.dispatcher.name == "weighted_random" else np.ones(self.servers)
        return self.arrivals.rate * self.size.mean * fast / fast.sum() / self.speeds

    def _interval_loads(self) -> Array | None:
        assert self.cutoffs is not None
        try:
            up_to = [0.0, *(self.size.partial_mean(float(c)) for c in self.cutoffs), self.size.mean]
        except InputError:
            return None
        return self.arrivals.rate * np.diff(up_to) / self.speeds

    @cached_property
    def capacity(self) -> float | None:
        """Arrivals per time unit at which a steady state ends; None if no formula is known."""
        return known_capacity(self)

    @property
    def stable(self) -> bool:
        """Whether less is offered than can be done, as far as that is known beforehand."""
        return self.utilisation < 1.0 and (self.capacity is None or self.arrivals.rate < self.capacity)


@checked
def make_spec(
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
) -> QueueSpec:
    """Check a question; the parameters are those of `simulate`.

    Raises
    ------
    InputError
        For an unknown name, a number out of its range, parameters that do not fit one another, or a load at
        or above capacity without consent.
    """
    chosen = named("dispatcher", dispatcher, DISPATCHERS)
    named("discipline", discipline, {name: name for name in DISCIPLINES})
    named("update", update, UPDATES)
    named("age", age, AGES)
    fast = np.ones(servers) if speeds is None else numbers("speeds", speeds)
    if fast.shape != (servers,) or not (np.isfinite(fast).all() and fast.min() > 0.0):
        raise InputError(f"speeds must hold one finite number above 0 for each of the {servers} servers")
    law_of_size = law(size) if isinstance(size, str | Law) else Empirical(numbers("size", size))
    process = _at_rate(arrival_process(arrivals), utilisation, rate, law_of_size.mean / float(fast.sum()))
    if chosen.name == "central_queue" and (discipline != "fcfs" or update != "live"):
        raise InputError("dispatcher is central_queue; it is FCFS and has no old information")
    spec = QueueSpec(
        servers=servers,
        dispatcher=chosen,
        arrivals=process,
        size=law_of_size,
        discipline=discipline,
        speeds=fast,
        d=_choices(chosen, d, servers),
        replacement=replacement,
        memory=_taken(chosen, "memory", memory, False),
        cutoffs=_cutoffs(chosen, cutoffs, law_of_size, fast),
        update="live" if update in ("periodic", "continuous", "individual") and period == 0.0 else update,
        period=_period(update, period),
        age=age,
        dispatchers=dispatchers,
        add_own=add_own,
    )
    if add_own and update not in ("periodic", "individual"):
        raise InputError(
            f"add_own adds to what is posted; it needs update periodic or individual, not {update}"
        )
    _check_cost(spec)
    if not spec.stable and not allow_unstable:
        _refuse(spec)
    return spec


def _check_cost(spec: QueueSpec) -> None:
    """Refuse what would take memory or time without end."""
    apart = spec.dispatchers if spec.update == "own" or spec.add_own else 1
    if apart * spec.servers + spec.dispatchers > COUNTS_MAX:
        raise InputError(
            f"dispatchers is {spec.dispatchers}; counts of {spec.servers} servers for each are more than "
            f"{COUNTS_MAX}"
        )
    posts = {"periodic": 1, "individual": spec.servers}.get(spec.update, 0)
    if posts > POSTS_MAX * spec.period * spec.arrivals.rate:
        raise InputError(
            f"period is {spec.period:g}; that is more than {POSTS_MAX} updates an arrival, 0 is live"
        )
    if spec.period * spec.arrivals.rate > AGE_MAX:
        raise InputError(f"period is {spec.period:g}; more than {AGE_MAX:g} arrivals in one are too many")
    shortest, longest = (spec.size.mean / float(speed) for speed in (spec.speeds.max(), spec.speeds.min()))
    if shortest < REACH[0] or longest > REACH[1]:
        raise InputError(
            f"speeds make times of service outside [{REACH[0]:g}, {REACH[1]:g}]; take another unit of time"
        )


def _refuse(spec: QueueSpec) -> None:
    if spec.utilisation >= 1.0:
        raise InputError(
            f"the utilisation is {spec.utilisation:g}; a steady state needs one in (0, 1), "
            "or say allow_unstable to run without one"
        )
    consent = "or say allow_unstable to run without one"
    if spec.loads is None:
        assert spec.capacity is not None
        raise InputError(
            f"{spec.dispatcher.name} keeps up with less than {spec.capacity:g} arrivals per time unit, as "
            f"slow servers get more than they can do; the rate is {spec.arrivals.rate:g}; lower it, {consent}"
        )
    worst = int(np.argmax(spec.loads))
    raise InputError(
        f"{spec.dispatcher.name} gives server {worst} a utilisation of {spec.loads[worst]:g}; a steady state "
        f"needs every one below 1, {consent}"
    )


def _at_rate(
    process: Arrivals, utilisation: float | None, rate: float | None, time_of_one: float
) -> Arrivals:
    if utilisation is not None and rate is not None:
        raise InputError("both utilisation and rate are given; one says all")
    if utilisation is not None:
        return process.at_rate(utilisation / time_of_one)
    if rate is not None:
        return process.at_rate(rate)
    if isinstance(process, Timestamps):
        return process
    raise InputError("neither utilisation nor rate is given; one is needed unless arrivals are timestamps")


def _choices(chosen: Dispatcher, d: int | None, servers: int) -> int:
    if "d" not in chosen.takes:
        if d is not None:
            raise InputError(f"dispatcher {chosen.name} takes no d; {chosen.name}_d may be meant")
        return 1
    wanted = min(2, servers) if d is None else d
    if not 1 <= wanted <= servers:
        raise InputError(f"d is {wanted}; {servers} servers allow 1 to {servers}")
    return wanted


def _taken(chosen: Dispatcher, name: str, value: bool, default: bool) -> bool:
    if value != default and name not in chosen.takes:
        raise InputError(f"dispatcher {chosen.name} takes no {name}")
    return value


def _period(update: str, period: float) -> float:
    if update in ("live", "own") and period > 0.0:
        raise InputError(f"period is {period} but update is {update}, which is never old")
    return period


def _cutoffs(chosen: Dispatcher, cutoffs: Sequence[float] | None, size: Law, speeds: Array) -> Array | None:
    if chosen.name != "sita":
        if cutoffs is not None:
            raise InputError(f"dispatcher {chosen.name} takes no cutoffs")
        return None
    if cutoffs is None:
        return equal_load_cutoffs(size, speeds)
    given = numbers("cutoffs", cutoffs)
    if given.shape != (speeds.size - 1,) or not np.isfinite(given).all() or (np.diff(given) < 0.0).any():
        raise InputError(f"cutoffs must be {speeds.size - 1} ascending sizes for {speeds.size} servers")
    return given


def equal_load_cutoffs(size: Law, speeds: Array) -> Array:
    """Size intervals that load every server alike relative to its speed (SITA-E).

    Parameters
    ----------
    size : Law
        With a known `partial_mean`.
    speeds : float64[N]
        The first server gets the smallest sizes.

    Returns
    -------
    float64[N - 1]
        Ascending sizes, to a relative error of 1e-12.

    Notes
    -----
    Source: Harchol-Balter, Crovella and Murta, "On choosing a task assignment policy for a distributed server
    system", Journal of Parallel and Distributed Computing 59 (1999).
    """
    shares = np.cumsum(speeds)[:-1] / speeds.sum() * size.mean
    found, low = np.empty(shares.size), 0.0
    for k, share in enumerate(shares):
        step = size.mean
        while size.partial_mean(low + step) < share:
            step *= 2.0
        high = low + step
        while high - low > 1e-12 * high:
            middle = 0.5 * (low + high)
            low, high = (middle, high) if size.partial_mean(middle) < share else (low, middle)
        found[k] = low = high
    return found
