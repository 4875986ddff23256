"""The event loop: arrivals, the router's view, and the replicas' next events in a tournament tree.

At one instant all steps that end come first, then the router's refresh, then arrivals in file order, then the steps
that start. An event's key is 2 ps for an end and 2 ps + 1 for a start, so that comparing integers gives this order.
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
    OUTPUT,
    PATH,
    PERIOD_PS,
    PROMPT,
    PS,
    REFRESHED,
    REPLICA,
    RUN,
    SHARED,
    STEPS,
    TAKEN,
    TRACK,
    TRACK_LIVE,
    TRACK_PERIODIC,
)
from fastsim.cluster._step_time import steps_until


# --- the tournament ------------------------------------------------------------------------------------------


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


# --- what the router sees ------------------------------------------------------------------------------------


@kernel
def _catch_up(s, r, now):
    """Take the blocks of all steps of replica r's run that have started before `now`; returns whether any was due."""
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
    """The least loaded of the replicas with the longest match of request i's prompt; returns it and the match in blocks.

    In a live view the masks may show too much, as runs under way take their blocks late, but never too little. So the
    replica found is brought up to now; if it has kept its match, nobody has a longer one.
    """
    while True:
        blocks = _match(s, i, view.best)
        r = least_loaded_of(view.load, view.level, view.best)
        lazy = s.lazy[r // BITS] >> (r % BITS) & 1
        if blocks == 0 or lazy == 0 or s.cfg[TRACK] != TRACK_LIVE or not _catch_up(s, r, now):
            return r, blocks


@kernel
def _look(s, view, i, now):
    """Fill the view for request i."""
    needs = s.cfg[NEEDS]
    if needs & NEEDS_WORK and s.cfg[TRACK] != TRACK_PERIODIC:
        for r in range(view.work.shape[0]):
            view.work[r] = _work_now(s, r, now)
    if needs & NEEDS_MATCH:
        nearest, blocks = _nearest(s, view, i, now)
        view.prompt[0] = blocks * s.cfg[BLOCK]
        view.prompt[2] = nearest
    view.prompt[1] = s.req[i, PROMPT]


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


# --- events --------------------------------------------------------------------------------------------------


@kernel
def _dispatch(s, view, route, i, now):
    """Route request i and put it into its replica's queue."""
    _look(s, view, i, now)
    r = route(view, i)
    if r < 0 or r >= s.load.shape[0]:
        s.pool[FAULT] = BAD_ROUTE
        r = 0
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
        _replay(s, r)
    elif rep[r, KIND] == RUN and admissible and rep[r, DECODING] < s.cfg[BUDGET]:
        engine.shorten(s, r, now)
        _replay(s, r)


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
        else:
            s.key[r] = 2 * rep[r, PS] + 1
            if rep[r, PS] < limit:
                engine.start(s, r)
    else:
        engine.start(s, r)
    _replay(s, r)


@kernel(signature="int64(State, RouterView, Route)")
def run(s, view, route):
    """Simulate until the last request is done or a fault stops the run; returns the fault.

    What stopped for want of room can go on, from the same state with larger pools.
    """
    n = s.req.shape[0]
    period = s.cfg[PERIOD_PS]
    pool = s.pool
    i = pool[NEXT_REQUEST]
    while pool[FAULT] == 0:
        limit = (NEVER >> 1) - 1  # when the next thing happens that is no replica's event
        refresh = False
        if i < n:
            limit = s.req[i, ARRIVAL]
            if s.cfg[TRACK] == TRACK_PERIODIC and limit // period * period > pool[REFRESHED]:
                limit = limit // period * period
                refresh = True
        r = s.tree[1]
        while s.key[r] <= 2 * limit and pool[FAULT] == 0:
            _pass_event(s, r, limit)
            r = s.tree[1]
        if i == n or pool[FAULT] != 0:
            break
        if refresh:
            _refresh(s, view, limit)
            pool[REFRESHED] = limit
        else:
            _dispatch(s, view, route, i, limit)
            i += 1
    pool[NEXT_REQUEST] = i
    return pool[FAULT]
