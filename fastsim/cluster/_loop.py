"""The event loop: arrivals, the router's view, and the replicas' next events in a tournament tree.

At one instant all steps that end come first, then the routers' refresh, then what routers do: requests held
back, requests whose blocks have come, arrivals in file order; then the steps that start. An event's key is
2 ps for an end and 2 ps + 1 for a start, so that comparing integers gives this order.
"""

from __future__ import annotations

from fastsim._bits import prefetch
from fastsim._jit import kernel
from fastsim.cluster import engine
from fastsim.cluster._extents import check_pools
from fastsim.cluster._faults import restart, tell_of_loss
from fastsim.cluster._look import read_news, refresh
from fastsim.cluster._masks import change_load
from fastsim.cluster._news import has_room, tell_gauges
from fastsim.cluster._routing import (
    arrive,
    deliver,
    describe,
    replay,
    take,
    try_held,
    wait_for_refresh,
)
from fastsim.cluster._state import (
    ACTIVE,
    ARRIVAL,
    BAD_ROUTE,
    BITS,
    COMING,
    DELAY_PS,
    DELAYED,
    DONE,
    EVENTS,
    FAULT,
    FINISHED,
    FULL_NEWS,
    HELD_FOREVER,
    JOIN,
    JOINED,
    LOAD_VIEW,
    N_HELD,
    N_REP,
    N_RUNNING,
    N_WAITING,
    NEVER,
    NEWS,
    NEWS_DUE,
    NEWS_PS,
    NEWS_READ,
    NEWS_TOLD,
    NEXT_OUTAGE,
    NEXT_REQUEST,
    NO_FAULT,
    NONE,
    ON_WAY,
    OUTAGE_DOWN_PS,
    OUTAGE_KIND,
    OUTAGE_PS,
    OUTAGE_REPLICA,
    PERIOD_PS,
    PERIODIC,
    PS,
    REFRESHED,
    REPLICA,
    RESTART_SILENTLY,
    RETRY_PS,
    RUNS,
    SERVING,
    TOLD,
    UNTIL_PS,
    WAKE_PS,
)
from fastsim.cluster.routers.view import (
    NOW_PS,
    view_at,
)

_LINE = 8  # numbers a cache line
_FAR = (NEVER >> 1) - 1  # an instant after all others


# --- events -------------------------------------------------------------------------------------------------


@kernel
def pass_event(s, r, limit):
    """Handle replica r's next event; a step that would start at or after `limit` is left for later."""
    rep = s.rep
    if not check_pools(s, rep[r, N_RUNNING]):
        return
    s.pool[EVENTS] += 1
    if s.key[r] & 1 == 0:
        engine.end(s, r)
        if rep[r, N_RUNNING] == 0 and rep[r, N_WAITING] == 0:
            s.key[r] = NEVER
            tell_gauges(s, r, rep[r, PS])
            return
        s.key[r] = 2 * rep[r, PS] + 1
        if rep[r, PS] >= limit:
            tell_gauges(s, r, rep[r, PS])
            return
    engine.start(s, r)
    tell_gauges(s, r, rep[r, PS])


# --- the run ------------------------------------------------------------------------------------------------


@kernel
def _make_room(s, views, heard, r):
    """Make sure that the ring has room for what replica r may report, by having it read or by a fault."""
    if not has_room(s, r):
        if s.pool[N_HELD] == 0:  # else routers are to be asked again when they read
            read_news(s, views, heard, s.key[r] >> 1)
        if not has_room(s, r):
            s.pool[FAULT] = FULL_NEWS


@kernel(inline="always")
def _unfinished(s):
    """Whether any request is held back or on a replica; if not, and none is to come, outages matter not."""
    return s.pool[N_HELD] > 0 or s.key[s.tree[1]] < NEVER


@kernel
def _befall(s, views, heard, now):
    """Let the next outage happen."""
    pool = s.pool
    row = pool[NEXT_OUTAGE]
    kind = s.outage[row, OUTAGE_KIND]
    r = s.outage[row, OUTAGE_REPLICA]
    if kind == JOIN:
        s.cfg[ACTIVE] += 1
        s.level[0, r // BITS] |= 1 << (r % BITS)
        pool[FAULT] = JOINED  # views are to be made larger
    else:
        if not check_pools(s, s.rep[r, N_RUNNING]):
            return
        if s.cfg[NEWS]:
            if pool[N_HELD] == 0:  # else routers are to be asked again when they read
                read_news(s, views, heard, now)
            if not has_room(s, r) or s.pool[NEWS_TOLD] - s.pool[NEWS_READ] + s.cfg[RUNS] > s.news.shape[0]:
                pool[FAULT] = FULL_NEWS
                return
        if kind == TOLD:
            tell_of_loss(s, r, now)
        else:
            restart(s, r, now, s.outage[row, OUTAGE_DOWN_PS], kind == RESTART_SILENTLY)
            tell_gauges(s, r, now)
            replay(s, r)
    pool[NEXT_OUTAGE] += 1


@kernel
def _next_tick(s, until):
    """Instant of the refresh that is due by `until`, or one after all others."""
    period = s.cfg[PERIOD_PS]
    if period == 0 or until == _FAR or until // period * period <= s.pool[REFRESHED]:
        return _FAR
    return until // period * period


@kernel
def _next_report(s):
    """Instant at which the routers get the next report, or may be asked again at a refresh."""
    if s.pool[NEWS_READ] == s.pool[NEWS_TOLD]:
        return s.pool[WAKE_PS]
    ps = s.news[s.pool[NEWS_READ] & (s.news.shape[0] - 1), NEWS_PS]
    if s.cfg[LOAD_VIEW] == DELAYED:
        ps += s.cfg[DELAY_PS]
    elif s.cfg[LOAD_VIEW] == PERIODIC:  # a report written after a refresh waits for the next one
        ps = -(-max(ps, s.pool[REFRESHED] + 1) // s.cfg[PERIOD_PS]) * s.cfg[PERIOD_PS]
    return min(ps, s.pool[WAKE_PS])


@kernel(inline="always")
def _prefetch_replica(s, r):
    """Ask for the memory that replica r's next event needs: with many replicas it is far away."""
    for column in range(0, N_REP, _LINE):
        prefetch(s.rep, r * N_REP + column)
    prefetch(s.heap, r * s.heap.shape[1] * s.heap.shape[2])
    for tick in range(0, s.phase.shape[1], _LINE):
        prefetch(s.phase, r * s.phase.shape[1] + tick)


@kernel
def _pass_events(s, views, heard, limit):
    """Handle the replicas' events up to `limit`; while requests are held back, only up to the next report."""
    pool = s.pool
    r = s.tree[1]
    if s.cfg[NEWS] == 0:  # so nobody is held back, either
        while s.key[r] <= 2 * limit and pool[FAULT] == NO_FAULT:
            pass_event(s, r, limit)
            replay(s, r)
            r = s.tree[1]
            _prefetch_replica(s, r)
        return
    while s.key[r] <= 2 * limit and pool[FAULT] == NO_FAULT:
        _make_room(s, views, heard, r)
        if pool[FAULT] != NO_FAULT:
            return
        pass_event(s, r, limit if pool[N_HELD] == 0 else s.key[r] >> 1)
        replay(s, r)
        r = s.tree[1]
        _prefetch_replica(s, r)
        if pool[N_HELD] > 0:
            limit = min(limit, _next_report(s))


@kernel(signature="int64(State, int64[::1], Route, Heard)")
def run(s, views, route, heard):
    """Simulate until the last request is done, `UNTIL_PS` or a fault stops the run; returns the fault.

    What stopped for want of room can go on, from the same state with larger pools.
    """
    pool = s.pool
    while pool[FAULT] == NO_FAULT:
        if pool[RETRY_PS] != NONE:
            try_held(s, views, route)
            continue
        i = pool[NEXT_REQUEST]
        arrival = s.req[i, ARRIVAL] if i < pool[COMING] else _FAR
        come = s.req[pool[ON_WAY], DONE] if pool[ON_WAY] != NONE else _FAR
        outage = s.outage[pool[NEXT_OUTAGE], OUTAGE_PS] if pool[NEXT_OUTAGE] < s.outage.shape[0] else _FAR
        to_come = min(min(arrival, come), pool[UNTIL_PS])
        outside = to_come  # the next thing that is no replica's event
        if to_come < _FAR or _unfinished(s):
            outside = min(outside, outage)
        limit = min(outside, _next_report(s)) if pool[N_HELD] > 0 else outside
        if limit == _FAR and pool[N_HELD] == 0:
            s.cfg[NEWS] = 0  # nobody asks any more
        tick = _next_tick(s, limit)
        limit = min(limit, tick)
        _pass_events(s, views, heard, limit)
        if pool[FAULT] != NO_FAULT:
            break
        report = _next_report(s) if pool[N_HELD] > 0 else _FAR
        if report < limit:
            continue
        if limit == _FAR:
            if pool[N_HELD] > 0:
                pool[FAULT] = HELD_FOREVER
            break
        if outage == limit:
            if to_come == _FAR and not _unfinished(s):
                continue
            _befall(s, views, heard, limit)
            continue
        if tick == limit:
            if not check_pools(s, 0):
                break
            refresh(s, view_at(views, 0), limit)
            pool[REFRESHED] = limit
            pool[NEWS_DUE] = pool[NEWS_TOLD]
        told = s.cfg[NEWS] != 0 and read_news(s, views, heard, limit)
        if pool[N_HELD] > 0 and (told or pool[WAKE_PS] == limit):
            pool[RETRY_PS] = limit
            pool[WAKE_PS] = NEVER
            if told:
                wait_for_refresh(s, limit)
        elif come == limit:
            deliver(s, limit)
        elif arrival == limit:
            take(s, views, route, i, limit)
        elif limit == pool[UNTIL_PS]:
            break
    return pool[FAULT]


@kernel(signature="int64(State)")
def next_ps(s):
    """Instant until which a run must go for the next thing to happen; a start at t has happened by t + 1."""
    pool = s.pool
    key = s.key[s.tree[1]]
    ps = (key + 1) >> 1 if key < NEVER else _FAR
    if pool[ON_WAY] != NONE:
        ps = min(ps, s.req[pool[ON_WAY], DONE])
    if pool[N_HELD] > 0:
        ps = min(ps, _next_report(s))
    if _unfinished(s) and pool[NEXT_OUTAGE] < s.outage.shape[0]:
        ps = min(ps, s.outage[pool[NEXT_OUTAGE], OUTAGE_PS])
    return ps


@kernel(signature="int64(State, int64)")
def run_to_finish(s, limit):
    """Handle replicas' events up to `limit`, no router being concerned, until one ends a request.

    The ends of steps at `limit` count, starts do not. Returns the fault.
    """
    r = s.tree[1]
    while s.key[r] <= 2 * limit and s.pool[FAULT] == NO_FAULT:
        before = s.rep[r, FINISHED]
        pass_event(s, r, s.key[r] >> 1)
        replay(s, r)
        if s.rep[r, FINISHED] > before:
            break
        r = s.tree[1]
    return s.pool[FAULT]


# --- routers that look at nothing ---------------------------------------------------------------------------


@kernel(signature="int64(State, int64[::1], Route)")
def route_blindly(s, views, route):
    """Route all requests by a policy that looks at nothing; returns the fault."""
    for i in range(s.req.shape[0]):
        view = view_at(views, s.owner[i])
        describe(s, view, i)  # and nothing of the replicas: the kernels for that need not be compiled
        view.prompt[NOW_PS] = s.req[i, ARRIVAL]
        r = route(view, i)
        if r < 0 or r >= view.load.shape[0]:
            s.pool[FAULT] = BAD_ROUTE
        s.req[i, REPLICA] = r
    return s.pool[FAULT]


@kernel
def run_apart(s, order):
    """As `run`, with all requests routed: replicas nobody looks at are served one after the other.

    Parameters
    ----------
    s : State
    order : int64[served]
        Requests by replica, then by arrival: all, or some of them. So a replica's state stays in the
        processor's cache, however many there are.
    """
    n = order.shape[0]
    pool = s.pool
    at = pool[NEXT_REQUEST]
    r = pool[SERVING]
    while pool[FAULT] == NO_FAULT:
        limit = _FAR
        if at < n and s.req[order[at], REPLICA] == r:
            limit = s.req[order[at], ARRIVAL]
        while s.key[r] <= 2 * limit and pool[FAULT] == NO_FAULT:
            pass_event(s, r, limit)
        if pool[FAULT] != NO_FAULT:
            break
        if limit < _FAR:
            change_load(s.load, s.level, r, 1)
            arrive(s, r, order[at], limit)
            at += 1
        elif at < n:
            r = s.req[order[at], REPLICA]
        else:
            break
    pool[NEXT_REQUEST] = at
    pool[SERVING] = r
    return pool[FAULT]
