"""Kernels of extents: stretches of blocks of one copy of a run, their LRU queue and their list of copies.

All blocks of an extent are held by equally many requests. `_kv` has what the scheduler does with them.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._events import check_events, watched
from fastsim.cluster._state import (
    COPY_NEXT,
    END,
    EXT_FREE,
    EXT_LIVE,
    EXT_TOP,
    FAULT,
    FREE,
    FULL_EXT,
    FULL_HOLD,
    FULL_TABLE,
    HOLD_EXT,
    HOLD_FREE,
    HOLD_LIVE,
    HOLD_NEXT,
    HOLD_START,
    HOLD_TOP,
    HOLDS,
    KEY,
    LOWER,
    LRU_FIRST,
    LRU_LAST,
    LRU_NEXT,
    LRU_PREV,
    NONE,
    REF,
    REPLICAS,
    START,
    TABLE_USED,
)
from fastsim.cluster._table import drop_slot, find_slot

# --- extents and holds --------------------------------------------------------------------------------------


@kernel
def check_pools(s, running):
    """Note a fault unless the pools have room for one more event of a replica that runs so many requests.

    Nothing has changed yet then: the run can go on with larger pools.

    An event makes at most an extent for each request that leaves, two for each piece a request hits, and one
    for each run on its path; `hits` has rows for the longest path. Admissions ask again, one by one.
    """
    pool = s.pool
    most = 3 * (running + s.hits.shape[0])
    if s.ext.shape[0] - pool[EXT_LIVE] < most:
        pool[FAULT] = FULL_EXT
    if s.hold.shape[0] - pool[HOLD_LIVE] < most:
        pool[FAULT] = FULL_HOLD
    if s.table.shape[0] < 2 * pool[TABLE_USED]:
        pool[FAULT] = FULL_TABLE
    if watched(s):
        check_events(s, most + 8)
    return pool[FAULT] == 0


@kernel
def new_extent(s, key, start, end, ref):
    """Make an extent; `check_pools` has made sure that there is a row for it."""
    pool = s.pool
    ext = s.ext
    e = pool[EXT_FREE]
    if e != NONE:
        pool[EXT_FREE] = ext[e, LRU_NEXT]
    else:
        e = pool[EXT_TOP]
        pool[EXT_TOP] = e + 1
    pool[EXT_LIVE] += 1
    ext[e, START] = start
    ext[e, END] = end
    ext[e, REF] = ref
    ext[e, LRU_NEXT] = NONE
    ext[e, LRU_PREV] = NONE
    ext[e, KEY] = key
    ext[e, COPY_NEXT] = NONE
    ext[e, LOWER] = NONE
    return e


@kernel(inline="always")
def free_extent(s, e):
    s.ext[e, LRU_NEXT] = s.pool[EXT_FREE]
    s.pool[EXT_FREE] = e
    s.pool[EXT_LIVE] -= 1


@kernel
def hold(s, i, e, start):
    """Put extent `e`, down to block `start`, on top of request i's holds."""
    pool = s.pool
    hold = s.hold
    h = pool[HOLD_FREE]
    if h != NONE:
        pool[HOLD_FREE] = hold[h, HOLD_NEXT]
    else:
        h = pool[HOLD_TOP]
        pool[HOLD_TOP] = h + 1
    pool[HOLD_LIVE] += 1
    hold[h, HOLD_EXT] = e
    hold[h, HOLD_START] = start
    hold[h, HOLD_NEXT] = s.req[i, HOLDS]
    s.req[i, HOLDS] = h


# --- the LRU queue ------------------------------------------------------------------------------------------


@kernel(inline="always")
def lru_append(s, r, e):
    ext = s.ext
    last = s.rep[r, LRU_LAST]
    ext[e, LRU_PREV] = last
    ext[e, LRU_NEXT] = NONE
    if last == NONE:
        s.rep[r, LRU_FIRST] = e
    else:
        ext[last, LRU_NEXT] = e
    s.rep[r, LRU_LAST] = e
    s.rep[r, FREE] += ext[e, END] - ext[e, START]


@kernel(inline="always")
def lru_remove(s, r, e):
    """Take an extent out of the queue; the first one's LRU_PREV is not kept, which spares a cache miss."""
    ext = s.ext
    after = ext[e, LRU_NEXT]
    if s.rep[r, LRU_FIRST] == e:
        s.rep[r, LRU_FIRST] = after
        if after == NONE:
            s.rep[r, LRU_LAST] = NONE
    else:
        before = ext[e, LRU_PREV]
        ext[before, LRU_NEXT] = after
        if after == NONE:
            s.rep[r, LRU_LAST] = before
        else:
            ext[after, LRU_PREV] = before
    s.rep[r, FREE] -= ext[e, END] - ext[e, START]


# --- copies of a run ----------------------------------------------------------------------------------------


@kernel
def add_copy(s, key, e):
    """Append an extent to the copies of its key: registered last. Returns the first copy."""
    ext = s.ext
    table = s.table
    slot = find_slot(table, key)
    if table[slot, 0] == 0:
        table[slot, 0] = key + 1
        table[slot, 1] = e
        s.pool[TABLE_USED] += 1
        return e
    first = table[slot, 1]
    last = first
    while ext[last, COPY_NEXT] != NONE:
        last = ext[last, COPY_NEXT]
    ext[last, COPY_NEXT] = e
    return first


@kernel
def remove_copy(s, e):
    """Take an extent out of the copies of its key; returns the first copy left, or NONE."""
    ext = s.ext
    slot = find_slot(s.table, ext[e, KEY])
    first = s.table[slot, 1]
    following = ext[e, COPY_NEXT]
    if first != e:
        at = first
        while ext[at, COPY_NEXT] != e:
            at = ext[at, COPY_NEXT]
        ext[at, COPY_NEXT] = following
        return first
    if following == NONE:
        drop_slot(s.table, slot)
        s.pool[TABLE_USED] -= 1
    else:
        s.table[slot, 1] = following
    return following


@kernel
def split(s, r, e, at):
    """Split extent `e` at block `at`; returns the new extent with the lower blocks, `e` keeps the upper ones.

    Whoever holds both finds the lower part by LOWER; in the LRU queue it follows `e`, being shallower.
    """
    ext = s.ext
    lower = new_extent(s, ext[e, KEY], ext[e, START], at, ext[e, REF])
    ext[e, START] = at
    ext[lower, LOWER] = ext[e, LOWER]
    ext[e, LOWER] = lower
    slot = find_slot(s.table, ext[e, KEY])  # into the list of copies just before `e`
    before = s.table[slot, 1]
    if before == e:
        s.table[slot, 1] = lower
    else:
        while ext[before, COPY_NEXT] != e:
            before = ext[before, COPY_NEXT]
        ext[before, COPY_NEXT] = lower
    ext[lower, COPY_NEXT] = e
    if ext[e, REF] == 0:
        after = ext[e, LRU_NEXT]
        ext[lower, LRU_PREV] = e
        ext[lower, LRU_NEXT] = after
        ext[e, LRU_NEXT] = lower
        if after == NONE:
            s.rep[r, LRU_LAST] = lower
        else:
            ext[after, LRU_PREV] = lower
    return lower


@kernel
def list_copies(s, out):
    """Write (run, first block, end) of every extent that can be looked up into `out`; returns how many."""
    ext = s.ext
    count = 0
    for slot in range(s.table.shape[0]):
        if s.table[slot, 0] != 0:
            e = s.table[slot, 1]
            while e != NONE:
                out[count, 0] = ext[e, KEY] // s.cfg[REPLICAS]
                out[count, 1] = ext[e, START]
                out[count, 2] = ext[e, END]
                count += 1
                e = ext[e, COPY_NEXT]
    return count
