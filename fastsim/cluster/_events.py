"""Kernels of cache events: what a step changes in a replica's cache is known when the step ends.

Engines collect such events while they schedule and publish them with the step's output. So a change waits in
a list of its replica, with the step of the run under way that made it; blocks that come from elsewhere are
published with the step under way, or the next. What is published is in the routers' index at once (live
view), waits for the next refresh (periodic), or is reported (`_news`).
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._index import coverage, show
from fastsim.cluster._news import tell
from fastsim.cluster._state import (
    CACHE,
    EVENT_FIRST,
    EVENT_FREE,
    EVENT_HELD,
    EVENT_KEY,
    EVENT_LAST,
    EVENT_NEXT,
    EVENT_STEP,
    EVENT_TOP,
    EVENTS_LIVE,
    EXT_LIVE,
    FAULT,
    FULL_EVENTS,
    FULL_TABLE,
    N_EVENTS,
    NEWS,
    NEWS_CACHES,
    NEWS_READ,
    NEWS_TOLD,
    NONE,
    REGISTERED,
    REPLICAS,
    RUNS,
    SEEN_LIVE,
    TAKEN,
    TRACK,
    TRACK_DELAYED,
    TRACK_LIVE,
    TRACK_PERIODIC,
)


@kernel(inline="always")
def watched(s):
    """Whether anybody wants to know of changes of caches."""
    return s.cfg[NEWS] & NEWS_CACHES != 0 or TRACK_LIVE <= s.cfg[TRACK] <= TRACK_DELAYED


@kernel
def check_events(s, most):
    """Note a fault unless there is room for so many more changes, besides an eviction of all there is."""
    pool = s.pool
    most += pool[EXT_LIVE] + 2 * s.cfg[REPLICAS]
    if s.event.shape[0] - pool[EVENTS_LIVE] < most:
        pool[FAULT] = FULL_EVENTS
    to_show = pool[EVENTS_LIVE] + 2 * s.cfg[REPLICAS]
    if s.cfg[TRACK] == TRACK_DELAYED:
        to_show += pool[NEWS_TOLD] - pool[NEWS_READ]
    if s.seen.shape[0] > 1 and s.seen.shape[0] < 2 * pool[SEEN_LIVE] + to_show:
        pool[FAULT] = FULL_TABLE


@kernel(inline="always")
def changed(s, key, first):
    """Note a change to the copies of a key, listed from extent `first` on."""
    if watched(s):
        run = key // s.cfg[REPLICAS]
        if run < s.cfg[RUNS]:  # else a preempted request's own blocks: nobody else can match them
            r = key - run * s.cfg[REPLICAS]
            _append(s, r, key, coverage(s, first), s.rep[r, TAKEN])


@kernel
def _append(s, at, key, held, step):
    """Put an event at the end of list `at`: a replica's, or after those the list of what is published."""
    pool = s.pool
    e = pool[EVENT_FREE]
    if e != NONE:
        pool[EVENT_FREE] = s.event[e, EVENT_NEXT]
    else:
        e = pool[EVENT_TOP]
        pool[EVENT_TOP] = e + 1
    pool[EVENTS_LIVE] += 1
    s.event[e, EVENT_KEY] = key
    s.event[e, EVENT_HELD] = held
    s.event[e, EVENT_STEP] = step
    _link(s, at, e)


@kernel
def _link(s, at, e):
    events = s.events
    s.event[e, EVENT_NEXT] = NONE
    if events[at, EVENT_FIRST] == NONE:
        events[at, EVENT_FIRST] = e
    else:
        s.event[events[at, EVENT_LAST], EVENT_NEXT] = e
    events[at, EVENT_LAST] = e
    events[at, N_EVENTS] += 1


@kernel
def _take_first(s, at):
    """Take the first event out of a list."""
    events = s.events
    e = events[at, EVENT_FIRST]
    events[at, EVENT_FIRST] = s.event[e, EVENT_NEXT]
    events[at, N_EVENTS] -= 1
    return e


@kernel(inline="always")
def _free(s, e):
    s.event[e, EVENT_NEXT] = s.pool[EVENT_FREE]
    s.pool[EVENT_FREE] = e
    s.pool[EVENTS_LIVE] -= 1


@kernel
def publish(s, r, steps, ps):
    """Publish what the first `steps` steps of the run under way changed; they have ended, at `ps`."""
    events = s.events
    replicas = s.cfg[REPLICAS]
    track = s.cfg[TRACK]
    while events[r, EVENT_FIRST] != NONE and s.event[events[r, EVENT_FIRST], EVENT_STEP] <= steps:
        e = _take_first(s, r)
        key = s.event[e, EVENT_KEY]
        held = s.event[e, EVENT_HELD]
        run = key // replicas
        if s.lost.shape[0] > 0:
            s.lost[run, r] = 0
        if s.cfg[NEWS] & NEWS_CACHES:
            tell(s, ps, CACHE, run, r, held)
        if track == TRACK_PERIODIC:
            _link(s, replicas, e)
        else:
            if track == TRACK_LIVE:
                show(s, key, held)
            _free(s, e)


@kernel
def publish_all(s, r, steps, ps):
    """As `publish`, at the end of a run; what came in the meantime goes with the next step."""
    if s.events[r, EVENT_FIRST] != NONE:
        publish(s, r, steps, ps)
        e = s.events[r, EVENT_FIRST]
        while e != NONE:
            s.event[e, EVENT_STEP] = 1
            e = s.event[e, EVENT_NEXT]
    s.events[r, REGISTERED] = 0


@kernel
def show_published(s):
    """Bring a periodic view's index up to date."""
    at = s.cfg[REPLICAS]
    while s.events[at, EVENT_FIRST] != NONE:
        e = _take_first(s, at)
        show(s, s.event[e, EVENT_KEY], s.event[e, EVENT_HELD])
        _free(s, e)


@kernel
def publish_loss(s, run, r):
    """Let a periodic view's next refresh find that replica r holds nothing of a run."""
    _append(s, s.cfg[REPLICAS], run * s.cfg[REPLICAS] + r, 0, 0)


@kernel
def drop_events(s, r):
    """Forget what replica r has not published."""
    while s.events[r, EVENT_FIRST] != NONE:
        _free(s, _take_first(s, r))
    s.events[r, REGISTERED] = 0
