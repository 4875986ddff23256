"""The event loop: arrivals, the router's view, and the replicas' next events in a tournament tree.

At one instant all steps that end come first, then the routers' refresh, then what routers do: requests held
back, requests whose blocks have come, arrivals in file order; then the steps that start. An event's key is
2 ps for an end and 2 ps + 1 for a start, so that comparing integers gives this order.
"""

from __future__ import annotations

import math

from fastsim._jit import kernel
from fastsim.cluster import engine
from fastsim.cluster._faults import restart, tell_of_loss
from fastsim.cluster._kv import check_pools, install
from fastsim.cluster._look import catch_up, count_sent, look, read_news, refresh
from fastsim.cluster._masks import change_load
from fastsim.cluster._news import has_room, tell_gauges, tell_of_request
from fastsim.cluster._queues import append_waiting
from fastsim.cluster._state import (
    ACTIVE,
    ALLOCATED,
    ARRIVAL,
    BAD_ROUTE,
    BITS,
    BUDGET,
    COME_PS,
    DECODING,
    DELAY_PS,
    DELAYED,
    DONE,
    EVENTS,
    FAULT,
    FS,
    FULL_NEWS,
    FULL_TREE,
    HELD_AGAIN,
    HELD_FIRST,
    HELD_FOREVER,
    HELD_LAST,
    JOIN,
    JOINED,
    KIND,
    LOAD_VIEW,
    MAX_SEQS,
    N_HELD,
    N_RUNNING,
    N_WAITING,
    NEVER,
    NEWS,
    NEWS_DUE,
    NEWS_PS,
    NEWS_READ,
    NEWS_REQUESTS,
    NEWS_SENT,
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
    OUTPUT,
    PERIOD_PS,
    PERIODIC,
    PROMPT,
    PS,
    QUEUE,
    QUEUE_NEXT,
    RANKING,
    REFRESHED,
    REPLICA,
    RESTART_SILENTLY,
    RETRY_PS,
    RUN,
    RUNS,
    SENT,
    SERVING,
    TOLD,
    TRACK,
    TRACK_TREE,
    WAIT_FIRST,
    WAKE_PS,
)
from fastsim.cluster.routers.tree import remember, tree_has_room
from fastsim.cluster.routers.view import (
    HOLD,
    NOW_PS,
    OUTPUT_TOK,
    PROMPT_TOK,
    REJECT,
    SEND_BLK,
    SEND_PS,
    SESSION,
    view_at,
)

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


# --- events -------------------------------------------------------------------------------------------------


@kernel
def _arrive(s, r, i, now):
    """Put request i into the queue of replica r."""
    rep = s.rep
    s.work[r] += s.req[i, PROMPT] + s.req[i, OUTPUT] - 1
    append_waiting(s, r, i)
    may_be_next = rep[r, WAIT_FIRST] == i or s.cfg[QUEUE] >= RANKING
    admissible = may_be_next and rep[r, N_RUNNING] < s.cfg[MAX_SEQS]
    if s.key[r] == NEVER:
        if rep[r, PS] < now:
            rep[r, PS] = now
            rep[r, FS] = 0
        s.key[r] = 2 * rep[r, PS] + 1  # later than now while a replica restarts
    elif rep[r, KIND] == RUN and admissible and rep[r, DECODING] < s.cfg[BUDGET]:
        engine.shorten(s, r, now)
    tell_gauges(s, r, now)


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
            tell_gauges(s, r, rep[r, PS])
            return
        s.key[r] = 2 * rep[r, PS] + 1
        if rep[r, PS] >= limit:
            tell_gauges(s, r, rep[r, PS])
            return
    engine.start(s, r)
    tell_gauges(s, r, rep[r, PS])


# --- what routers do ----------------------------------------------------------------------------------------


@kernel(inline="always")
def _describe(s, view, i):
    """Tell a router what request i itself is."""
    prompt = view.prompt
    prompt[PROMPT_TOK] = s.req[i, PROMPT]
    prompt[OUTPUT_TOK] = s.req[i, OUTPUT]
    prompt[SESSION] = s.session[i]
    prompt[SEND_BLK] = 0


@kernel
def _decide(s, view, route, i, now):
    """Let a router choose a replica for request i; a fault is noted if there is no such replica."""
    _describe(s, view, i)
    look(s, view, i, now)
    recorded = s.log_load.shape[0] > 0
    if recorded:
        _record_view(s, view, i)
    if s.most_load.shape[0] > 0 and _too_busy(s, view, i):
        return REJECT
    r = route(view, i)
    if recorded:
        for k in range(view.score.shape[0]):
            s.log_score[i, k] = view.score[k]
    if (r < 0 and r != REJECT and r != HOLD) or r >= view.load.shape[0]:
        s.pool[FAULT] = BAD_ROUTE
        r = 0
    return r


@kernel
def _too_busy(s, view, i):
    """Whether request i's router sees more requests in flight than the request is to wait with."""
    in_flight = 0
    for k in range(view.load.shape[0]):
        in_flight += view.load[k]
    return in_flight > s.most_load[i] * view.load.shape[0]


@kernel
def _record_view(s, view, i):
    """Record what request i's router knows; a score that its policy does not write is none."""
    for k in range(view.load.shape[0]):
        s.log_load[i, k] = view.load[k]
        s.log_match[i, k] = view.match[k]
        view.score[k] = math.nan


@kernel
def _send(s, view, r, i, now):
    """Send request i to replica r, at once or when the blocks that its router wants there have come."""
    s.req[i, REPLICA] = r
    change_load(s.load, s.level, r, 1)
    if s.cfg[NEWS]:
        count_sent(s, view, i, r)
        tell_of_request(s, now, SENT, i, r, 0, NEWS_SENT)
    if s.cfg[TRACK] == TRACK_TREE:
        remember(view, i, r)
    blocks = view.prompt[SEND_BLK]
    if blocks > 0:
        _delay(s, i, now + view.prompt[SEND_PS], blocks)
    else:
        _arrive(s, r, i, now)
        _replay(s, r)


@kernel
def _try(s, views, route, i, now):
    """Ask request i's router for a replica; returns whether it let the request go."""
    view = view_at(views, s.owner[i])
    if not tree_has_room(view, i):
        s.pool[FAULT] = FULL_TREE
        return False
    r = _decide(s, view, route, i, now)
    if s.pool[FAULT] != NO_FAULT or r == HOLD:
        return False
    if r == REJECT:
        s.req[i, REPLICA] = NONE
    else:
        _send(s, view, r, i, now)
    return True


@kernel
def _delay(s, i, ps, blocks):
    """Keep request i until `ps`, when `blocks` blocks of its prompt will have come to its replica."""
    req = s.req
    req[i, DONE] = ps
    req[i, ALLOCATED] = blocks
    before = NONE
    at = s.pool[ON_WAY]
    while at != NONE and req[at, DONE] <= ps:
        before = at
        at = req[at, QUEUE_NEXT]
    req[i, QUEUE_NEXT] = at
    if before == NONE:
        s.pool[ON_WAY] = i
    else:
        req[before, QUEUE_NEXT] = i


@kernel
def _deliver(s, now):
    """Let the first request on its way arrive, behind the blocks sent along."""
    i = s.pool[ON_WAY]
    r = s.req[i, REPLICA]
    if not check_pools(s, s.rep[r, N_RUNNING]):
        return
    if s.cfg[NEWS] and not has_room(s, r):
        s.pool[FAULT] = FULL_NEWS
        return
    s.pool[ON_WAY] = s.req[i, QUEUE_NEXT]
    catch_up(s, r, now)
    if s.rep[r, KIND] == RUN:  # which blocks the rest of it evicts is not foreseen any more
        engine.shorten(s, r, now)
    s.pool[COME_PS] = now
    if s.rep[r, PS] <= now:  # what is sent to a replica that is down is lost
        install(s, r, i, s.req[i, ALLOCATED])
    _arrive(s, r, i, now)
    _replay(s, r)


@kernel(inline="always")
def _wait_for_refresh(s, now):
    """Let the routers be asked again at the next refresh, when what they know of the replicas has changed."""
    period = s.cfg[PERIOD_PS]
    if period and s.pool[N_HELD] > 0:
        s.pool[WAKE_PS] = (now // period + 1) * period


@kernel
def _hold_back(s, i, now):
    """Append request i to those that routers hold back, who want to hear of first tokens and ends now."""
    pool = s.pool
    s.cfg[NEWS] |= NEWS_REQUESTS
    s.req[i, QUEUE_NEXT] = NONE
    if pool[HELD_FIRST] == NONE:
        pool[HELD_FIRST] = i
    else:
        s.req[pool[HELD_LAST], QUEUE_NEXT] = i
    pool[HELD_LAST] = i
    pool[N_HELD] += 1
    _wait_for_refresh(s, now)


@kernel
def _try_held(s, views, route):
    """Ask again for all requests held back, in the order in which they came.

    If room is short it stops half-way, to be called again: whoever was asked already is not asked twice.
    """
    pool = s.pool
    now = pool[RETRY_PS]
    before = pool[HELD_AGAIN]
    i = pool[HELD_FIRST] if before == NONE else s.req[before, QUEUE_NEXT]
    while i != NONE:
        following = s.req[i, QUEUE_NEXT]
        if not has_room(s, 0):
            pool[FAULT] = FULL_NEWS
        gone = pool[FAULT] == NO_FAULT and _try(s, views, route, i, now)
        if pool[FAULT] != NO_FAULT:
            pool[HELD_AGAIN] = before
            return
        if gone:
            if before == NONE:
                pool[HELD_FIRST] = following
            else:
                s.req[before, QUEUE_NEXT] = following
            if following == NONE:
                pool[HELD_LAST] = before
            pool[N_HELD] -= 1
        else:
            before = i
        i = following
    pool[HELD_AGAIN] = NONE
    pool[RETRY_PS] = NONE


@kernel
def _take(s, views, route, i, now):
    """Let request i, which arrives, come to its router."""
    if s.cfg[NEWS] and not has_room(s, 0):
        s.pool[FAULT] = FULL_NEWS
        return
    gone = _try(s, views, route, i, now)
    if s.pool[FAULT] != NO_FAULT:
        return
    if not gone:
        _hold_back(s, i, now)
    s.pool[NEXT_REQUEST] = i + 1


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
            _replay(s, r)
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


@kernel
def _pass_events(s, views, heard, limit):
    """Handle the replicas' events up to `limit`; while requests are held back, only up to the next report."""
    pool = s.pool
    r = s.tree[1]
    while s.key[r] <= 2 * limit and pool[FAULT] == NO_FAULT:
        if s.cfg[NEWS]:
            _make_room(s, views, heard, r)
            if pool[FAULT] != NO_FAULT:
                return
        _pass_event(s, r, limit if pool[N_HELD] == 0 else s.key[r] >> 1)
        _replay(s, r)
        r = s.tree[1]
        if pool[N_HELD] > 0:
            limit = min(limit, _next_report(s))


@kernel(signature="int64(State, int64[::1], Route, Heard)")
def run(s, views, route, heard):
    """Simulate until the last request is done or a fault stops the run; returns the fault.

    What stopped for want of room can go on, from the same state with larger pools.
    """
    n = s.req.shape[0]
    pool = s.pool
    while pool[FAULT] == NO_FAULT:
        if pool[RETRY_PS] != NONE:
            _try_held(s, views, route)
            continue
        i = pool[NEXT_REQUEST]
        arrival = s.req[i, ARRIVAL] if i < n else _FAR
        come = s.req[pool[ON_WAY], DONE] if pool[ON_WAY] != NONE else _FAR
        outage = s.outage[pool[NEXT_OUTAGE], OUTAGE_PS] if pool[NEXT_OUTAGE] < s.outage.shape[0] else _FAR
        outside = min(arrival, come)  # the next thing that is no replica's event
        if outside < _FAR or _unfinished(s):
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
            if min(arrival, come) == _FAR and not _unfinished(s):
                continue
            _befall(s, views, heard, limit)
            continue
        if tick == limit:
            refresh(s, view_at(views, 0), limit)
            pool[REFRESHED] = limit
            pool[NEWS_DUE] = pool[NEWS_TOLD]
        told = s.cfg[NEWS] != 0 and read_news(s, views, heard, limit)
        if pool[N_HELD] > 0 and (told or pool[WAKE_PS] == limit):
            pool[RETRY_PS] = limit
            pool[WAKE_PS] = NEVER
            if told:
                _wait_for_refresh(s, limit)
        elif come == limit:
            _deliver(s, limit)
        elif arrival == limit:
            _take(s, views, route, i, limit)
    return pool[FAULT]


# --- routers that look at nothing ---------------------------------------------------------------------------


@kernel(signature="int64(State, int64[::1], Route)")
def route_blindly(s, views, route):
    """Route all requests by a policy that looks at nothing; returns the fault."""
    for i in range(s.req.shape[0]):
        view = view_at(views, s.owner[i])
        _describe(s, view, i)  # and nothing of the replicas: the kernels for that need not be compiled
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
            _pass_event(s, r, limit)
        if pool[FAULT] != NO_FAULT:
            break
        if limit < _FAR:
            change_load(s.load, s.level, r, 1)
            _arrive(s, r, order[at], limit)
            at += 1
        elif at < n:
            r = s.req[order[at], REPLICA]
        else:
            break
    pool[NEXT_REQUEST] = at
    pool[SERVING] = r
    return pool[FAULT]
