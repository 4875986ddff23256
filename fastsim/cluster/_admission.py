"""Kernels that admit a replica's waiting requests, in its local order.

As in vLLM, the first of the order that must wait makes all the others wait.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._extents import check_pools
from fastsim.cluster._kv import find_hits, hold_hits, most_hit, start_path, take_blocks
from fastsim.cluster._order import next_waiting, rank_waiting
from fastsim.cluster._queues import append_running, remove_waiting
from fastsim.cluster._running import blocks_of, schedule
from fastsim.cluster._state import (
    ADMITTED,
    ALLOCATED,
    BLOCK,
    COMPUTED,
    FAULT,
    FIRST,
    FREE,
    GENERATED,
    HIT,
    LEFT,
    MAX_SEQS,
    N_RUNNING,
    NO_FAULT,
    NONE,
    ORDER,
    OUTPUT,
    OWN_FROM,
    PREEMPTED,
    PREFILLING,
    PROMPT,
    PS,
    QUEUE,
    QUOTA,
    RANKED,
    RANKING,
    RESERVE,
    SHARED,
    WAIT_FIRST,
    WATERMARK,
)


@kernel
def admit_waiting(s, r):
    """Admit waiting requests in order until one must wait or the budget is spent.

    Returns False if the pools became too small before that; the rest is to be done once they have grown.
    """
    if s.cfg[QUEUE] >= RANKING:
        return _admit_by_rank(s, r)
    rep = s.rep
    while rep[r, LEFT] > 0 and rep[r, WAIT_FIRST] != NONE and rep[r, N_RUNNING] < s.cfg[MAX_SEQS]:
        if not _room_for_one(s, r):
            return False
        tokens = _admit(s, r, rep[r, WAIT_FIRST])
        if tokens == 0:
            return s.pool[FAULT] == NO_FAULT
        rep[r, LEFT] -= tokens
    return True


@kernel
def _admit_by_rank(s, r):
    """As `admit_waiting`, where requests get their ranks anew in every step that may admit any."""
    rep = s.rep
    while rep[r, LEFT] > 0 and rep[r, WAIT_FIRST] != NONE and rep[r, N_RUNNING] < s.cfg[MAX_SEQS]:
        if not _room_for_one(s, r):
            return False
        i = _next_by_rank(s, r)
        tokens = _admit(s, r, i) if i != NONE else 0
        if s.pool[FAULT] != NO_FAULT:
            return False
        if tokens == 0:
            break
        rep[r, LEFT] -= tokens
        rep[r, QUOTA] -= 1
    rep[r, RANKED] = 0
    return True


@kernel
def _room_for_one(s, r):
    """Whether the pools have room for one more admission; a fault is noted if not."""
    return check_pools(s, s.rep[r, N_RUNNING])


@kernel
def _next_by_rank(s, r):
    """The waiting request to try next, ranked first if that was not done in this step."""
    if s.rep[r, RANKED] == 0:
        rank_waiting(s, r)
        if s.pool[FAULT] != NO_FAULT:
            return NONE
    return next_waiting(s, r)


@kernel
def _admit(s, r, i):
    """Admit waiting request i if it fits; returns the tokens it gets, 0 if it must wait."""
    rep = s.rep
    req = s.req
    block = s.cfg[BLOCK]
    total = req[i, PROMPT] + req[i, GENERATED]
    whole = total
    if s.cfg[RESERVE]:
        whole += req[i, OUTPUT] - req[i, GENERATED]
    need = blocks_of(s, whole)
    kept_back = s.cfg[WATERMARK] if rep[r, N_RUNNING] > 0 else 0
    most = most_hit(s, total)
    reusable = min(most, req[i, SHARED]) if req[i, PREEMPTED] == 0 else most
    if need - reusable + kept_back > rep[r, FREE]:  # whatever is cached: no need to look
        return 0
    pieces, hit, held_by_none = find_hits(s, r, i, most)
    need -= hit
    if need + held_by_none + kept_back > rep[r, FREE] or s.pool[FAULT] != NO_FAULT:
        return 0
    hold_hits(s, r, i, pieces)
    computed = min(hit * block, total - 1)
    tokens = min(total - computed, rep[r, LEFT])
    if s.cfg[RESERVE] == 0:
        need = blocks_of(s, computed + tokens) - hit
    take_blocks(s, r, need)
    remove_waiting(s, r, i)
    append_running(s, r, i)
    req[i, ALLOCATED] = hit + need
    req[i, ORDER] = rep[r, ADMITTED]
    rep[r, ADMITTED] += 1
    req[i, OWN_FROM] = max(req[i, SHARED], hit)
    req[i, COMPUTED] = computed
    if req[i, PREEMPTED] == 0:
        req[i, HIT] = computed
        req[i, FIRST] = rep[r, PS]  # until the first token: when it left the queue
    s.work[r] -= computed
    start_path(s, i, hit)
    schedule(s, r, i, tokens)
    if rep[r, PREFILLING] == NONE:
        rep[r, PREFILLING] = i
    return tokens
