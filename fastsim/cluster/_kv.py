"""Kernels of a replica's KV blocks, kept as extents: vLLM V1's block pool without touching single blocks.

An extent is a stretch of blocks of one run in one copy, all held by equally many requests. Extents nobody
holds stand in the replica's LRU queue, the deepest of a request first; eviction takes blocks from the first
extent's deep end, which is the order in which vLLM frees and pops them. A request's unshared blocks are a
mere count until it ends or is preempted. Equal blocks computed twice are two copies; a lookup takes the copy
registered first.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._events import changed, watched
from fastsim.cluster._extents import (
    add_copy,
    free_extent,
    hold,
    lru_append,
    lru_remove,
    new_extent,
    remove_copy,
    split,
)
from fastsim.cluster._index import coverage
from fastsim.cluster._state import (
    BLANK,
    BLOCK,
    COPY_NEXT,
    CURSOR,
    CURSOR_BLK,
    END,
    EVICTED,
    FAULT,
    FREE,
    FULL_HITS,
    HOLD_EXT,
    HOLD_FREE,
    HOLD_LIVE,
    HOLD_NEXT,
    HOLD_START,
    HOLDS,
    KEY,
    LOWER,
    LRU_FIRST,
    LRU_LAST,
    NONE,
    OPEN,
    PATH,
    PREEMPTED,
    PROMPT,
    REF,
    REPLICAS,
    RUNS,
    SHARED,
    START,
    WHOLE,
)
from fastsim.cluster._table import get

# --- what the scheduler asks for ----------------------------------------------------------------------------


@kernel
def take_blocks(s, r, n):
    """Allocate n of the replica's free blocks, of which it has enough: blank ones first, then evict."""
    rep = s.rep
    rep[r, FREE] -= n
    blank = rep[r, BLANK]
    if n <= blank:
        rep[r, BLANK] = blank - n
    else:
        rep[r, BLANK] = 0
        _evict(s, r, n - blank)


@kernel
def _evict(s, r, n):
    """Drop n cached blocks from the front of the LRU queue; FREE does not count them any more."""
    ext = s.ext
    rep = s.rep
    while n > 0:
        e = rep[r, LRU_FIRST]
        size = ext[e, END] - ext[e, START]
        key = ext[e, KEY]
        if size > n and s.cfg[WHOLE] == 0:
            ext[e, END] -= n
            rep[r, EVICTED] += n
            if key != NONE and watched(s):
                changed(s, key, get(s.table, key, NONE))
            return
        rep[r, FREE] += size  # which removing it takes off again
        lru_remove(s, r, e)
        rep[r, EVICTED] += size
        if size > n:
            rep[r, BLANK] += size - n
        n -= size
        if key != NONE:
            changed(s, key, remove_copy(s, e))
        free_extent(s, e)


@kernel
def evict_all(s, r):
    """Drop all cached blocks of a replica whose requests hold none; they do not count as evicted."""
    evicted = s.rep[r, EVICTED]
    while s.rep[r, LRU_FIRST] != NONE:
        e = s.rep[r, LRU_FIRST]
        size = s.ext[e, END] - s.ext[e, START]
        s.rep[r, FREE] -= size
        _evict(s, r, size)
    s.rep[r, EVICTED] = evicted


@kernel(inline="always")
def most_hit(s, total):
    """Blocks of `total` tokens that may be hit, though the last token is always computed, for its output.

    vLLM computes the block that has it. The lecture's segments are hit whole: then one token is computed
    again that is in the cache.
    """
    return total if s.cfg[WHOLE] else (total - 1) // s.cfg[BLOCK]


@kernel
def find_hits(s, r, i, limit):
    """Look up request i's longest cached prefix of at most `limit` blocks.

    Returns
    -------
    pieces, blocks, free : int
        Rows of ``s.hits`` written (extent, from, to), blocks hit, and how many of them nobody holds.
    """
    req = s.req
    replicas = s.cfg[REPLICAS]
    path = req[i, PATH]
    shared = min(limit, req[i, SHARED])
    pieces = 0
    free = 0
    depth = 0
    while depth < shared:
        run = s.path[path]
        length = s.run_len[run]
        if depth + length > shared:
            if s.cfg[WHOLE]:
                return pieces, depth, free
            length = shared - depth
        got, pieces, free = _find_run(s, run * replicas + r, length, pieces, free)
        depth += got
        if got < length:
            return pieces, depth, free
        path += 1
    if limit > depth and req[i, PREEMPTED] > 0 and depth == req[i, SHARED] and s.cfg[WHOLE] == 0:
        key = (s.cfg[RUNS] + i) * replicas + r
        got, pieces, free = _find_run(s, key, limit - depth, pieces, free)
        depth += got
    return pieces, depth, free


@kernel
def _find_run(s, key, length, pieces, free):
    """Find the oldest copies of the first `length` blocks of a key, as far as there is no gap."""
    ext = s.ext
    hits = s.hits
    first = get(s.table, key, NONE)
    done = 0
    while done < length:
        e = first
        upto = length  # where a copy older than the one found begins
        while e != NONE and not (ext[e, START] <= done < ext[e, END]):
            if ext[e, START] > done:
                upto = min(upto, ext[e, START])
            e = ext[e, COPY_NEXT]
        if e == NONE:
            break
        upto = min(upto, ext[e, END])
        if pieces >= hits.shape[0]:
            s.pool[FAULT] = FULL_HITS
            break
        hits[pieces, 0] = e
        hits[pieces, 1] = done
        hits[pieces, 2] = upto
        pieces += 1
        if ext[e, REF] == 0:
            free += upto - done
        done = upto
    return done, pieces, free


@kernel
def hold_hits(s, r, i, pieces):
    """Hold the extents that `find_hits` found, splitting those hit in part."""
    ext = s.ext
    hits = s.hits
    for k in range(pieces):
        e = hits[k, 0]
        start = hits[k, 1]
        end = hits[k, 2]
        if ext[e, START] < start:
            split(s, r, e, start)
        if end < ext[e, END]:
            e = split(s, r, e, end)  # pieces further up lie in the part that keeps its number
        if ext[e, REF] == 0:
            lru_remove(s, r, e)
        ext[e, REF] += 1
        hold(s, i, e, start)


@kernel
def start_path(s, i, depth):
    """Set request i's cursor at block `depth` of its path, from where its own blocks go on."""
    req = s.req
    path = req[i, PATH]
    at = 0
    end = min(depth, req[i, SHARED])
    while at < end and at + s.run_len[s.path[path]] <= end:
        at += s.run_len[s.path[path]]
        path += 1
    req[i, CURSOR] = path
    req[i, CURSOR_BLK] = at
    req[i, OPEN] = NONE


@kernel
def register(s, r, i, begin, end):
    """Make request i's own blocks [begin, end), now full or to be filled in this step, visible to lookups.

    Only those on shared runs; nobody else can ask for the others.
    """
    if s.cfg[WHOLE]:
        _register_whole(s, r, i, end)
        return
    req = s.req
    ext = s.ext
    end = min(end, req[i, SHARED])
    while begin < end:
        run = s.path[req[i, CURSOR]]
        base = req[i, CURSOR_BLK]
        low = begin - base
        high = min(end - base, s.run_len[run])
        key = run * s.cfg[REPLICAS] + r
        e = req[i, OPEN]
        # Only the copy registered last may grow in place, or it would seem older than it is.
        if e != NONE and ext[e, END] == low and ext[e, REF] == 1 and ext[e, COPY_NEXT] == NONE:
            ext[e, END] = high
            first = get(s.table, key, NONE)
        else:
            e = new_extent(s, key, low, high, 1)
            first = add_copy(s, key, e)
            hold(s, i, e, low)
            req[i, OPEN] = e
        changed(s, key, first)
        begin = base + high
        if high == s.run_len[run]:
            req[i, CURSOR] += 1
            req[i, CURSOR_BLK] = begin
            req[i, OPEN] = NONE


@kernel
def _register_whole(s, r, i, end):
    """As `register`, but a segment becomes visible only when whole, and only if there is no copy yet."""
    req = s.req
    end = min(end, req[i, SHARED])
    while req[i, CURSOR_BLK] < end:
        run = s.path[req[i, CURSOR]]
        length = s.run_len[run]
        if req[i, CURSOR_BLK] + length > end:
            return
        key = run * s.cfg[REPLICAS] + r
        if get(s.table, key, NONE) == NONE:
            e = new_extent(s, key, 0, length, 1)
            changed(s, key, add_copy(s, key, e))
            hold(s, i, e, 0)
        req[i, CURSOR] += 1
        req[i, CURSOR_BLK] += length


@kernel
def install(s, r, i, blocks):
    """Copy the first blocks of request i's prompt to replica r, as far as it lacks them; nobody holds them.

    Stops where there is no room, or where making room evicts what the copy would continue.
    """
    path = s.req[i, PATH]
    blocks = min(blocks, s.req[i, SHARED], s.req[i, PROMPT] // s.cfg[BLOCK])
    depth = 0
    while depth < blocks:
        run = s.path[path]
        length = min(s.run_len[run], blocks - depth)
        key = run * s.cfg[REPLICAS] + r
        have = coverage(s, get(s.table, key, NONE))
        if have < length:
            size = length - have
            if (s.cfg[WHOLE] and length < s.run_len[run]) or size > s.rep[r, FREE]:
                return
            take_blocks(s, r, size)
            if coverage(s, get(s.table, key, NONE)) != have:
                s.rep[r, BLANK] += size
                s.rep[r, FREE] += size
                return
            e = new_extent(s, key, have, length, 0)
            changed(s, key, add_copy(s, key, e))
            lru_append(s, r, e)
        depth += length
        path += 1


@kernel
def add_own_extent(s, r, i, begin, end, keep_for_request):
    """Let go of request i's own blocks [begin, end): they stay cached, though only i could use them."""
    key = NONE
    if keep_for_request:
        key = (s.cfg[RUNS] + i) * s.cfg[REPLICAS] + r
    last = s.rep[r, LRU_LAST]
    if key == NONE and last != NONE and s.ext[last, KEY] == NONE:
        s.ext[last, END] += (
            end - begin
        )  # next to another one that nobody can ask for, it is evicted as one with it
        s.rep[r, FREE] += end - begin
        return
    shared = s.req[i, SHARED]
    e = new_extent(s, key, begin - shared, end - shared, 0)
    if key != NONE:
        add_copy(s, key, e)
    lru_append(s, r, e)


@kernel
def drop_holds(s, r, i):
    """Let go of all extents request i holds, deepest first; returns their blocks."""
    ext = s.ext
    hold = s.hold
    h = s.req[i, HOLDS]
    blocks = 0
    while h != NONE:
        e = hold[h, HOLD_EXT]
        while True:
            blocks += ext[e, END] - ext[e, START]
            ext[e, REF] -= 1
            lower = ext[e, LOWER]
            last = ext[e, START] == hold[h, HOLD_START]
            if ext[e, REF] == 0:
                lru_append(s, r, e)
            if last:
                break
            e = lower
        following = hold[h, HOLD_NEXT]
        hold[h, HOLD_NEXT] = s.pool[HOLD_FREE]
        s.pool[HOLD_FREE] = h
        s.pool[HOLD_LIVE] -= 1
        h = following
    s.req[i, HOLDS] = NONE
    return blocks
