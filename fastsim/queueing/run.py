"""One replication: random streams, kernels and arrays put together for a question."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastsim._interrupt import checkpoint
from fastsim.queueing import blind, general, live, ties, views
from fastsim.queueing import station as st
from fastsim.queueing.boards import Board
from fastsim.queueing.calendar import Calendar
from fastsim.queueing.collect import collect, spread_quantiles, watch
from fastsim.queueing.dispatchers import AGES, UPDATES
from fastsim.queueing.spec import QueueSpec
from fastsim.queueing.state import CountIndex, Requests, Servers
from fastsim.rng import stream
from fastsim.stats import QuantileHistogram, quantiles

Array = NDArray[np.float64]

STRETCH = 16_384  # requests a call of a kernel: several arrays of them fit the second-level cache
HISTOGRAM_ERROR = 0.001


class Run:
    """A replication under way.

    Parameters
    ----------
    spec : QueueSpec
        The question.
    seed, replicate : int
        Keys of the random streams; arrivals and sizes do not depend on the dispatcher.
    look_every : float
        Time between counts of the queue lengths; infinite for none.
    """

    def __init__(self, spec: QueueSpec, seed: int, replicate: int, look_every: float = math.inf) -> None:
        self.spec = spec
        self._streams = {
            name: stream(seed, replicate, name)
            for name in ("arrivals", "sizes", "routing", "updates", "dispatchers")
        }
        self._memory = spec.arrivals.memory()
        n = spec.servers
        self._servers = Servers(1.0 / spec.speeds, np.zeros(n), np.zeros(n, np.int64))
        self._free = self._servers.free  # when each server will have done all work given so far
        self._given = 0.0  # time of service given to servers so far
        floats, ints = np.zeros(STRETCH), np.zeros(STRETCH, np.int64)
        self._arrays = (floats, floats.copy(), ints, ints.copy(), floats.copy())
        self._requests = Requests(*self._arrays)
        self._looks = np.array([look_every, look_every])
        self._watched = math.isfinite(look_every)
        self._lengths = np.zeros(0, np.int64)
        self._station: st.Pool | None = None
        self._serve: Callable[[Any], None] = self._plan()
        self.clock = 0.0  # the last arrival

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How often a server was seen with 0, 1, ... requests."""
        return self._lengths if self._station is None else self._station.station.lengths

    def forget_lengths(self) -> None:
        """Start counting queue lengths afresh."""
        self.lengths[:] = 0

    def stretches(self, count: int) -> Iterator[Any]:
        """Serve the next `count` requests, and yield them by stretches, valid until the next is asked for.

        Under processor sharing, waits mean nothing and departures are in `departed`.
        """
        for start in range(0, count, STRETCH):
            checkpoint()
            n = min(STRETCH, count - start)
            now = self._requests if n == STRETCH else Requests(*(a[:n] for a in self._arrays))
            self.spec.arrivals.fill(self._streams["arrivals"], now.at, self._memory)
            self.spec.size.fill(self._streams["sizes"], now.work)
            if self.spec.dispatchers > 1:
                blind.random_targets(self._streams["dispatchers"], now.dispatcher, self.spec.dispatchers)
            self._serve(now)
            self._given += float(now.work.sum())
            self.clock = float(now.at[-1])
            if self._watched and self._station is None:
                self._watch(now)
            yield now

    def busy_time(self) -> float:
        """Time that all servers together have been busy up to the last arrival: work given less backlog."""
        return self._given - float(np.maximum(self._free - self.clock, 0.0).sum())

    def departed(self) -> tuple[NDArray[np.int64], Array, Array]:
        """Serial numbers, delays and times of service of the departures of the last stretch (PS)."""
        assert self._station is not None
        s = self._station.station
        done = int(s.marks[st.DONE])
        return s.done_serial[:done], s.done_delay[:done], s.done_need[:done]

    def let_one_go(self) -> bool:
        """Let time pass to the next departure without arrivals (PS); False if there is none."""
        assert self._station is not None
        self._station.reserve(0)
        s = self._station.station
        due = float(s.next_low[1])
        if not math.isfinite(due):
            return False
        general.catch_up(due, self._streams["updates"], self._servers, s, self._board.view, self._how)
        return True

    def _plan(self) -> Callable[[Any], None]:
        """What serves a stretch; does not hold the run, else its arrays would wait for the collector."""
        spec = self.spec
        name, routing, servers = spec.dispatcher.name, self._streams["routing"], self._servers
        if spec.dispatcher.rule == views.GIVEN:
            aim = self._aim()
            if spec.discipline == "ps":
                return self._plan_general(aim)
            if name == "random":
                return lambda now: blind.serve_at_random(routing, now, servers)
            return lambda now: (aim(now), blind.serve(now, servers))[1]
        if spec.discipline == "fcfs" and spec.update == "live":
            if name == "jsq":
                return self._plan_shortest_queue()
            if name == "jsq_d" and not spec.memory:
                return self._plan_shortest_of_d()
            if name in ("lwl", "central_queue"):
                key, who = _tournament(spec.servers)
                self._free = key[key.size // 2 :][: spec.servers]
                return lambda now: live.least_work(now, servers, key, who)
        return self._plan_general(None)

    def _aim(self) -> Callable[[Any], None]:
        """What fills in the targets of a dispatcher that reads no queue."""
        spec, routing = self.spec, self._streams["routing"]
        if spec.dispatcher.name == "random":
            return lambda now: blind.random_targets(routing, now.target, spec.servers)
        if spec.dispatcher.name == "weighted_random":
            keep, alias = _alias_table(spec.speeds)
            return lambda now: blind.weighted_targets(routing, now.target, keep, alias)
        if spec.dispatcher.name == "round_robin":
            turns = np.zeros(spec.dispatchers, np.int64)
            return lambda now: blind.round_robin_targets(turns, now.dispatcher, now.target, spec.servers)
        return lambda now: blind.sita_targets(now.work, spec.cutoffs, now.target)

    def _plan_shortest_queue(self) -> Callable[[Any], None]:
        n, routing, servers = self.spec.servers, self._streams["routing"], self._servers
        calendar = Calendar(n, self.spec.arrivals.rate)
        order, place = np.arange(n), np.arange(n)
        first = np.zeros(1, np.int64)
        index = CountIndex(order, place, first)

        def serve(now: Any) -> None:
            nonlocal index
            calendar.reserve(now.at.size)
            nodes = calendar.departures.due.size
            if index.first.size < nodes + 2:  # no queue is longer than there are nodes
                more = np.full(nodes + 2 - index.first.size, n, dtype=np.int64)
                index = CountIndex(order, place, np.append(index.first, more))
            live.shortest_queue(routing, now, servers, calendar.departures, index)

        return serve

    def _plan_shortest_of_d(self) -> Callable[[Any], None]:
        spec, routing, servers = self.spec, self._streams["routing"], self._servers
        calendar = Calendar(spec.servers, spec.arrivals.rate)
        deck = np.arange(0 if spec.replacement else spec.servers)

        def serve(now: Any) -> None:
            calendar.reserve(now.at.size)
            live.shortest_of_d(routing, now, servers, calendar.departures, spec.d, deck)

        return serve

    def _plan_general(self, aim: Callable[[Any], None] | None) -> Callable[[Any], None]:
        spec, servers = self.spec, self._servers
        self._how = how = how_of(spec)
        self._station = pool = st.Pool(spec.servers, float(self._looks[0]))
        self._board = board = Board(
            how,
            self._servers.pace,
            spec.dispatchers,
            spec.period,
            self._streams["updates"],
            spec.dispatcher.rule == views.SAMPLE and not spec.replacement,
        )
        routing, updates = self._streams["routing"], self._streams["updates"]
        clock = 0.0

        def serve(now: Any) -> None:
            nonlocal clock
            if aim:
                aim(now)
            pool.reserve(now.at.size)
            waiting = int(pool.station.marks[st.LIVE])
            board.reserve(clock, waiting + 2 * now.at.size)
            general.dispatch(routing, updates, now, servers, pool.station, board.view, how)
            clock = float(now.at[-1])

        return serve

    def _watch(self, now: Any) -> None:
        if not hasattr(self, "_watcher"):
            self._watcher = Calendar(self.spec.servers, self.spec.arrivals.rate)
            self._seen = np.zeros(self.spec.servers, np.int64)
        self._watcher.reserve(now.at.size)
        nodes = self._watcher.departures.due.size
        if self._lengths.size <= nodes:
            self._lengths = np.append(self._lengths, np.zeros(nodes + 1 - self._lengths.size, np.int64))
        watch(now, self._watcher.departures, self._seen, self._lengths, self._looks)


def how_of(spec: QueueSpec) -> NDArray[np.int64]:
    """The array that tells the general kernels how the dispatchers work."""
    how = np.zeros(views.N_HOW, np.int64)
    chosen = spec.dispatcher
    how[views.DISCIPLINE] = st.PS if spec.discipline == "ps" else st.FCFS
    how[views.RULE] = chosen.rule
    how[views.KIND] = UPDATES[spec.update] if chosen.score is not None else views.LIVE
    how[views.SCORE] = views.COUNT if chosen.score is None else chosen.score
    how[views.D] = spec.d
    how[views.MEMORY] = spec.memory
    how[views.ADD_OWN] = spec.add_own
    how[views.LAW] = AGES[spec.age]
    apart = how[views.KIND] == views.OWN or spec.add_own
    how[views.BOARDS] = spec.dispatchers if apart else 1
    how[views.LISTS] = chosen.rule == views.IDLE and how[views.KIND] == views.OWN
    how[views.TREES] = chosen.rule in (views.FULL, views.IDLE) and how[views.KIND] != views.CONTINUOUS
    return how


def _tournament(servers: int) -> tuple[Array, NDArray[np.int64]]:
    leaves = ties.leaves_for(servers)
    key = np.full(2 * leaves, math.inf)
    key[leaves : leaves + servers] = 0.0
    who = np.zeros(2 * leaves, dtype=np.int64)
    who[leaves:] = np.arange(leaves)
    for node in range(leaves - 1, 0, -1):
        winner = 2 * node + int(key[2 * node + 1] < key[2 * node])
        key[node], who[node] = key[winner], who[winner]
    return key, who


def _alias_table(weights: Array) -> tuple[Array, NDArray[np.int64]]:
    """Walker's alias table, by Vose's method."""
    n = weights.size
    scaled = (weights * (n / weights.sum())).tolist()
    keep, alias = np.ones(n), np.arange(n)
    small = [j for j in range(n) if scaled[j] < 1.0]
    large = [j for j in range(n) if scaled[j] >= 1.0]
    while small and large:
        less, more = small.pop(), large[-1]
        keep[less], alias[less] = scaled[less], more
        scaled[more] -= 1.0 - scaled[less]
        if scaled[more] < 1.0:
            small.append(large.pop())
    return keep, alias


@dataclass(frozen=True)
class RunResult:
    """What one replication measured after its warm-up.

    Attributes
    ----------
    values : dict of str to float
        ``response_mean``, ``wait_mean``, ``no_wait``, ``queue_length``, ``idle``, ``service_mean``, ``rate``.
    response, wait : dict of float to float
        Quantiles by probability.
    lengths : float64[k]
        Fractions of time that a server held 0, 1, ... requests; empty unless asked for.
    samples : float64[n] or None
        All response times, if they were kept; else quantiles come from histograms.
    unfinished : int
        Requests that had not left when the run was ended (processor sharing without a steady state).
    """

    values: dict[str, float]
    response: dict[float, float]
    wait: dict[float, float]
    lengths: Array
    samples: Array | None
    unfinished: int


@dataclass
class _Tally:
    """Histograms and sums of the requests measured so far."""

    keep: bool
    responses: QuantileHistogram = field(default_factory=lambda: QuantileHistogram(HISTOGRAM_ERROR))
    waits: QuantileHistogram = field(default_factory=lambda: QuantileHistogram(HISTOGRAM_ERROR))
    sums: Array = field(default_factory=lambda: np.zeros(3))
    kept: list[Array] = field(default_factory=list)
    count: int = 0

    def add(self, wait: Array, service: Array) -> None:
        collect(wait, service, self.responses.counts, self.waits.counts, self.responses.bits, self.sums)
        self.count += wait.size
        if self.keep:
            self.kept.append(wait + service)


def run_once(
    spec: QueueSpec,
    seed: int,
    replicate: int,
    *,
    warmup: int,
    requests: int,
    ps: Sequence[float] = (0.5, 0.9, 0.99),
    keep_samples: bool = False,
    queue_lengths: bool = False,
) -> RunResult:
    """Simulate one replication.

    Parameters
    ----------
    spec : QueueSpec
        The question.
    seed, replicate : int
        Not negative; dispatchers compared on the same ones share arrivals and sizes.
    warmup, requests : int
        Requests not measured, and those measured after them.
    ps : sequence of float
        Probabilities of the quantiles wanted.
    keep_samples : bool
        Keep every response time: exact quantiles, and memory that grows with `requests`.
    queue_lengths : bool
        Also count how many requests servers hold.
    """
    look_every = spec.servers / spec.arrivals.rate if queue_lengths else math.inf
    run = Run(spec, seed, replicate, look_every)
    tally = _Tally(keep_samples)
    measure = _measure_sharing if spec.discipline == "ps" else _measure_fcfs
    window = measure(run, tally, warmup, requests)
    return _result(spec, window, tally, requests, ps)


@dataclass(frozen=True)
class _Window:
    """How long the measured requests took to arrive, and how servers fared meanwhile."""

    span: float
    busy_time: float
    lengths: NDArray[np.int64]


def _window(run: Run, requests: int, each: Callable[[Any], None]) -> _Window:
    """Serve the requests to be measured, telling `each` every stretch of them."""
    start, busy = run.clock, run.busy_time()
    run.forget_lengths()
    for now in run.stretches(requests):
        each(now)
    return _Window(run.clock - start, run.busy_time() - busy, run.lengths.copy())


def _measure_fcfs(run: Run, tally: _Tally, warmup: int, requests: int) -> _Window:
    for _ in run.stretches(warmup):
        pass
    return _window(run, requests, lambda now: tally.add(now.wait, now.work))


def _measure_sharing(run: Run, tally: _Tally, warmup: int, requests: int) -> _Window:
    """Run on until all that is to be measured has left, as what is left behind is not typical."""

    def note(_: Any = None) -> None:
        serial, delay, need = run.departed()
        wanted = (serial >= warmup) & (serial < warmup + requests)
        tally.add(delay[wanted], need[wanted])

    for _ in run.stretches(warmup):
        note()
    window = _window(run, requests, note)
    patience = requests if run.spec.stable and run.spec.arrivals.count is None else 0
    while tally.count < requests and patience > 0:
        for _ in run.stretches(min(STRETCH, patience)):
            note()
        patience -= STRETCH
    while tally.count < requests and run.spec.stable and run.let_one_go():
        note()
    return window


def _result(
    spec: QueueSpec,
    window: _Window,
    tally: _Tally,
    requests: int,
    ps: Sequence[float],
) -> RunResult:
    n = max(1, tally.count)
    wait_mean, service_mean, at_once = (tally.sums / n).tolist()
    span, seen = window.span, window.lengths
    rate = requests / span if span > 0.0 else math.nan
    samples = np.concatenate(tally.kept) if tally.keep else None
    if samples is None:
        response = dict(zip(ps, spread_quantiles(tally.responses, ps), strict=True))
    else:
        response = dict(zip(ps, quantiles(samples, ps).tolist(), strict=True))
    last = int(np.flatnonzero(seen)[-1]) + 1 if seen.any() else 0
    return RunResult(
        values={
            "response_mean": wait_mean + service_mean,
            "wait_mean": wait_mean,
            "no_wait": at_once,
            "queue_length": rate * (wait_mean + service_mean) / spec.servers,  # Little's law
            "idle": 1.0 - window.busy_time / (span * spec.servers) if span > 0.0 else math.nan,
            "service_mean": service_mean,
            "rate": rate,
        },
        response=response,
        wait=dict(zip(ps, spread_quantiles(tally.waits, ps), strict=True)),
        lengths=seen[:last] / max(1, int(seen.sum())),
        samples=samples,
        unfinished=requests - tally.count,
    )
