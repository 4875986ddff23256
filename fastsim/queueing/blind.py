"""Dispatch that looks at no queue, and FCFS servers told where every request goes."""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.queueing.draws import load, pick, save, step, unit
from fastsim.rng import u64


@kernel
def random_targets(state, out, servers):
    """Fill ``out``, int64[n], with servers chosen uniformly."""
    s0, s1, s2, s3 = load(state)
    span = u64(servers)
    for i in range(out.size):
        out[i], s0, s1, s2, s3 = pick(s0, s1, s2, s3, span)
    save(state, s0, s1, s2, s3)


@kernel
def serve_at_random(state, requests, servers):
    """Do `random_targets` and `serve` in one pass."""
    at, work, target, wait = requests.at, requests.work, requests.target, requests.wait
    pace, free = servers.pace, servers.free
    s0, s1, s2, s3 = load(state)
    span = u64(free.size)
    for i in range(at.size):
        j, s0, s1, s2, s3 = pick(s0, s1, s2, s3, span)
        t = at[i]
        service = work[i] * pace[j]
        start = max(free[j], t)
        free[j] = start + service
        target[i] = j
        work[i] = service
        wait[i] = start - t
    save(state, s0, s1, s2, s3)


@kernel
def weighted_targets(state, out, keep, alias):
    """Fill with servers by Walker's alias method: j with probability ``keep[j]``, else ``alias[j]``."""
    s0, s1, s2, s3 = load(state)
    span = u64(keep.size)
    for i in range(out.size):
        j, s0, s1, s2, s3 = pick(s0, s1, s2, s3, span)
        bits, s0, s1, s2, s3 = step(s0, s1, s2, s3)
        out[i] = j if unit(bits) < keep[j] else u64(alias[j])
    save(state, s0, s1, s2, s3)


@kernel
def round_robin_targets(positions, dispatcher, out, servers):
    """Fill with the next server in turn of each request's dispatcher; ``positions`` is int64[dispatchers]."""
    for i in range(out.size):
        k = dispatcher[i]
        j = positions[k]
        out[i] = j
        j += 1
        positions[k] = 0 if j == servers else j


@kernel
def sita_targets(sizes, cutoffs, out):
    """Fill with the size interval of each request: the number of ``cutoffs`` (ascending) below its size."""
    for i in range(out.size):
        low, high = 0, cutoffs.size
        while low < high:
            middle = (low + high) >> 1
            if cutoffs[middle] < sizes[i]:
                low = middle + 1
            else:
                high = middle
        out[i] = low


@kernel
def serve(requests, servers):
    """Serve requests at the FCFS servers that ``requests.target`` names (Lindley's recursion)."""
    at, work, target, wait = requests.at, requests.work, requests.target, requests.wait
    pace, free = servers.pace, servers.free
    for i in range(at.size):
        j = target[i]
        t = at[i]
        service = work[i] * pace[j]
        start = max(free[j], t)
        free[j] = start + service
        work[i] = service
        wait[i] = start - t
