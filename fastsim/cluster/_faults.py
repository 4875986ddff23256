"""Kernels of what happens to replicas from outside: they restart, and routers are told of it late.

A restart loses the cache and the step under way. Requests in flight stay with their replica and start anew
once it is back, with the tokens they had produced as part of their prompt, as after a preemption.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster import engine
from fastsim.cluster._decode import produced, stop_decoding
from fastsim.cluster._events import drop_events, publish_loss, watched
from fastsim.cluster._index import show
from fastsim.cluster._kv import drop_holds, evict_all
from fastsim.cluster._news import tell
from fastsim.cluster._queues import prepend_waiting, remove_running
from fastsim.cluster._running import resume_paused
from fastsim.cluster._state import (
    ALPHA,
    BETA,
    BLANK,
    CACHE,
    COMPUTED,
    DURATION,
    EVENT_FIRST,
    EVENT_KEY,
    EVENT_NEXT,
    FREE,
    FS,
    IDLE,
    KEY,
    KIND,
    KV_BLOCKS,
    LRU_FIRST,
    LRU_NEXT,
    N_WAITING,
    NEVER,
    NEWS,
    NEWS_CACHES,
    NONE,
    PAUSED,
    PREEMPTED,
    PREFILLING,
    PROMPT,
    PS,
    QUEUE_NEXT,
    QUEUE_PREV,
    REPLICAS,
    RUN,
    RUN_LAST,
    RUNS,
    SCHEDULED,
    STEP,
    STEPS,
    TAKEN,
    TRACK,
    TRACK_LIVE,
    TRACK_OFF,
    TRACK_PERIODIC,
)
from fastsim.cluster._step_time import steps_until


@kernel
def restart(s, r, now, down_ps, silently):
    """Restart replica r at `now`; it is back `down_ps` later."""
    rep = s.rep
    track = s.cfg[TRACK]
    news = s.cfg[NEWS]
    back = max(rep[r, PS], now + down_ps)  # it may be down already
    _cut_short(s, r, now)
    told = watched(s)
    s.cfg[TRACK] = TRACK_OFF  # routers learn of the loss below, or later
    s.cfg[NEWS] = news & ~NEWS_CACHES
    _put_back(s, r)
    if told:
        _note_lost(s, r, track == TRACK_PERIODIC)
    evict_all(s, r)
    s.cfg[TRACK] = track
    s.cfg[NEWS] = news
    if not silently:
        tell_of_loss(s, r, now)
    rep[r, BLANK] = s.cfg[KV_BLOCKS]
    rep[r, FREE] = s.cfg[KV_BLOCKS]
    rep[r, PS] = back
    rep[r, FS] = 0
    rep[r, KIND] = IDLE
    rep[r, TAKEN] = 1
    s.blocks_stale_ps[r] = NEVER
    s.key[r] = 2 * back + 1 if rep[r, N_WAITING] > 0 else NEVER


@kernel
def _note_lost(s, r, periodic):
    """Note of which runs replica r, whose requests hold nothing, is about to lose blocks.

    The next snapshot of a periodic view shows it. What the replica's last step changed is not published any
    more, but routers may know of the blocks it evicted.
    """
    e = s.events[r, EVENT_FIRST]
    while e != NONE:
        _lose(s, s.event[e, EVENT_KEY] // s.cfg[REPLICAS], r, periodic)
        e = s.event[e, EVENT_NEXT]
    drop_events(s, r)
    e = s.rep[r, LRU_FIRST]
    while e != NONE:
        run = s.ext[e, KEY] // s.cfg[REPLICAS]
        if s.ext[e, KEY] != NONE and run < s.cfg[RUNS]:
            _lose(s, run, r, periodic)
        e = s.ext[e, LRU_NEXT]


@kernel
def _lose(s, run, r, periodic):
    if s.lost[run, r] == 0:
        s.lost[run, r] = 1
        if periodic:
            publish_loss(s, run, r)


@kernel
def _cut_short(s, r, now):
    """Undo the step under way; of a run of decode steps those that ended by `now` count."""
    rep = s.rep
    if rep[r, KIND] == RUN:
        engine.take_until(s, r, engine.boundary_from(s, r, now))  # the step under way, too, took its blocks
        wait_fs = (now - rep[r, PS] + 1) * 1000 - rep[r, FS]
        steps = min(steps_until(rep[r, ALPHA], rep[r, BETA], wait_fs) - 1, rep[r, STEPS])
        if steps > 0:
            rep[r, STEPS] = steps
            rep[r, DURATION] = engine.run_fs(rep[r, ALPHA], rep[r, BETA], steps)
            engine.end(s, r)
    elif rep[r, KIND] == STEP:
        i = rep[r, PREFILLING]
        while i != NONE:
            s.req[i, COMPUTED] -= s.req[i, SCHEDULED]
            s.req[i, SCHEDULED] = 0
            i = s.req[i, QUEUE_NEXT]


@kernel
def _put_back(s, r):
    """Put all running requests back into the queue, in their order, with nothing computed."""
    rep = s.rep
    req = s.req
    if rep[r, PAUSED] != NONE:
        resume_paused(s, r)
    prefilling = rep[r, PREFILLING] != NONE
    i = rep[r, RUN_LAST]
    while i != NONE:
        before = req[i, QUEUE_PREV]
        if prefilling:
            computed = req[i, COMPUTED]
            prefilling = i != rep[r, PREFILLING]
        else:
            computed = req[i, PROMPT] + produced(s, r, i) - 1
            stop_decoding(s, r, i)
        remove_running(s, r, i)
        drop_holds(s, r, i)
        s.work[r] += computed
        req[i, COMPUTED] = 0
        req[i, PREEMPTED] += 1
        prepend_waiting(s, r, i)
        i = before
    rep[r, PREFILLING] = NONE


@kernel
def tell_of_loss(s, r, now):
    """Let routers know that replica r holds nothing of what it has lost without their knowing."""
    for run in range(s.lost.shape[0]):
        if s.lost[run, r] == 0:
            continue
        s.lost[run, r] = 0
        if s.cfg[TRACK] == TRACK_LIVE:
            show(s, run * s.cfg[REPLICAS] + r, 0)
        if s.cfg[NEWS] & NEWS_CACHES:
            tell(s, now, CACHE, run, r, 0)
