"""Kernel of a run in which requests follow the answers to others.

A request comes its think time after the last token of the one it follows, or after that was refused. At one
instant step ends come first, then arrivals in the workload's order.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._loop import next_ps, pass_event, run
from fastsim.cluster._routing import replay
from fastsim.cluster._state import (
    ARRIVAL,
    COMING,
    DONE,
    FAULT,
    FINISHED,
    FIRST,
    N_HELD,
    NEVER,
    NEWS,
    NEXT_OUTAGE,
    NEXT_REQUEST,
    NO_FAULT,
    NONE,
    ON_WAY,
    PERIOD_PS,
    REPLICA,
    UNTIL_PS,
)

# Columns of `turn`, a row a request. Given: its think time, the first request that follows it, the next one
# that follows what it follows.
THINK_PS, FIRST_LATER, NEXT_LATER = 0, 1, 2
BESIDE = 3  # the next request of the same list: on its replica and not finished, or held back
# Requests that are due, a binary heap over the rows: instant and request.
DUE_PS, DUE = 4, 5
N_TURN = 6

# Places of `loop`: requests that are due; the one that has just come; those held back, their list and number;
# then for every replica the list of its requests, and how many it had finished when it was last looked.
N_DUE, LAST, HELD, HELD_SEEN = 0, 1, 2, 3
LISTS = 4

NOT_SENT = -2  # REPLICA of a request that no router has decided on yet
_FAR = (NEVER >> 1) - 1  # an instant after all others


# --- the heap -----------------------------------------------------------------------------------------------


@kernel
def _before(turn, a, b):
    """Whether the entry in row a is due before that in row b; at one instant the first request is."""
    if turn[a, DUE_PS] != turn[b, DUE_PS]:
        return turn[a, DUE_PS] < turn[b, DUE_PS]
    return turn[a, DUE] < turn[b, DUE]


@kernel
def _swap(turn, a, b):
    ps, i = turn[a, DUE_PS], turn[a, DUE]
    turn[a, DUE_PS], turn[a, DUE] = turn[b, DUE_PS], turn[b, DUE]
    turn[b, DUE_PS], turn[b, DUE] = ps, i


@kernel
def _push(turn, loop, ps, i):
    """Let request i be due."""
    at = loop[N_DUE]
    loop[N_DUE] += 1
    turn[at, DUE_PS], turn[at, DUE] = ps, i
    while at > 0 and _before(turn, at, (at - 1) >> 1):
        _swap(turn, at, (at - 1) >> 1)
        at = (at - 1) >> 1


@kernel
def _pop(turn, loop):
    """Take the request that is due first."""
    i = turn[0, DUE]
    loop[N_DUE] -= 1
    n = loop[N_DUE]
    _swap(turn, 0, n)
    at = 0
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and _before(turn, child + 1, child):
            child += 1
        if not _before(turn, child, at):
            break
        _swap(turn, at, child)
        at = child
    return i


# --- what became of requests --------------------------------------------------------------------------------


@kernel
def _let_follow(turn, loop, i, ps):
    """Let those that wait for request i be due when they have thought."""
    later = turn[i, FIRST_LATER]
    while later != NONE:
        _push(turn, loop, ps + turn[later, THINK_PS], later)
        later = turn[later, NEXT_LATER]


@kernel
def _place(s, turn, loop, i):
    """Put request i, on which its router has decided, into its replica's list; if refused, go on without."""
    r = s.req[i, REPLICA]
    if r == NONE:
        _let_follow(turn, loop, i, s.pool[UNTIL_PS])
        return
    turn[i, BESIDE] = loop[LISTS + 2 * r]
    loop[LISTS + 2 * r] = i


@kernel
def _look_at_held(s, turn, loop):
    """Place those held back that routers have decided on since."""
    if loop[HELD_SEEN] == s.pool[N_HELD]:
        return
    loop[HELD_SEEN] = s.pool[N_HELD]
    i = loop[HELD]
    loop[HELD] = NONE
    while i != NONE:
        following = turn[i, BESIDE]
        if s.req[i, REPLICA] == NOT_SENT:
            turn[i, BESIDE] = loop[HELD]
            loop[HELD] = i
        else:
            _place(s, turn, loop, i)
        i = following


@kernel
def _take_in(s, turn, loop):
    """Put the request that has just come where it belongs."""
    i = loop[LAST]
    if i == NONE:
        return
    loop[LAST] = NONE
    if s.req[i, REPLICA] == NOT_SENT:
        turn[i, BESIDE] = loop[HELD]
        loop[HELD] = i
        loop[HELD_SEEN] += 1
    else:
        _place(s, turn, loop, i)


@kernel
def _look_at_ends(s, turn, loop, r):
    """Let those follow whose answers replica r has finished since it was last looked."""
    at = LISTS + 2 * r
    if s.rep[r, FINISHED] == loop[at + 1]:
        return
    loop[at + 1] = s.rep[r, FINISHED]
    i = loop[at]
    loop[at] = NONE
    while i != NONE:
        following = turn[i, BESIDE]
        if s.req[i, FIRST] > 0 and s.req[i, DONE] >= s.req[i, FIRST]:
            _let_follow(turn, loop, i, s.req[i, DONE])
        else:
            turn[i, BESIDE] = loop[at]
            loop[at] = i
        i = following


# --- the run ------------------------------------------------------------------------------------------------


@kernel
def _routers_concerned(s):
    """Whether routers, blocks on their way or outages have a part in what comes next."""
    pool = s.pool
    if s.cfg[NEWS] != 0 or s.cfg[PERIOD_PS] != 0 or pool[N_HELD] > 0:
        return True
    return pool[ON_WAY] != NONE or pool[NEXT_OUTAGE] < s.outage.shape[0]


@kernel
def _pass_quietly(s, turn, loop):
    """Handle replicas' events, no router being concerned, up to the next arrival."""
    while True:
        limit = turn[0, DUE_PS] if loop[N_DUE] > 0 else _FAR
        r = s.tree[1]
        if s.key[r] > 2 * limit:
            return
        pass_event(s, r, s.key[r] >> 1)
        if s.pool[FAULT] != NO_FAULT:
            return
        replay(s, r)
        _look_at_ends(s, turn, loop, r)


@kernel(signature="int64(State, int64[::1], Route, Heard, int64[:, ::1], int64[::1])")
def run_sessions(s, views, route, heard, turn, loop):
    """Serve all requests, those that follow others when these are answered; returns the fault.

    What stopped for want of room can go on, from the same state with larger pools.

    Parameters
    ----------
    turn : int64[requests, N_TURN]
        The heap holds the requests that follow none.
    loop : int64[LISTS + 2 * replicas]
    """
    pool = s.pool
    while run(s, views, route, heard) == NO_FAULT:
        _take_in(s, turn, loop)
        _look_at_held(s, turn, loop)
        for r in range(s.load.shape[0]):
            _look_at_ends(s, turn, loop, r)
        if not _routers_concerned(s):
            _pass_quietly(s, turn, loop)
            if pool[FAULT] != NO_FAULT:
                break
        ps = next_ps(s)
        if loop[N_DUE] > 0 and turn[0, DUE_PS] < ps:
            pool[UNTIL_PS] = turn[0, DUE_PS]
            i = _pop(turn, loop)
            s.req[i, ARRIVAL] = pool[UNTIL_PS]
            pool[NEXT_REQUEST] = i
            pool[COMING] = i + 1
            loop[LAST] = i
        elif ps < _FAR:
            pool[UNTIL_PS] = ps
        elif pool[N_HELD] > 0:
            pool[UNTIL_PS] = _FAR  # they are held for ever, which is a fault
        else:
            break
    return pool[FAULT]
