"""Kernels of the requests that decode on a replica: who finishes next, and how many blocks a run needs.

All decoding requests get one token in every step, so they are told apart by two numbers only: the tick
(decode steps the replica has made) after which each is done, kept in a heap, and the tick, modulo the block
size, at which each needs a new block, kept as counts.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import (
    BLOCK,
    CONTEXT,
    DECODING,
    FINISH_AT,
    GENERATED,
    NONE,
    ORDER,
    OUTPUT,
    PROMPT,
    RESERVE,
    SHARED,
    SHARER_NEXT,
    SHARERS,
    TICK,
    TICK_PHASE,
)

_SHIFT = 1 << 31  # a heap key is FINISH_AT * _SHIFT + ORDER: ties leave in running order


@kernel
def _sift_up(heap, r, at):
    key = heap[r, at, 0]
    i = heap[r, at, 1]
    while at > 0:
        parent = (at - 1) >> 1
        if heap[r, parent, 0] <= key:
            break
        heap[r, at, 0] = heap[r, parent, 0]
        heap[r, at, 1] = heap[r, parent, 1]
        at = parent
    heap[r, at, 0] = key
    heap[r, at, 1] = i


@kernel
def _sift_down(heap, r, size, at):
    key = heap[r, at, 0]
    i = heap[r, at, 1]
    child = 2 * at + 1
    while child < size:
        if child + 1 < size and heap[r, child + 1, 0] < heap[r, child, 0]:
            child += 1
        if heap[r, child, 0] >= key:
            break
        heap[r, at, 0] = heap[r, child, 0]
        heap[r, at, 1] = heap[r, child, 1]
        at = child
        child = 2 * at + 1
    heap[r, at, 0] = key
    heap[r, at, 1] = i


@kernel
def _remove_at(s, r, at):
    heap = s.heap
    size = s.heap_len[r] - 1
    s.heap_len[r] = size
    if at < size:
        heap[r, at, 0] = heap[r, size, 0]
        heap[r, at, 1] = heap[r, size, 1]
        _sift_down(heap, r, size, at)
        _sift_up(heap, r, at)


@kernel(inline="always")
def first_finish(s, r):
    """Tick after which the next decoding request is done; there must be one."""
    return s.heap[r, 0, 0] // _SHIFT


@kernel(inline="always")
def produced(s, r, i):
    """Tokens a decoding request has produced."""
    return s.req[i, OUTPUT] - (s.req[i, FINISH_AT] - s.rep[r, TICK])


@kernel
def add_decoding(s, r, i, generated):
    """Let request i, with all its tokens but the last computed, decode from the next step on."""
    req = s.req
    rep = s.rep
    tick = rep[r, TICK]
    finish = tick + req[i, OUTPUT] - generated
    req[i, GENERATED] = generated
    req[i, FINISH_AT] = finish
    at = s.heap_len[r]
    s.heap_len[r] = at + 1
    s.heap[r, at, 0] = finish * _SHIFT + req[i, ORDER]
    s.heap[r, at, 1] = i
    _sift_up(s.heap, r, at)
    rep[r, DECODING] += 1
    rep[r, CONTEXT] += req[i, PROMPT] + generated
    if s.cfg[RESERVE] == 0:
        computed = req[i, PROMPT] + generated - 1
        s.phase[r, (tick - computed) % s.cfg[BLOCK]] += 1
        if computed < req[i, SHARED] * s.cfg[BLOCK]:
            _append_sharer(s, r, i)


@kernel
def _append_sharer(s, r, i):
    """Requests start to decode in running order, so the list is in that order, too."""
    req = s.req
    req[i, SHARER_NEXT] = NONE
    at = s.rep[r, SHARERS]
    if at == NONE:
        s.rep[r, SHARERS] = i
        return
    while req[at, SHARER_NEXT] != NONE:
        at = req[at, SHARER_NEXT]
    req[at, SHARER_NEXT] = i


@kernel
def _forget(s, r, i, generated):
    """Take a request that has produced `generated` tokens out of all counts but the heap."""
    rep = s.rep
    rep[r, DECODING] -= 1
    rep[r, CONTEXT] -= s.req[i, PROMPT] + generated
    if s.cfg[RESERVE] == 0:
        computed = s.req[i, PROMPT] + generated - 1
        s.phase[r, (rep[r, TICK] - computed) % s.cfg[BLOCK]] -= 1
        if rep[r, SHARERS] != NONE:
            _remove_sharer(s, r, i)


@kernel
def _remove_sharer(s, r, i):
    req = s.req
    at = s.rep[r, SHARERS]
    if at == i:
        s.rep[r, SHARERS] = req[i, SHARER_NEXT]
        return
    while at != NONE:
        if req[at, SHARER_NEXT] == i:
            req[at, SHARER_NEXT] = req[i, SHARER_NEXT]
            return
        at = req[at, SHARER_NEXT]


@kernel
def pop_finished(s, r):
    """Take out the first request that is done by now, in running order, or return NONE."""
    if s.heap_len[r] == 0 or first_finish(s, r) > s.rep[r, TICK]:
        return NONE
    i = s.heap[r, 0, 1]
    _remove_at(s, r, 0)
    _forget(s, r, i, s.req[i, OUTPUT])
    return i


@kernel
def stop_decoding(s, r, i):
    """Take out a request that is preempted."""
    at = 0
    while s.heap[r, at, 1] != i:
        at += 1
    generated = produced(s, r, i)
    _remove_at(s, r, at)
    _forget(s, r, i, generated)
    s.req[i, GENERATED] = generated


@kernel(inline="always")
def blocks_needed_now(s, r):
    """Blocks the decoding requests need in the step at the present tick."""
    return 0 if s.cfg[RESERVE] else s.phase[r, s.rep[r, TICK_PHASE]]


@kernel
def blocks_needed(s, r, begin, end):
    """Blocks the decoding requests need in the steps `begin` to `end` - 1, counted from the present tick."""
    if s.cfg[RESERVE]:
        return 0
    block = s.cfg[BLOCK]
    need = 0
    if end - begin >= block:
        cycles = (end - begin) // block
        need = cycles * s.rep[r, DECODING]
        begin += cycles * block
    at = s.rep[r, TICK_PHASE] + begin
    if at >= block:
        at %= block
    for _ in range(end - begin):
        need += s.phase[r, at]
        at += 1
        if at == block:
            at = 0
    return need


@kernel
def steps_that_fit(s, r, free, most):
    """Steps after the one at the present tick, at most `most`, for which the free blocks last."""
    decoding = s.rep[r, DECODING]
    block = s.cfg[BLOCK]
    if s.cfg[RESERVE] or decoding * (most + block) <= free * block:
        return most
    cycles = free // decoding
    steps = cycles * block
    left = free - cycles * decoding
    at = (s.rep[r, TICK_PHASE] + 1) % block
    while steps < most and s.phase[r, at] <= left:
        left -= s.phase[r, at]
        steps += 1
        at += 1
        if at == block:
            at = 0
    return min(steps, most)


@kernel(inline="always")
def pass_ticks(s, r, steps):
    """Count decode steps that were made."""
    rep = s.rep
    block = s.cfg[BLOCK]
    rep[r, TICK] += steps
    phase = rep[r, TICK_PHASE] + steps
    rep[r, TICK_PHASE] = phase if phase < block else phase % block
    rep[r, CONTEXT] += steps * rep[r, DECODING]


@kernel
def steps_before_shared_block(s, r, most):
    """Longest run, at most `most`, in which only the first step may fill a block that others look up."""
    block = s.cfg[BLOCK]
    i = s.rep[r, SHARERS]
    while i != NONE:
        computed = s.req[i, PROMPT] + produced(s, r, i) - 1
        steps = block - (computed + 1) % block
        if (computed + 1 + steps) // block <= s.req[i, SHARED]:
            most = min(most, steps)
        i = s.req[i, SHARER_NEXT]
    return most
