"""Servers whose departures are found one after the other, FCFS or sharing their processor.

A request at a server is a node of a pool. Under FCFS a server's nodes are a list in order of arrival, ``key``
is the time of departure. Under processor sharing a server's ``virtual`` time grows by 1 / n a time unit with
n requests there, a request leaves when it has grown by its time of service, ``key`` is the virtual time of
that, and the nodes are a skew heap by it (Sleator and Tarjan, "Self-adjusting heaps", SIAM Journal on
Computing 15(1), 1986).
"""

from __future__ import annotations

import math

import numpy as np

from fastsim._jit import kernel
from fastsim.queueing import ties
from fastsim.queueing.state import Station

FCFS, PS = 0, 1

# Station.marks
# first spare node, nodes in use, requests so far, requests recorded as done
SPARE, LIVE, SERIAL, DONE = 0, 1, 2, 3


@kernel(inline="always")
def ahead(a, b, key, serial):
    """Whether node a leaves before node b."""
    return key[a] < key[b] or (key[a] == key[b] and serial[a] < serial[b])


@kernel
def merge(a, b, key, serial, left, right):
    """Merge two skew heaps, either of which may be empty (-1), and return the root."""
    if a < 0:
        return b
    if b < 0:
        return a
    if ahead(b, a, key, serial):
        a, b = b, a
    root = a
    while True:
        rest = right[a]
        right[a] = left[a]
        if rest < 0:
            left[a] = b
            return root
        if ahead(b, rest, key, serial):
            rest, b = b, rest
        left[a] = rest
        a = rest


@kernel(inline="always")
def reschedule(j, station, servers, discipline):
    """Set when server j's next request departs."""
    due = math.inf
    if servers.count[j] > 0:
        due = station.key[station.head[j]]
        if discipline == PS:
            due = station.since[j] + (due - station.virtual[j]) * servers.count[j]
    ties.put(station.next_low, station.next_ties, 0, station.next_low.size >> 1, j, due)


@kernel
def arrive(j, t, service, dispatcher, station, servers, discipline):
    """Put a request that comes at t into server j, and return its wait (0 under processor sharing)."""
    marks = station.marks
    start = max(servers.free[j], t)
    servers.free[j] = start + service
    node = marks[SPARE]
    marks[SPARE] = station.left[node]
    marks[LIVE] += 1
    station.began[node] = t
    station.need[node] = service
    station.owner[node] = dispatcher
    station.serial[node] = marks[SERIAL]
    marks[SERIAL] += 1
    station.left[node] = -1
    station.right[node] = -1
    n = servers.count[j]
    servers.count[j] = n + 1
    if discipline == FCFS:
        station.key[node] = start + service
        if n == 0:
            station.head[j] = node
            reschedule(j, station, servers, discipline)
        else:
            station.left[station.tail[j]] = node
        station.tail[j] = node
        return start - t
    if n == 0:
        station.virtual[j] = 0.0
    else:
        station.virtual[j] += (t - station.since[j]) / n
    station.since[j] = t
    station.key[node] = station.virtual[j] + service
    station.head[j] = merge(station.head[j], node, station.key, station.serial, station.left, station.right)
    reschedule(j, station, servers, discipline)
    return 0.0


@kernel
def depart(station, servers, discipline):
    """Let the next request depart, and return its server and its node (spare, not yet overwritten)."""
    marks = station.marks
    time = station.next_low[1]
    j = ties.tied(station.next_low, station.next_ties, 0, station.next_low.size >> 1, 0)
    node = station.head[j]
    servers.count[j] -= 1
    if discipline == FCFS:
        station.head[j] = station.left[node]
    else:
        station.head[j] = merge(
            station.left[node], station.right[node], station.key, station.serial, station.left, station.right
        )
        station.virtual[j] = station.key[node]
        station.since[j] = time
        done = marks[DONE]
        station.done_serial[done] = station.serial[node]
        station.done_need[done] = station.need[node]
        station.done_delay[done] = max(0.0, time - station.began[node] - station.need[node])
        marks[DONE] = done + 1
    reschedule(j, station, servers, discipline)
    station.left[node] = marks[SPARE]
    marks[SPARE] = node
    marks[LIVE] -= 1
    return j, node


class Pool:
    """Grows the arrays of a station between calls of a kernel, so that kernels need no bounds.

    Parameters
    ----------
    servers : int
        N.
    look_every : float
        Time between counts of all queue lengths into `Station.lengths`; infinite for none.

    Attributes
    ----------
    station : Station
        What kernels work on.
    """

    def __init__(self, servers: int, look_every: float = math.inf) -> None:
        low, tied = ties.make_trees(1, servers, math.inf)
        floats, ints = np.zeros(0), np.zeros(0, np.int64)
        self.station = Station(
            next_low=low,
            next_ties=tied,
            head=np.full(servers, -1, dtype=np.int64),
            tail=np.full(servers, -1, dtype=np.int64),
            virtual=np.zeros(servers),
            since=np.zeros(servers),
            key=floats,
            began=floats,
            need=floats,
            serial=ints,
            owner=ints,
            left=ints,
            right=ints,
            marks=np.array([-1, 0, 0, 0], dtype=np.int64),
            done_serial=ints,
            done_need=floats,
            done_delay=floats,
            lengths=ints,
            looks=np.array([look_every, look_every]),
        )

    def reserve(self, count: int) -> None:
        """Make room for `count` more requests, and start the record of those done afresh."""
        old = self.station
        old.marks[DONE] = 0
        live, size = int(old.marks[LIVE]), old.key.size
        if live + count <= size:
            return
        more = max(live + count - size, size)
        arrays = {name: getattr(old, name) for name in Station._numba_type_.fields}
        for name in ("key", "began", "need", "serial", "owner", "left", "right"):
            arrays[name] = np.append(arrays[name], np.zeros(more, arrays[name].dtype))
        for name in ("done_serial", "done_need", "done_delay", "lengths"):
            arrays[name] = np.append(arrays[name], np.zeros(more + 1, arrays[name].dtype))
        arrays["left"][size:] = np.arange(size + 1, size + more + 1)
        arrays["left"][-1] = old.marks[SPARE]
        old.marks[SPARE] = size
        self.station = Station(**arrays)
