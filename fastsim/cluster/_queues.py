"""Kernels of a replica's two lists of requests: the running list and the waiting queue.

The running list is in order of admission. Both are doubly linked through the requests' rows; a request is in
one of them at a time. Where a replica orders its queue by ranks that never change, the queue is a skew heap
through the same two columns instead (Sleator and Tarjan 1986), of which only the head can be removed; equal
ranks leave it by request number, which is by arrival.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import (
    BY_RANK,
    CYCLING_GROUPS,
    N_RUNNING,
    N_WAITING,
    NONE,
    QUEUE,
    QUEUE_NEXT,
    QUEUE_PREV,
    RUN_FIRST,
    RUN_LAST,
    WAIT_FIRST,
    WAIT_LAST,
)


@kernel(inline="always")
def _append(s, r, i, first, last):
    before = s.rep[r, last]
    s.req[i, QUEUE_PREV] = before
    s.req[i, QUEUE_NEXT] = NONE
    if before == NONE:
        s.rep[r, first] = i
    else:
        s.req[before, QUEUE_NEXT] = i
    s.rep[r, last] = i


@kernel(inline="always")
def _remove(s, r, i, first, last):
    before = s.req[i, QUEUE_PREV]
    after = s.req[i, QUEUE_NEXT]
    if before == NONE:
        s.rep[r, first] = after
    else:
        s.req[before, QUEUE_NEXT] = after
    if after == NONE:
        s.rep[r, last] = before
    else:
        s.req[after, QUEUE_PREV] = before


@kernel
def append_running(s, r, i):
    """Put request i at the end of the running list."""
    _append(s, r, i, RUN_FIRST, RUN_LAST)
    s.rep[r, N_RUNNING] += 1


@kernel
def remove_running(s, r, i):
    """Take request i out of the running list."""
    _remove(s, r, i, RUN_FIRST, RUN_LAST)
    s.rep[r, N_RUNNING] -= 1


@kernel
def append_waiting(s, r, i):
    """Put request i, which has just arrived, into the waiting queue."""
    if s.cfg[QUEUE] == BY_RANK:
        _push(s, r, i)
    else:
        _append(s, r, i, WAIT_FIRST, WAIT_LAST)
    s.rep[r, N_WAITING] += 1


@kernel
def prepend_waiting(s, r, i):
    """Put request i, which was preempted, into the waiting queue: at its head, unless ranks decide."""
    queue = s.cfg[QUEUE]
    if queue == BY_RANK:
        _push(s, r, i)
    else:
        _prepend_waiting(s, r, i)
        if queue == CYCLING_GROUPS:
            s.rank[i] = NONE  # its group is told anew
    s.rep[r, N_WAITING] += 1


@kernel
def remove_waiting(s, r, i):
    """Take request i out of the waiting queue; of a heap, it must be the head."""
    if s.cfg[QUEUE] == BY_RANK:
        s.rep[r, WAIT_FIRST] = _meld(s, s.req[i, QUEUE_NEXT], s.req[i, QUEUE_PREV])
    else:
        _remove(s, r, i, WAIT_FIRST, WAIT_LAST)
    s.rep[r, N_WAITING] -= 1


@kernel
def _prepend_waiting(s, r, i):
    after = s.rep[r, WAIT_FIRST]
    s.req[i, QUEUE_PREV] = NONE
    s.req[i, QUEUE_NEXT] = after
    if after == NONE:
        s.rep[r, WAIT_LAST] = i
    else:
        s.req[after, QUEUE_PREV] = i
    s.rep[r, WAIT_FIRST] = i


@kernel
def _push(s, r, i):
    s.req[i, QUEUE_NEXT] = NONE
    s.req[i, QUEUE_PREV] = NONE
    s.rep[r, WAIT_FIRST] = _meld(s, s.rep[r, WAIT_FIRST], i)


@kernel(inline="always")
def _before(s, a, b):
    rank = s.rank
    return rank[a] < rank[b] or (rank[a] == rank[b] and a < b)


@kernel
def _meld(s, a, b):
    """Make one skew heap of two; returns its head."""
    req = s.req
    if a == NONE:
        return b
    if b == NONE:
        return a
    if _before(s, b, a):
        a, b = b, a
    head = a
    while True:  # b goes into the heap of a, down its right side, with both sides swapped on the way
        right = req[a, QUEUE_PREV]
        req[a, QUEUE_PREV] = req[a, QUEUE_NEXT]
        if right == NONE:
            req[a, QUEUE_NEXT] = b
            return head
        if _before(s, b, right):
            right, b = b, right
        req[a, QUEUE_NEXT] = right
        a = right
