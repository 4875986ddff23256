"""Kernels of a replica's two lists of requests: the running list and the waiting queue.

The running list is in order of admission. Both are doubly linked through the requests' rows; a request is in
one of them at a time.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import (
    N_RUNNING,
    N_WAITING,
    NONE,
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
    """Put request i at the end of the waiting queue."""
    _append(s, r, i, WAIT_FIRST, WAIT_LAST)
    s.rep[r, N_WAITING] += 1


@kernel
def prepend_waiting(s, r, i):
    """Put request i at the head of the waiting queue."""
    after = s.rep[r, WAIT_FIRST]
    s.req[i, QUEUE_PREV] = NONE
    s.req[i, QUEUE_NEXT] = after
    if after == NONE:
        s.rep[r, WAIT_LAST] = i
    else:
        s.req[after, QUEUE_PREV] = i
    s.rep[r, WAIT_FIRST] = i
    s.rep[r, N_WAITING] += 1


@kernel
def remove_waiting(s, r, i):
    """Take request i out of the waiting queue."""
    _remove(s, r, i, WAIT_FIRST, WAIT_LAST)
    s.rep[r, N_WAITING] -= 1
