"""Kernels of what happens to replicas from outside: they restart, and routers are told of it late.

A restart loses the cache and the step under way. Requests in flight stay with their replica and start anew
once it is back, with the tokens they had produced as part of their prompt, as after a preemption.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster import engine
from fastsim.cluster._decode import produced, stop_decoding
from fastsim.cluster._index import coverage, note
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
    TRACK,
    TRACK_LIVE,
    TRACK_OFF,
)
from fastsim.cluster._step_time import steps_until
from fastsim.cluster._table import get


@kernel
def restart(s, r, now, down_ps, silently):
    """Restart replica r at `now`; it is back `down_ps` later."""
    rep = s.rep
    track = s.cfg[TRACK]
    news = s.cfg[NEWS]
    back = max(rep[r, PS], now + down_ps)  # it may be down already
    _cut_short(s, r, now)
    s.cfg[TRACK] = TRACK_OFF  # routers learn of the loss below, or later
    s.cfg[NEWS] = news & ~NEWS_CACHES
    _put_back(s, r)
    if track == TRACK_LIVE or news & NEWS_CACHES:
        _note_lost(s, r)
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
    s.blocks_stale_ps[r] = NEVER
    s.key[r] = 2 * back + 1 if rep[r, N_WAITING] > 0 else NEVER


@kernel
def _note_lost(s, r):
    """Note of each run what replica r, whose requests hold nothing, is about to lose of it."""
    e = s.rep[r, LRU_FIRST]
    while e != NONE:
        run = s.ext[e, KEY] // s.cfg[REPLICAS]
        if s.ext[e, KEY] != NONE and run < s.cfg[RUNS]:
            s.lost[run, r] = coverage(s, get(s.table, s.ext[e, KEY], NONE))
        e = s.ext[e, LRU_NEXT]


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
    """Let routers know what replica r holds of all that it has lost without their knowing."""
    for run in range(s.lost.shape[0]):
        if s.lost[run, r] == 0:
            continue
        s.lost[run, r] = 0
        key = run * s.cfg[REPLICAS] + r
        covered = coverage(s, get(s.table, key, NONE))
        if s.cfg[TRACK] == TRACK_LIVE:
            note(s, key, covered)
        if s.cfg[NEWS] & NEWS_CACHES:
            tell(s, now, CACHE, run, r, covered)
