"""The event loop: arrivals, the router's view, and the replicas' next events in a tournament tree.

At one instant all steps that end come first, then the router's refresh, then arrivals in file order, then
the steps that start. An event's key is 2 ps for an end and 2 ps + 1 for a start, so that comparing integers
gives this order.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster import engine
from fastsim.cluster._index import longest_match, rebuild
from fastsim.cluster._kv import check_pools
from fastsim.cluster._masks import change_load, least_loaded_of
from fastsim.cluster._queues import append_waiting
from fastsim.cluster._state import (
    ARRIVAL,
    BAD_ROUTE,
    BITS,
    BLOCK,
    BUDGET,
    DECODING,
    EVENTS,
    FAULT,
    FS,
    KIND,
    MAX_SEQS,
    N_RUNNING,
    N_WAITING,
    NEEDS,
    NEEDS_MATCH,
    NEEDS_WORK,
    NEVER,
    NEXT_REQUEST,
    NO_FAULT,
    OUTPUT,
    PATH,
    PERIOD_PS,
    PROMPT,
    PS,
    REFRESHED,
    REPLICA,
    RUN,
    SERVING,
    SHARED,
    STEPS,
    TAKEN,
    TRACK,
    TRACK_LIVE,
    TRACK_PERIODIC,
)
from fastsim.cluster._step_time import steps_until

_FAR = (NEVER >> 1) - 1  # an instant after all others


# --- the tournament -----------------------------------------------------------------------------------------


@kernel(inline="always")
def _replay(s, r):
    """Play the matches of replica r again, from its leaf to the root; the lower index wins a draw."""
    tree = s.tree
    key = s.key
    at = r + (tree.shape[0] >> 1)
    winner = r
    while at > 1:
        other = tree[at ^ 1]
        if key[other] < key[winner] or (key[other] == key[winner] and other < winner):
            winner = other
        at >>= 1
        tree[at] = winner


# --- what the router sees -----------------------------------------------------------------------------------


@kernel
def _catch_up(s, r, now):
    """Take the blocks of all steps of replica r's run that started before `now`; returns if any was due."""
    if s.rep[r, KIND] != RUN:
        return False
    steps = engine.boundary_from(s, r, now)
    if steps <= s.rep[r, TAKEN]:
        return False
    engine.take_until(s, r, steps)
    return True


@kernel
def _work_now(s, r, now):
    """Tokens that replica r has still to compute: those of steps that ended by `now` count as computed."""
    rep = s.rep
    if rep[r, KIND] != RUN:
        return s.work[r]
    wait_fs = (now - rep[r, PS] + 1) * 1000 - rep[r, FS]
    steps = min(steps_until(rep[r, engine.ALPHA], rep[r, engine.BETA], wait_fs) - 1, rep[r, STEPS])
    return s.work[r] - steps * rep[r, DECODING]


@kernel
def _match(s, i, best):
    """Longest match of request i's prompt over all replicas, as the index knows it; returns blocks."""
    return longest_match(s, s.req[i, PATH], min(s.req[i, PROMPT] // s.cfg[BLOCK], s.req[i, SHARED]), best)


@kernel
def _nearest(s, view, i, now):
    """Find the least loaded of the replicas with the longest match; returns it and the match in blocks.

    In a live view the masks may show too much, as runs under way take their blocks late, but never too
    little. So the replica found is brought up to now; if it has kept its match, nobody has a longer one.
    """
    while True:
        blocks = _match(s, i, view.best)
        r = least_loaded_of(view.load, view.level, view.best)
        lazy = s.lazy[r // BITS] >> (r % BITS) & 1
        if blocks == 0 or lazy == 0 or s.cfg[TRACK] != TRACK_LIVE or not _catch_up(s, r, now):
            return r, blocks


@kernel
def _look(s, view, i, now):
    """Fill in what the view tells of the replicas as request i arrives."""
    needs = s.cfg[NEEDS]
    if needs & NEEDS_WORK and s.cfg[TRACK] != TRACK_PERIODIC:
        for r in range(view.work.shape[0]):
            view.work[r] = _work_now(s, r, now)
    if needs & NEEDS_MATCH:
        nearest, blocks = _nearest(s, view, i, now)
        view.prompt[0] = blocks * s.cfg[BLOCK]
        view.prompt[2] = nearest


@kernel
def _refresh(s, view, now):
    """Take a snapshot for a periodic view."""
    needs = s.cfg[NEEDS]
    for r in range(s.load.shape[0]):
        change_load(view.load, view.level, r, s.load[r] - view.load[r])
        if needs & NEEDS_WORK:
            view.work[r] = _work_now(s, r, now)
        if needs & NEEDS_MATCH:
            _catch_up(s, r, now)
    if needs & NEEDS_MATCH:
        rebuild(s)


# --- events -------------------------------------------------------------------------------------------------


@kernel
def _arrive(s, r, i, now):
    """Put request i into the queue of replica r."""
    rep = s.rep
    s.req[i, REPLICA] = r
    change_load(s.load, s.level, r, 1)
    s.work[r] += s.req[i, PROMPT] + s.req[i, OUTPUT] - 1
    admissible = rep[r, N_WAITING] == 0 and rep[r, N_RUNNING] < s.cfg[MAX_SEQS]
    append_waiting(s, r, i)
    if s.key[r] == NEVER:
        if rep[r, PS] < now:
            rep[r, PS] = now
            rep[r, FS] = 0
        s.key[r] = 2 * now + 1
    elif rep[r, KIND] == RUN and admissible and rep[r, DECODING] < s.cfg[BUDGET]:
        engine.shorten(s, r, now)


@kernel
def _pass_event(s, r, limit):
    """Handle replica r's next event; a step that would start at or after `limit` is left for later."""
    rep = s.rep
    if not check_pools(s, rep[r, N_RUNNING]):
        return
    s.pool[EVENTS] += 1
    if s.key[r] & 1 == 0:
        engine.end(s, r)
        if rep[r, N_RUNNING] == 0 and rep[r, N_WAITING] == 0:
            s.key[r] = NEVER
            return
        s.key[r] = 2 * rep[r, PS] + 1
        if rep[r, PS] >= limit:
            return
    engine.start(s, r)


@kernel(signature="int64(State, RouterView, Route)")
def run(s, view, route):
    """Simulate until the last request is done or a fault stops the run; returns the fault.

    What stopped for want of room can go on, from the same state with larger pools.
    """
    n = s.req.shape[0]
    period = s.cfg[PERIOD_PS]
    pool = s.pool
    i = pool[NEXT_REQUEST]
    while pool[FAULT] == NO_FAULT:
        limit = _FAR  # when the next thing happens that is no replica's event
        refresh = False
        if i < n:
            limit = s.req[i, ARRIVAL]
            if s.cfg[TRACK] == TRACK_PERIODIC and limit // period * period > pool[REFRESHED]:
                limit = limit // period * period
                refresh = True
        r = s.tree[1]
        while s.key[r] <= 2 * limit and pool[FAULT] == NO_FAULT:
            _pass_event(s, r, limit)
            _replay(s, r)
            r = s.tree[1]
        if i == n or pool[FAULT] != NO_FAULT:
            break
        if refresh:
            _refresh(s, view, limit)
            pool[REFRESHED] = limit
        else:
            _look(s, view, i, limit)
            r = _routed(s, view, route, i)
            _arrive(s, r, i, limit)
            _replay(s, r)
            i += 1
    pool[NEXT_REQUEST] = i
    return pool[FAULT]


@kernel(inline="always")
def _routed(s, view, route, i):
    """The policy's choice for request i; a fault is noted if there is no such replica."""
    view.prompt[1] = s.req[i, PROMPT]
    r = route(view, i)
    if r < 0 or r >= s.load.shape[0]:
        s.pool[FAULT] = BAD_ROUTE
        r = 0
    return r


@kernel(signature="int64(State, RouterView, Route)")
def route_blindly(s, view, route):
    """Route all requests by a policy that looks at nothing; returns the fault."""
    for i in range(s.req.shape[0]):
        s.req[i, REPLICA] = _routed(s, view, route, i)
    return s.pool[FAULT]


@kernel
def run_apart(s, order):
    """As `run`, with all requests routed: replicas nobody looks at are served one after the other.

    Parameters
    ----------
    s : State
    order : int64[n]
        Requests by replica, then by arrival. So a replica's state stays in the processor's cache, however
        many there are.
    """
    n = s.req.shape[0]
    pool = s.pool
    at = pool[NEXT_REQUEST]
    r = pool[SERVING]
    while pool[FAULT] == NO_FAULT:
        limit = _FAR
        if at < n and s.req[order[at], REPLICA] == r:
            limit = s.req[order[at], ARRIVAL]
        while s.key[r] <= 2 * limit and pool[FAULT] == NO_FAULT:
            _pass_event(s, r, limit)
        if pool[FAULT] != NO_FAULT:
            break
        if limit < _FAR:
            _arrive(s, r, order[at], limit)
            at += 1
        elif at < n:
            r = s.req[order[at], REPLICA]
        else:
            break
    pool[NEXT_REQUEST] = at
    pool[SERVING] = r
    return pool[FAULT]
