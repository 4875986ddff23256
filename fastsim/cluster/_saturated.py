"""Kernel of the run at saturation: a request comes as soon as few enough others wait.

So every replica always has work, and routers decide as in a cluster that is busy. Waiting counts, not
running: how many requests a replica runs at once is the engine's affair, and may change.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._loop import next_ps, run
from fastsim.cluster._state import (
    ARRIVAL,
    COMING,
    DONE,
    FAULT,
    FIRST,
    N_HELD,
    N_RUNNING,
    NEVER,
    NEXT_REQUEST,
    NO_FAULT,
    NONE,
    REPLICA,
    UNTIL_PS,
)

# The gate. Given: how many may wait, and the first request that is not to come yet.
WAITING, STOP = 0, 1
# Its state: the next request in the workload's order; the last that came; whether its router has just refused
# it; how many were passed over, as they follow one that is not answered; refusals so far.
NEXT, LAST, REFUSED, PASSED, REFUSALS = 2, 3, 4, 5, 6
N_GATE = 7

NOT_SENT = -2  # REPLICA of a request that no router has decided on yet
_FAR = (NEVER >> 1) - 1  # an instant after all others
_REPLICAS_A_LOOK = 64  # with more than these, several things may happen between two looks at who waits


@kernel
def _waiting(s):
    """Requests that routers hold back, that are on their way, or that a replica has not admitted."""
    count = s.pool[N_HELD]
    for r in range(s.load.shape[0]):
        count += s.load[r] - s.rep[r, N_RUNNING]
    return count


@kernel
def _may_come(s, follows, i):
    """Whether the request that i follows, if any, has been answered, or refused for good."""
    before = follows[i] if follows.shape[0] > 0 else NONE
    if before == NONE or s.req[before, REPLICA] == NONE:
        return True
    return s.req[before, FIRST] > 0 and s.req[before, DONE] >= s.req[before, FIRST]


@kernel
def _next(s, follows, later, gate):
    """Take the next request that may come, those passed over before first; none is NONE."""
    for k in range(gate[PASSED]):
        i = later[k]
        if _may_come(s, follows, i):
            gate[PASSED] -= 1
            for behind in range(k, gate[PASSED]):
                later[behind] = later[behind + 1]
            return i
    while gate[NEXT] < gate[STOP]:
        i = gate[NEXT]
        gate[NEXT] += 1
        if _may_come(s, follows, i):
            return i
        later[gate[PASSED]] = i
        gate[PASSED] += 1
    return NONE


@kernel
def _ask(s, gate, i):
    """Let request i come now."""
    s.req[i, ARRIVAL] = s.pool[UNTIL_PS]
    s.pool[NEXT_REQUEST] = i
    s.pool[COMING] = i + 1
    gate[LAST] = i
    gate[REFUSED] = 0


@kernel(signature="int64(State, int64[::1], Route, Heard, int64[::1], int64[::1], int64[::1])")
def run_saturated(s, views, route, heard, follows, later, gate):
    """Let requests up to `STOP` come whenever fewer than `WAITING` wait; returns the fault.

    A request that its router refuses comes again after the next event, and is given up only when nothing else
    is left to happen: so what is served are all requests, not those that a router prefers. With `WAITING` at
    `NEVER` the first refusal ends the run.

    Parameters
    ----------
    follows : int64[requests or 0]
        The request whose answer each waits for, or NONE.
    later : int64[requests or 0]
        Room for the requests passed over.
    gate : int64[N_GATE]
    """
    pool = s.pool
    while run(s, views, route, heard) == NO_FAULT:
        last = gate[LAST]
        again = last != NONE and s.req[last, REPLICA] == NONE
        if again and gate[REFUSED] == 0:
            gate[REFUSED] = 1
            gate[REFUSALS] += 1
            if gate[WAITING] == NEVER:
                break
        elif _waiting(s) < gate[WAITING]:
            if again:
                _ask(s, gate, last)
                continue
            i = _next(s, follows, later, gate)
            if i != NONE:
                _ask(s, gate, i)
                continue
            if gate[NEXT] == gate[STOP] and (gate[PASSED] == 0 or gate[STOP] < s.req.shape[0]):
                break
        for _ in range(s.load.shape[0] // _REPLICAS_A_LOOK):
            ps = next_ps(s)
            if ps == _FAR:
                break
            pool[UNTIL_PS] = ps
            if run(s, views, route, heard) != NO_FAULT:
                return pool[FAULT]
        ps = next_ps(s)
        if ps < _FAR or pool[N_HELD] > 0:
            pool[UNTIL_PS] = ps
        elif again:
            gate[LAST] = NONE  # it is given up
        else:
            break
    return pool[FAULT]
