"""The highest rate that a cluster and its router can finish, from a run in which all work waits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from fastsim._interrupt import checkpoint
from fastsim.cluster import _saturated as gates
from fastsim.cluster import _state as st
from fastsim.cluster.config import Cluster
from fastsim.cluster.routers.view import deaf, pack_views
from fastsim.cluster.simulate import begun, repaired
from fastsim.workloads import Workload
from fastsim.workloads.transforms import repeat

WAITING = (4, 16, 64)  # requests a replica that wait
ALONE = 4  # requests that come first, each when the one before has ended
BATCHES = 16  # into which what is measured is cut
REQUESTS, REQUESTS_A_REPLICA = 40.0, 1.75  # measured at each length of the queues, over the precision
BARRIER = 5.0  # a backlog gets out of a well this deep once in e^5 = 150 times that it takes to forget
MORE = 16  # times as many at most, where the precision is far or the rate drifts
DRIFT = 2.5  # standard errors by which the rates of a stretch's halves may differ
SAME_RATE = 0.01  # two rates in a row that are this close are one
SAME = 0.001  # of equal replicas, this share is taken to differ
ROUNDS = 6  # at most
BACKLOG = 2_000  # requests a router may be offered at once to see whether it refuses any


@dataclass(frozen=True)
class Capacity:
    """What a cluster and its router can do with a workload.

    Attributes
    ----------
    rps : float
        Requests per second that can be finished for ever; 0 where the router refuses all.
    error_rps : float
        Its standard error, from batch means.
    refuses : bool
        Whether the router refuses requests rather than let the backlog grow without end.
    requests : int
        On which the rate was measured, at each length of the queues.
    """

    rps: float
    error_rps: float
    refuses: bool
    requests: int

    def load(self, offered_rps: float | None) -> float | None:
        """Offered rate over capacity; None where there is none of either."""
        return None if offered_rps is None or self.rps == 0.0 else offered_rps / self.rps


def capacity(
    workload: Workload,
    cluster: Cluster,
    router: str = "round_robin",
    router_params: Mapping[str, Any] | None = None,
    *,
    view: str = "native",
    routers: int = 1,
    caches: str = "native",
    counted_from: str = "sent",
    seed: int = 0,
    replicate: int = 0,
    precision: float = 0.007,
) -> Capacity:
    """Measure the highest rate at which a cluster behind a router can finish a workload.

    Parameters
    ----------
    workload : Workload
        What is asked. Its arrival times and its length do not count: one made by `make` is made longer, any
        other is repeated, and repetitions share no tokens with each other.
    cluster, router, router_params, view, routers, caches, counted_from, seed, replicate
        As in `fastsim.simulate`. Restarts are left out, and replicas that join late are there from the start:
        the capacity is that of the whole cluster.
    precision : float
        Relative standard error aimed at. The run is as long as that usually takes, four times as long where
        it is not enough, and 16 times where it is missed by a factor of two even so, or the rate still drifts
        (long sessions take long to come up); see ``error_rps`` for what was reached.

    Returns
    -------
    Capacity

    Raises
    ------
    InputError
        As `fastsim.simulate`.

    Notes
    -----
    Four requests come alone, as in a quiet hour: a router that sends all to the first replica with a prefix
    does so from then on, here as in an open system. Then all work waits, and a request comes as soon as fewer
    than a number of others wait: first than one, then than two and so on. The rate X(k) is measured with k =
    4, 16 and 64 requests a replica waiting, after the caches are warm and before the queues empty. For most
    routers it grows with k, and the last one is the capacity. Routers that follow caches may lose hits where
    queues are long, as what they decide on is gone when it is needed: then an open system keeps up with more
    than X(64) as long as its backlog stays short. At the rate r the backlog is a random walk with the drift r
    - X(k) and the variance r (1 + c^2), c^2 that of the departures. It stays short for some e^B times the
    time it takes to forget, B = sum of 2 (X(k) / r - 1) / (1 + c^2) over the k with X(k) > r (Kramers' rule).
    The capacity is the highest rate with B = 5, at least X(64).

    Per replica, u = (share of the requests sent to it) x (busy time a request it finished) is the time it
    needs for one request of the cluster. The capacity is 1 / max(u): the replica that gets the most for its
    speed is the bottleneck, as in an open system, even while its queue still grows. An F test over the
    batches asks whether replicas differ at all; if not, the mean of u counts, else u is shrunk towards the
    mean as far as it is noise (James and Stein), for the maximum of noisy values is too high.

    Requests that a router refuses are offered again until it takes them, so that the capacity is that for all
    requests, not for those it prefers. Then, with everything that is left offered at once, it is seen whether
    it refuses any.

    Where another rate changes the order of the requests (sessions with think times of their own), the order
    is that at the capacity, found by repetition.
    """
    options: dict[str, Any] = {
        "view": view,
        "routers": routers,
        "caches": caches,
        "counted_from": counted_from,
        "seed": seed,
        "replicate": replicate,
    }
    whole = replace(cluster, restarts=None, joins_s=None)

    usual = (REQUESTS + REQUESTS_A_REPLICA * whole.replicas) / precision
    in_order = workload.origin is None or workload.origin.stretches
    rate_rps, times = float(whole.replicas), 1
    for _ in range(ROUNDS):
        plan = _plan(workload, whole.replicas, math.ceil(times * usual))
        more = _longer(workload, plan[-1][1] + BACKLOG, rate_rps)
        found, settled = _measure(Saturated(more, whole, router, router_params, options), plan)
        settled = settled or workload.origin is None  # in a trace no two parts are alike
        same = in_order or abs(found.rps - rate_rps) <= SAME_RATE * rate_rps
        if found.rps == 0.0:
            break
        rate_rps = found.rps
        missed = found.error_rps / (precision * found.rps)
        if times < MORE and (not settled or missed > max(1.0, math.sqrt(times))):
            times *= 4
        elif same or times == MORE:
            break
    return found


def _longer(workload: Workload, requests: int, rate_rps: float) -> Workload:
    """As many requests like the workload's as are wanted, or a few more."""
    if workload.origin is not None:
        return workload.origin.make(requests, rate_rps)
    n = len(workload)
    if n == 1:
        return _copies(workload, requests)
    spread = workload if workload.summary.span_s > 0.0 else replace(workload, arrival_s=np.arange(n) * 1e-3)
    return repeat(spread, -(-requests // n))


def _copies(workload: Workload, requests: int) -> Workload:
    """A single request, again and again; only its length is repeated, so nothing is shared."""
    index = np.zeros(requests, dtype=np.int64)
    alone = replace(
        workload,
        symbol_ptr=np.zeros(2, np.int64),
        symbols=np.empty(0, np.int64),
        symbol_tok=np.empty(0, np.int64),
        shared_symbols=np.zeros(1, np.int64),
        answer=np.full(1, -1),
    )
    return alone.arranged(index, np.arange(requests) * 1e-3)


# --- the run ------------------------------------------------------------------------------------------------

Plan = Sequence[tuple[int, int, bool]]  # requests that may wait, first request that does not come, measured


def _plan(workload: Workload, replicas: int, wanted: int) -> Plan:
    """Stretches of a run in which so many requests are measured; of a trace, whole repetitions."""
    settling = wanted // 2
    if workload.origin is None:
        wanted = -(-wanted // len(workload)) * len(workload)
    plan = [(waiting, alone, False) for alone in range(1, ALONE + 1) for waiting in (1, 0)]
    come, waiting = ALONE, 1
    for level in WAITING:
        while waiting < level * replicas:
            come += 4 * waiting
            plan.append((waiting, come, False))
            waiting *= 2
        waiting = level * replicas
        come += settling
        plan.append((waiting, come, False))
        plan += [(waiting, come + wanted * (k + 1) // BATCHES, True) for k in range(BATCHES)]
        come += wanted
        settling //= 2
    return plan


class Saturated:
    """A run whose requests come when there is room for them.

    Parameters
    ----------
    workload : Workload
        Its arrival times do not count.
    cluster : Cluster
        Without outages.
    router, router_params, options
        As `fastsim.simulate` has them.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        router: str,
        router_params: Mapping[str, Any] | None,
        options: Mapping[str, Any],
    ) -> None:
        self.policy, self.state, self.views = begun(workload, cluster, router, router_params, **options)
        self.state.pool[[st.COMING, st.UNTIL_PS]] = 0
        self.state.req[:, st.REPLICA] = gates.NOT_SENT
        self.follows = workload.follows if workload.is_closed else np.empty(0, np.int64)
        self.later = np.empty_like(self.follows)
        self.gate = np.zeros(gates.N_GATE, np.int64)
        self.gate[gates.LAST] = st.NONE

    def let_come(self, waiting: int, stop: int) -> None:
        """Run until that many requests have come, whenever fewer than `waiting` of them wait."""
        self.gate[[gates.WAITING, gates.STOP]] = waiting, stop
        heard = self.policy.heard or deaf
        while True:
            fault = int(
                gates.run_saturated(
                    self.state,
                    pack_views(self.views),
                    self.policy.policy,
                    heard,
                    self.follows,
                    self.later,
                    self.gate,
                )
            )
            checkpoint()
            if fault == st.NO_FAULT:
                return
            self.state, self.views = repaired(fault, self.state, self.views, self.policy)

    def finish(self) -> None:
        """Let all who came be served."""
        self.let_come(0, int(self.gate[gates.STOP]))

    @property
    def refusals(self) -> int:
        """How often a router has refused a request."""
        return int(self.gate[gates.REFUSALS])

    def seen(self) -> np.ndarray:
        """Time, and of each replica the requests sent, the requests finished and the busy time."""
        sent = self.state.req[:, st.REPLICA]
        rep = self.state.rep
        now_s = np.full(len(rep), self.state.pool[st.UNTIL_PS] * 1e-12)
        counts = np.bincount(sent[sent >= 0], minlength=len(rep))
        return np.stack((now_s, counts, rep[:, st.FINISHED], rep[:, st.BUSY_PS] * 1e-12))

    def refuses(self) -> bool:
        """Whether the router refuses any, were all the rest to come at once."""
        if self.refusals == 0:
            self.let_come(st.NEVER, len(self.state.req))
        return self.refusals > 0


def _measure(run: Saturated, plan: Plan) -> tuple[Capacity, bool]:
    """The capacity, and whether the rate has settled."""
    found: dict[int, list[np.ndarray]] = {}
    for waiting, stop, measured in plan:
        if measured and waiting not in found:
            found[waiting] = [run.seen()]
        run.let_come(waiting, stop)
        if measured:
            found[waiting].append(run.seen())
    if not all(seen[-1][1].sum() > seen[0][1].sum() for seen in found.values()):
        return Capacity(0.0, 0.0, run.refuses(), 0), True
    rates = [_rate(np.diff(seen, axis=0)) for seen in found.values()]
    best, error_rps, _ = max(rates)
    settled = all(steady for _, _, steady in rates)
    requests = plan[-1][1] - plan[-BATCHES - 1][1]
    variance = 1.0 + requests * (error_rps / best) ** 2
    rps = _lasting(np.array(list(found), np.float64), np.array([rate for rate, _, _ in rates]), variance)
    return Capacity(rps, error_rps, run.refuses(), requests), settled


# --- the estimate -------------------------------------------------------------------------------------------


def _lasting(waiting: np.ndarray, rps: np.ndarray, variance: float) -> float:
    """The highest rate at which a backlog stays short, from the rates with so many requests waiting.

    Parameters
    ----------
    waiting : float64[k]
        Ascending.
    rps : float64[k]
    variance : float
        Of arrivals and departures together, over the number of either.
    """
    from scipy.optimize import brentq

    backlog = np.arange(1.0, waiting[-1] + 1.0)
    rates = np.interp(np.log(backlog), np.log(waiting), rps)

    def shortfall(rate: float) -> float:
        return BARRIER - 2.0 / variance * float(np.maximum(rates / rate - 1.0, 0.0).sum())

    least, most = float(rps[-1]), float(rps.max())
    if shortfall(least) >= 0.0:
        return least
    return float(brentq(shortfall, least, most, rtol=1e-6))  # pyright: ignore[reportArgumentType]


def _rate(batches: np.ndarray) -> tuple[float, float, bool]:
    """Capacity, its standard error, and whether the rate drifts no more.

    Parameters
    ----------
    batches : float64[batches, 4, replicas]
        Differences of what `Saturated.seen` has.
    """
    _, sent, finished, busy_s = batches.sum(axis=0)
    count, replicas = len(batches), len(sent)
    share, each_s = sent / sent.sum(), busy_s / np.maximum(finished, 1)
    need_s = share * each_s
    # The deviations of its parts give those of each replica's need, to first order.
    ours = np.maximum(finished, 1) / count
    parts = (
        (batches[:, 1] / (sent.sum() / count)) * each_s
        + share * batches[:, 3] / ours
        - need_s * batches[:, 2] / ours
    )
    # Shares sum to 1, so that each is pushed down by the others, and the replicas' spread is larger.
    noise = parts.var(axis=0, ddof=1).mean() / count * replicas / max(replicas - 1, 1)
    mean_s = need_s.mean()
    longest_s = mean_s
    if replicas > 1:
        spread = need_s.var(ddof=1)
        freedom = replicas - 1
        if spread > noise * stats.f.isf(SAME, freedom, freedom * (count - 1)):
            longest_s = mean_s + (1.0 - noise / spread) * (need_s.max() - mean_s)
    rates = batches[:, 1].sum(axis=1) / batches[:, 0].mean(axis=1)
    error = rates.std(ddof=1) / rates.mean() / math.sqrt(count)
    halves = rates[: count // 2], rates[count // 2 :]
    noise = math.sqrt(sum(half.var(ddof=1) / len(half) for half in halves))
    settled = abs(halves[1].mean() - halves[0].mean()) <= DRIFT * noise
    return float(1.0 / longest_s), float(error / longest_s), settled
