"""Balls, draws and FCFS servers in plain Python: sorted lists, heaps and full scans."""

from __future__ import annotations

import heapq
import math
import struct
from collections.abc import Sequence

from tests.twins.rng import Xoshiro

Floats = list[float]


def minus_log(x: float) -> float:
    """The kernels' logarithm: x = 2^k m, then eleven terms of the series of log m."""
    m, k = math.frexp(x)
    if m < math.sqrt(0.5):
        m, k = 2.0 * m, k - 1
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = 1 / 21
    for odd in range(19, 2, -2):
        series = 1 / odd + z * series
    high = math.floor(math.log(2.0) * 2**42) / 2**42
    low = 5.497923018708371e-14  # ln 2 less its first 42 bits
    return -(k * high + (k * low + 2.0 * (s + s * z * series)))


def exponentials(rng: Xoshiro, n: int, mean: float) -> Floats:
    return [minus_log(1.0 - rng.uniform()) * mean for _ in range(n)]


def poisson_times(rng: Xoshiro, n: int, start: float, mean_gap: float) -> Floats:
    times = []
    for gap in exponentials(rng, n, mean_gap):
        start += gap
        times.append(start)
    return times


def modulated_times(rng: Xoshiro, n: int, rates: Floats, mean_stays: Floats) -> Floats:
    """Level after level: the arrivals before its end, the next gap being thrown away."""
    times: Floats = []
    t, level = 0.0, 0
    while True:
        end = t + rng.exponential() * mean_stays[level]
        while True:
            u = rng.exponential()
            gap = u / rates[level] if rates[level] else math.inf
            if t + gap >= end:
                break
            t += gap
            times.append(t)
            if len(times) == n:
                return times
        t, level = end, (level + 1) % len(rates)


def erlangs(rng: Xoshiro, n: int, phases: int, fewer: float, phase_mean: float) -> Floats:
    out = []
    for _ in range(n):
        k = phases - 1 if fewer > 0.0 and rng.uniform() < fewer else phases
        total = 0.0
        for _ in range(k):
            total += rng.exponential()
        out.append(total * phase_mean)
    return out


def hyperexponentials(rng: Xoshiro, n: int, first: float, mean_first: float, mean_second: float) -> Floats:
    out = []
    for _ in range(n):
        mean = mean_first if rng.uniform() < first else mean_second
        out.append(rng.exponential() * mean)
    return out


def lognormals(rng: Xoshiro, n: int, mu: float, sigma: float) -> Floats:
    out = []
    for _ in range(n):
        radius = math.sqrt(-2.0 * math.log(1.0 - rng.uniform()))
        out.append(math.exp(mu + sigma * (radius * math.cos(2.0 * math.pi * rng.uniform()))))
    return out


def weibulls(rng: Xoshiro, n: int, shape: float, scale: float) -> Floats:
    return [scale * math.pow(rng.exponential(), 1.0 / shape) for _ in range(n)]


def paretos(rng: Xoshiro, n: int, alpha: float, low: float, share: float) -> Floats:
    return [low * math.pow(1.0 - rng.uniform() * share, -1.0 / alpha) for _ in range(n)]


def resampled(rng: Xoshiro, n: int, values: Sequence[float]) -> Floats:
    return [values[rng.below(len(values))] for _ in range(n)]


def balls(
    rng: Xoshiro,
    bins: int,
    weights: Sequence[float],
    d: int,
    *,
    beta: float = 1.0,
    left: bool = False,
    deck: list[int] | None = None,
) -> Floats:
    """The bins' loads after balls of the given weights went where they are told."""
    loads = [0.0] * bins
    for weight in weights:
        sees = d if beta >= 1.0 or rng.uniform() < beta else 1
        seen = []
        for k in range(sees):
            if left:
                start, end = k * bins // d, (k + 1) * bins // d
                seen.append(start + rng.below(end - start))
            elif deck is not None:
                at = k + rng.below(bins - k)
                deck[k], deck[at] = deck[at], deck[k]
                seen.append(deck[k])
            else:
                seen.append(rng.below(bins))
        loads[min(seen, key=lambda j: loads[j])] += weight  # min keeps the first of the least
    return loads


class Fcfs:
    """FCFS servers: when each is free, how many requests it holds, and a heap of all departures to come."""

    def __init__(self, pace: Floats) -> None:
        self.pace = pace
        self.free = [0.0] * len(pace)
        self.count = [0] * len(pace)
        self.heap: list[tuple[float, int, int]] = []
        self.served = 0

    def departures(self, t: float) -> list[tuple[int, int]]:
        """Server and requests left there, for each departure up to time t; ties in order of arrival."""
        gone = []
        while self.heap and self.heap[0][0] <= t:
            _, _, j = heapq.heappop(self.heap)
            self.count[j] -= 1
            gone.append((j, self.count[j]))
        return gone

    def serve(self, j: int, t: float, size: float) -> tuple[float, float]:
        """Wait and time of service of a request that goes to server j at time t."""
        service = size * self.pace[j]
        start = max(self.free[j], t)
        self.free[j] = start + service
        self.count[j] += 1
        heapq.heappush(self.heap, (start + service, self.served, j))
        self.served += 1
        return start - t, service


Served = list[tuple[int, float, float]]  # server, wait, time of service


def given_targets(targets: Sequence[int], at: Floats, sizes: Floats, pace: Floats) -> Served:
    servers = Fcfs(pace)
    return [(j, *servers.serve(j, t, x)) for j, t, x in zip(targets, at, sizes, strict=True)]


def weighted_targets(rng: Xoshiro, n: int, keep: Floats, alias: list[int]) -> list[int]:
    found = []
    for _ in range(n):
        j = rng.below(len(keep))
        found.append(j if rng.uniform() < keep[j] else alias[j])
    return found


def turns(dispatcher: Sequence[int], servers: int) -> list[int]:
    """Each dispatcher goes round the servers by itself."""
    return [dispatcher[:i].count(k) % servers for i, k in enumerate(dispatcher)]


def intervals(sizes: Floats, cutoffs: Floats) -> list[int]:
    """How many cutoffs lie below each size."""
    return [sum(cutoff < size for cutoff in cutoffs) for size in sizes]


def collected(waits: Floats, services: Floats) -> tuple[float, float, int]:
    """Sums of waits and services, four side by side from one end to the other, and how many did not wait."""
    whole = len(waits) // 4 * 4

    def side_by_side(values: Floats) -> float:
        lanes = [0.0] * 4
        for i, value in enumerate(values[:whole]):
            lanes[i % 4] += value
        for value in values[whole:]:
            lanes[0] += value
        return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])

    return side_by_side(waits), side_by_side(services), waits.count(0.0)


def shortest_queue(rng: Xoshiro, at: Floats, sizes: Floats, pace: Floats) -> Served:
    """Servers by length, each length's in the order of the index: up from the end, down from the front."""
    servers = Fcfs(pace)
    by_length: dict[int, list[int]] = {0: list(range(len(pace)))}
    out = []
    for t, x in zip(at, sizes, strict=True):
        for j, left in servers.departures(t):
            length = left + 1
            peers = by_length[length]
            peers[peers.index(j)] = peers[0]  # swap with the first, which then moves down
            del peers[0]
            by_length.setdefault(length - 1, []).append(j)
        shortest = min(length for length, peers in by_length.items() if peers)
        peers = by_length[shortest]
        j = peers[rng.below(len(peers))]
        peers[peers.index(j)] = peers[-1]
        del peers[-1]
        by_length.setdefault(shortest + 1, []).insert(0, j)
        out.append((j, *servers.serve(j, t, x)))
    return out


def shortest_of_d(
    rng: Xoshiro, at: Floats, sizes: Floats, pace: Floats, d: int, deck: list[int] | None = None
) -> Served:
    servers = Fcfs(pace)
    n = len(pace)
    out = []
    for t, x in zip(at, sizes, strict=True):
        servers.departures(t)
        seen = []
        for k in range(d):
            if deck is None:
                seen.append(rng.below(n))
            else:
                card = k + rng.below(n - k)
                deck[k], deck[card] = deck[card], deck[k]
                seen.append(deck[k])
        j = min(seen, key=lambda j: servers.count[j])
        out.append((j, *servers.serve(j, t, x)))
    return out


def least_work(at: Floats, sizes: Floats, pace: Floats) -> Served:
    servers = Fcfs(pace)
    out = []
    for t, x in zip(at, sizes, strict=True):
        j = min(range(len(pace)), key=lambda j: (servers.free[j], j))
        out.append((j, *servers.serve(j, t, x)))
    return out


def lengths_seen(served: Served, at: Floats, servers: int, every: float) -> dict[int, int]:
    """How often a server held n requests at the times `every`, 2 `every`, ... up to the last arrival."""
    seen: dict[int, int] = {}
    look = every
    while look <= at[-1]:
        for server in range(servers):
            held = sum(
                1
                for (j, wait, service), t in zip(served, at, strict=True)
                if j == server and t < look < t + wait + service
            )
            seen[held] = seen.get(held, 0) + 1
        look += every
    return seen


def bits_of(x: float) -> bytes:
    """For comparing floats bit for bit."""
    return struct.pack("<d", x)
