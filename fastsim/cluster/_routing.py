"""Kernels of what routers do: choose, send, send blocks along, hold back and ask again."""

from __future__ import annotations

import math

from fastsim._bits import prefetch
from fastsim._jit import kernel
from fastsim.cluster import engine
from fastsim.cluster._extents import check_pools
from fastsim.cluster._kv import install
from fastsim.cluster._look import catch_up, count_sent, look
from fastsim.cluster._masks import change_load
from fastsim.cluster._news import has_room, tell_gauges, tell_of_request
from fastsim.cluster._queues import append_waiting
from fastsim.cluster._state import (
    ALLOCATED,
    BAD_ROUTE,
    BUDGET,
    DECODING,
    DONE,
    FAULT,
    FS,
    FULL_NEWS,
    FULL_TREE,
    HELD_AGAIN,
    HELD_FIRST,
    HELD_LAST,
    KIND,
    MAX_SEQS,
    N_HELD,
    N_REP,
    N_REQ,
    N_RUNNING,
    NEVER,
    NEWS,
    NEWS_REQUESTS,
    NEWS_SENT,
    NEXT_REQUEST,
    NO_FAULT,
    NONE,
    ON_WAY,
    OUTPUT,
    PATH,
    PERIOD_PS,
    PROMPT,
    PS,
    QUEUE,
    QUEUE_NEXT,
    RANKING,
    REPLICA,
    REPLICAS,
    RETRY_PS,
    RUN,
    SENT,
    SHARED,
    TRACK,
    TRACK_TREE,
    WAIT_FIRST,
    WAKE_PS,
)
from fastsim.cluster._table import home_of
from fastsim.cluster.routers.tree import remember, tree_has_room
from fastsim.cluster.routers.view import (
    HOLD,
    OUTPUT_TOK,
    PROMPT_TOK,
    REJECT,
    SEND_BLK,
    SEND_PS,
    SESSION,
    view_at,
)

_LINE = 8  # numbers a cache line

# --- the tournament -----------------------------------------------------------------------------------------


@kernel(inline="always")
def replay(s, r):
    """Play the matches of replica r again, from its leaf to the root; the lower index wins a draw.

    This is called whenever something has happened to the replica, so its work is looked at afresh, too.
    """
    s.work_stale_ps[r] = 0
    tree = s.tree
    key = s.key
    at = r + (tree.shape[0] >> 1)
    winner = r
    earliest = key[r]
    while at > 1:
        other = tree[at ^ 1]
        ahead = (key[other] < earliest) | ((key[other] == earliest) & (other < winner))
        winner = other if ahead else winner
        earliest = key[winner]
        at >>= 1
        tree[at] = winner


# --- a request reaches its replica -------------------------------------------------------------------------


@kernel
def arrive(s, r, i, now):
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


# --- what routers do ----------------------------------------------------------------------------------------


@kernel(inline="always")
def describe(s, view, i):
    """Tell a router what request i itself is."""
    prompt = view.prompt
    prompt[PROMPT_TOK] = s.req[i, PROMPT]
    prompt[OUTPUT_TOK] = s.req[i, OUTPUT]
    prompt[SESSION] = s.session[i]
    prompt[SEND_BLK] = 0


@kernel(inline="always")
def decide(s, view, route, i, now):
    """Let a router choose a replica for request i; a fault is noted if there is no such replica."""
    describe(s, view, i)
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
    """Record what request i's router knows; a score that its policy does not write is none.

    What a policy kept of its scores is wiped, too, so it is told to look again.
    """
    view.changes[0] += 1
    for k in range(view.load.shape[0]):
        s.log_load[i, k] = view.load[k]
        s.log_match[i, k] = view.match[k]
        view.score[k] = math.nan


@kernel(inline="always")
def _prefetch_for(s, r, i):
    """Ask for the memory that request i needs on replica r: with many replicas it is far away."""
    for column in range(0, N_REP, _LINE):
        prefetch(s.rep, r * N_REP + column)
    if s.req[i, SHARED] > 0:
        prefetch(s.table, 2 * home_of(s.table, s.path[s.req[i, PATH]] * s.cfg[REPLICAS] + r))


@kernel(inline="always")
def _send(s, view, r, i, now):
    """Send request i to replica r, at once or when the blocks that its router wants there have come."""
    _prefetch_for(s, r, i)
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
        arrive(s, r, i, now)
        replay(s, r)


@kernel(inline="always")
def _try(s, views, route, i, now):
    """Ask request i's router for a replica; returns whether it let the request go."""
    view = view_at(views, s.owner[i])
    if not tree_has_room(view, i):
        s.pool[FAULT] = FULL_TREE
        return False
    r = decide(s, view, route, i, now)
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
def deliver(s, now):
    """Let the first request on its way arrive, behind the blocks sent along."""
    i = s.pool[ON_WAY]
    r = s.req[i, REPLICA]
    if not check_pools(s, s.rep[r, N_RUNNING]):
        return
    if s.cfg[NEWS] and not has_room(s, r):
        s.pool[FAULT] = FULL_NEWS
        return
    catch_up(s, r, now)
    if s.rep[r, KIND] == RUN:  # which blocks the rest of it evicts is not foreseen any more
        engine.shorten(s, r, now)
        if s.key[r] == 2 * now:  # what ends now ends first
            replay(s, r)
            return
    s.pool[ON_WAY] = s.req[i, QUEUE_NEXT]
    s.req[i, DONE] = 0  # it was when the blocks come; from here on it is the end
    if s.rep[r, PS] <= now:  # what is sent to a replica that is down is lost
        install(s, r, i, s.req[i, ALLOCATED])
    arrive(s, r, i, now)
    replay(s, r)


@kernel(inline="always")
def wait_for_refresh(s, now):
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
    wait_for_refresh(s, now)


@kernel
def try_held(s, views, route):
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
        check_pools(s, 0)
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


@kernel(inline="always")
def take(s, views, route, i, now):
    """Let request i, which arrives, come to its router."""
    if s.cfg[NEWS] and not has_room(s, 0):
        s.pool[FAULT] = FULL_NEWS
        return
    if not check_pools(s, 0):
        return
    gone = _try(s, views, route, i, now)
    if s.pool[FAULT] != NO_FAULT:
        return
    if not gone:
        _hold_back(s, i, now)
    s.pool[NEXT_REQUEST] = i + 1
    after_next = min(i + 2, s.req.shape[0] - 1)
    for column in range(0, N_REQ, _LINE):
        prefetch(s.req, after_next * N_REQ + column)
