"""Kernels of a replica's running requests in the coming step: their tokens and blocks, and who is preempted.

Where blocks run short, the request admitted last is preempted, or with `VICTIM` (vLLM's policy "priority")
the one of the highest rank, of those the latest to arrive; of several that arrived at one instant, the first
of the running list, as vLLM's `max` has it, or the last in the file. Such a victim may have had its turn
already: the step goes on without it, though the block it would have filled can be hit from then on. Or it is
the very request that needs blocks: then those behind it get no token in this step.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._decode import add_decoding, blocks_needed_now, produced, stop_decoding
from fastsim.cluster._kv import add_own_extent, drop_holds, register, take_blocks
from fastsim.cluster._queues import prepend_waiting, remove_running
from fastsim.cluster._state import (
    ALLOCATED,
    ARRIVAL,
    BLANK,
    BLOCK,
    BUDGET,
    BY_FILE,
    COMPUTED,
    DECODING,
    FREE,
    GENERATED,
    LEFT,
    NONE,
    ORDER,
    OWN_FROM,
    PAUSED,
    PREEMPTED,
    PREEMPTIONS,
    PREFILLING,
    PROMPT,
    QUEUE_NEXT,
    REGISTERED,
    RESERVE,
    RUN_FIRST,
    RUN_LAST,
    SCHEDULED,
    SHARER_NEXT,
    SHARERS,
    VICTIM,
)


@kernel(inline="always")
def blocks_of(s, tokens):
    """Blocks that hold so many tokens."""
    return (tokens + s.cfg[BLOCK] - 1) // s.cfg[BLOCK]


@kernel
def schedule(s, r, i, tokens):
    """Let request i, not decoding, compute so many tokens in the coming step; its blocks are allocated."""
    req = s.req
    begin = req[i, COMPUTED]
    req[i, SCHEDULED] = tokens
    req[i, COMPUTED] = begin + tokens
    register(s, r, i, begin // s.cfg[BLOCK], (begin + tokens) // s.cfg[BLOCK])


@kernel
def release(s, r, i, computed, preempted):
    """Free the blocks of request i, the deepest first, of which `computed` tokens are in the cache."""
    rep = s.rep
    req = s.req
    if s.cfg[RESERVE]:
        own = req[i, ALLOCATED] - drop_holds(s, r, i)
        rep[r, BLANK] += own
        rep[r, FREE] += own
        return
    full = computed // s.cfg[BLOCK]
    rest = blocks_of(s, computed) - full
    rep[r, BLANK] += rest
    rep[r, FREE] += rest
    if full > req[i, OWN_FROM]:
        add_own_extent(s, r, i, req[i, OWN_FROM], full, preempted)
    drop_holds(s, r, i)


# --- the coming step ----------------------------------------------------------------------------------------


@kernel
def continue_running(s, r):
    """Schedule the running requests and note the budget left; returns whether any request was preempted."""
    rep = s.rep
    chunk, need = _needed(s, r)
    preempted = need > rep[r, FREE]
    if preempted and (s.cfg[VICTIM] or rep[r, SHARERS] != NONE):
        _take_in_turn(s, r)
        return True
    # Those admitted last are preempted, until what all others need fits: in turn it comes to the same, as
    # blocks are taken from the front of the free ones and given back to their end.
    while need > rep[r, FREE]:
        _preempt(s, r, rep[r, RUN_LAST], 0)
        chunk, need = _needed(s, r)
    take_blocks(s, r, need)
    if rep[r, SHARERS] != NONE:
        _register_sharers(s, r)
    if rep[r, PREFILLING] != NONE:
        schedule(s, r, rep[r, PREFILLING], chunk)
    rep[r, LEFT] = s.cfg[BUDGET] - rep[r, DECODING] - chunk
    return preempted


@kernel
def _needed(s, r):
    """Tokens that the request still in its prefill gets in the coming step, and the blocks that all need."""
    need = blocks_needed_now(s, r)
    i = s.rep[r, PREFILLING]
    if i == NONE:
        return 0, need
    chunk = _chunk(s, i, s.cfg[BUDGET] - s.rep[r, DECODING])
    if s.cfg[RESERVE]:
        return chunk, need
    computed = s.req[i, COMPUTED]
    return chunk, need + blocks_of(s, computed + chunk) - blocks_of(s, computed)


@kernel(inline="always")
def _chunk(s, i, budget):
    """Tokens that a running request still in its prefill gets."""
    return min(s.req[i, PROMPT] + s.req[i, GENERATED] - s.req[i, COMPUTED], budget)


@kernel
def _register_sharers(s, r):
    """Register the blocks that decoding requests fill in the coming step and that others may look up."""
    block = s.cfg[BLOCK]
    i = s.rep[r, SHARERS]
    while i != NONE:
        computed = s.req[i, PROMPT] + produced(s, r, i)
        if computed % block == 0:
            register(s, r, i, computed // block - 1, computed // block)
            s.events[r, REGISTERED] = 1
        i = s.req[i, SHARER_NEXT]


@kernel(inline="always")
def scheduled_any(s, r):
    """Whether any running request computes something in the coming step."""
    i = s.rep[r, PREFILLING]
    return s.rep[r, DECODING] > 0 or (i != NONE and s.req[i, SCHEDULED] > 0)


# --- when blocks run short ----------------------------------------------------------------------------------


@kernel
def _take_in_turn(s, r):
    """Schedule the running requests one by one, preempting where blocks run short."""
    rep = s.rep
    req = s.req
    budget = s.cfg[BUDGET]
    i = rep[r, RUN_FIRST]
    while i != NONE:
        prefills = i == rep[r, PREFILLING]
        computed = req[i, COMPUTED] if prefills else req[i, PROMPT] + produced(s, r, i) - 1
        tokens = _chunk(s, i, budget) if prefills else 1
        need = blocks_of(s, computed + tokens) - blocks_of(s, computed)
        while need > rep[r, FREE]:
            victim = _victim(s, r)
            following = req[i, QUEUE_NEXT]
            if req[victim, ORDER] < req[i, ORDER]:
                budget += 1
                _preempt(s, r, victim, 1)
            else:
                _preempt(s, r, victim, 0)
            if victim == i:
                _pause(s, r, following)
                return
        take_blocks(s, r, need)
        if prefills:
            schedule(s, r, i, tokens)
        else:
            register(s, r, i, computed // s.cfg[BLOCK], (computed + 1) // s.cfg[BLOCK])
            s.events[r, REGISTERED] = 1  # perhaps: it is a single step anyway
        budget -= tokens
        i = req[i, QUEUE_NEXT]


@kernel
def _victim(s, r):
    """The running request to preempt next."""
    if s.cfg[VICTIM] == 0:
        return s.rep[r, RUN_LAST]
    rank = s.rank
    by_file = s.cfg[VICTIM] == BY_FILE
    worst = s.rep[r, RUN_FIRST]
    i = s.req[worst, QUEUE_NEXT]
    while i != NONE:
        after = s.req[i, ARRIVAL] - s.req[worst, ARRIVAL]
        later = after > 0 or (after == 0 and by_file and i > worst)
        if rank[i] > rank[worst] or (rank[i] == rank[worst] and later):
            worst = i
        i = s.req[i, QUEUE_NEXT]
    return worst


@kernel
def _preempt(s, r, i, scheduled):
    """Preempt running request i, which was given `scheduled` tokens (0 or 1) in the coming step."""
    rep = s.rep
    req = s.req
    if i == rep[r, PREFILLING]:
        rep[r, PREFILLING] = NONE
        computed = req[i, COMPUTED]
    else:
        computed = req[i, PROMPT] + produced(s, r, i) - 1
        stop_decoding(s, r, i)
    remove_running(s, r, i)
    release(s, r, i, computed + scheduled, True)
    s.work[r] += computed
    req[i, COMPUTED] = 0
    req[i, PREEMPTED] += 1
    rep[r, PREEMPTIONS] += 1
    prepend_waiting(s, r, i)


@kernel
def _pause(s, r, i):
    """Leave running request i and those behind it out of the coming step."""
    s.rep[r, PAUSED] = i
    while i != NONE:
        if i != s.rep[r, PREFILLING]:
            stop_decoding(s, r, i)
        i = s.req[i, QUEUE_NEXT]


@kernel
def resume_paused(s, r):
    """Let those left out of a step go on."""
    i = s.rep[r, PAUSED]
    s.rep[r, PAUSED] = NONE
    while i != NONE:
        if i != s.rep[r, PREFILLING]:
            add_decoding(s, r, i, s.req[i, GENERATED])
        i = s.req[i, QUEUE_NEXT]
