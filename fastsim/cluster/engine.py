"""One replica: vLLM V1's scheduler, block for block, with decode runs taken in one jump.

`start` schedules what begins at the replica's clock: the running requests first (preempting from the end of
the list when blocks run short), then the waiting ones while the token budget lasts and their whole sequence
fits. If nobody prefills, the steps until something can change are one event. `end` closes what was under
way: tokens appear, requests finish. The lecture's engine is the same machine with whole segments as cache
entries and the output reserved at admission (`Cluster`).

Semantics: vLLM 0.32/0.33, V1 scheduler (`v1/core/sched`), as recorded in tests/golden/engine.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._decode import (
    add_decoding,
    blocks_needed,
    blocks_needed_now,
    first_finish,
    pass_ticks,
    pop_finished,
    produced,
    steps_before_shared_block,
    steps_that_fit,
    stop_decoding,
)
from fastsim.cluster._kv import (
    add_own_extent,
    check_pools,
    drop_holds,
    find_hits,
    hold_hits,
    register,
    start_path,
    take_blocks,
)
from fastsim.cluster._masks import change_load
from fastsim.cluster._news import tell_of_request
from fastsim.cluster._queues import append_running, prepend_waiting, remove_running, remove_waiting
from fastsim.cluster._state import (
    ADMITTED,
    ADMITTING,
    ALLOCATED,
    ALPHA,
    BETA,
    BITS,
    BLANK,
    BLOCK,
    BUDGET,
    BUSY_FS,
    BUSY_PS,
    COMPUTED,
    COMPUTED_TOK,
    CONTEXT,
    DECODING,
    DONE,
    DURATION,
    END,
    FAST,
    FAULT,
    FINISHED,
    FINISHED_NOW,
    FIRST,
    FIRST_TOKEN,
    FREE,
    FS,
    GENERATED,
    HIT,
    IDLE,
    KEY,
    KIND,
    LEFT,
    LRU_FIRST,
    MAX_SEQS,
    N_RUNNING,
    N_STEPS,
    N_TOKENS,
    NEWS,
    NEWS_CACHES,
    NEWS_GAUGES,
    NEWS_REQUESTS,
    NO_FAULT,
    NONE,
    ORDER,
    OUTPUT,
    OWN_FROM,
    PREEMPTED,
    PREEMPTIONS,
    PREFILLING,
    PROMPT,
    PS,
    QUEUE_NEXT,
    RESERVE,
    RUN,
    RUN_FIRST,
    RUN_LAST,
    SCHEDULED,
    SHARED,
    SHARER_NEXT,
    SHARERS,
    START,
    STEP,
    STEPS,
    TAKEN,
    TICK,
    TRACK,
    TRACK_LIVE,
    WAIT_FIRST,
    WATERMARK,
)
from fastsim.cluster._step_time import decode_line, step_fs, steps_until

_MOST_FS = 4e18  # of one run, so that its length in femtoseconds fits an int64


# --- the running requests -----------------------------------------------------------------------------------


@kernel(inline="always")
def _blocks(s, tokens):
    """Blocks that hold so many tokens."""
    return (tokens + s.cfg[BLOCK] - 1) // s.cfg[BLOCK]


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
    rest = _blocks(s, computed) - full
    rep[r, BLANK] += rest
    rep[r, FREE] += rest
    if full > req[i, OWN_FROM]:
        add_own_extent(s, r, i, req[i, OWN_FROM], full, preempted)
    drop_holds(s, r, i)


@kernel
def _preempt_last(s, r):
    """Preempt the last running request; returns it."""
    rep = s.rep
    req = s.req
    i = rep[r, RUN_LAST]
    if i == rep[r, PREFILLING]:
        rep[r, PREFILLING] = NONE
        computed = req[i, COMPUTED]
    else:
        computed = req[i, PROMPT] + produced(s, r, i) - 1
        stop_decoding(s, r, i)
    remove_running(s, r, i)
    release(s, r, i, computed, True)
    s.work[r] += computed
    req[i, COMPUTED] = 0
    req[i, PREEMPTED] += 1
    rep[r, PREEMPTIONS] += 1
    prepend_waiting(s, r, i)
    return i


@kernel(inline="always")
def _chunk(s, r, i, budget):
    """Tokens that a running request still in its prefill gets."""
    return min(s.req[i, PROMPT] + s.req[i, GENERATED] - s.req[i, COMPUTED], budget)


@kernel
def _take_in_turn(s, r):
    """Give the running requests their blocks one by one, preempting from the end; returns whether any was."""
    rep = s.rep
    req = s.req
    budget = s.cfg[BUDGET]
    preempted = False
    i = rep[r, RUN_FIRST]
    while i != NONE:
        if i == rep[r, PREFILLING]:
            computed = req[i, COMPUTED]
            tokens = _chunk(s, r, i, budget)
        else:
            computed = req[i, PROMPT] + produced(s, r, i) - 1
            tokens = 1
        need = _blocks(s, computed + tokens) - _blocks(s, computed)
        while need > rep[r, FREE]:
            preempted = True
            if _preempt_last(s, r) == i:
                return preempted
        take_blocks(s, r, need)
        budget -= tokens
        i = req[i, QUEUE_NEXT]
    return preempted


@kernel
def _continue_running(s, r):
    """Schedule the running requests and note the budget left; returns whether any request was preempted."""
    rep = s.rep
    req = s.req
    preempted = False
    chunk = 0
    need = blocks_needed_now(s, r)
    i = rep[r, PREFILLING]
    if i != NONE:
        chunk = _chunk(s, r, i, s.cfg[BUDGET] - rep[r, DECODING])
        if s.cfg[RESERVE] == 0:
            need += _blocks(s, req[i, COMPUTED] + chunk) - _blocks(s, req[i, COMPUTED])
    if need <= rep[r, FREE]:
        take_blocks(s, r, need)
    else:
        preempted = _take_in_turn(s, r)
        i = rep[r, PREFILLING]
        if i == NONE:
            chunk = 0
    if rep[r, SHARERS] != NONE:
        _register_sharers(s, r)
    if i != NONE:
        _schedule(s, r, i, chunk)
    rep[r, LEFT] = s.cfg[BUDGET] - rep[r, DECODING] - chunk
    return preempted


@kernel
def _register_sharers(s, r):
    """Register the blocks that decoding requests fill in the coming step and that others may look up."""
    block = s.cfg[BLOCK]
    i = s.rep[r, SHARERS]
    while i != NONE:
        computed = s.req[i, PROMPT] + produced(s, r, i)
        if computed % block == 0:
            register(s, r, i, computed // block - 1, computed // block)
        i = s.req[i, SHARER_NEXT]


@kernel
def _schedule(s, r, i, tokens):
    """Let request i, not decoding, compute so many tokens in the coming step; its blocks are allocated."""
    req = s.req
    begin = req[i, COMPUTED]
    req[i, SCHEDULED] = tokens
    req[i, COMPUTED] = begin + tokens
    register(s, r, i, begin // s.cfg[BLOCK], (begin + tokens) // s.cfg[BLOCK])


# --- the waiting requests -----------------------------------------------------------------------------------


@kernel
def _admit(s, r, i):
    """Admit the head of the queue if it fits; returns the tokens it gets, 0 if it must wait."""
    rep = s.rep
    req = s.req
    block = s.cfg[BLOCK]
    total = req[i, PROMPT] + req[i, GENERATED]
    pieces, hit, held_by_none = find_hits(s, r, i, (total - 1) // block)
    whole = total
    if s.cfg[RESERVE]:
        whole += req[i, OUTPUT] - req[i, GENERATED]
    need = _blocks(s, whole) - hit
    kept_back = s.cfg[WATERMARK] if rep[r, N_RUNNING] > 0 else 0
    if need + held_by_none + kept_back > rep[r, FREE] or s.pool[FAULT] != NO_FAULT:
        return 0
    hold_hits(s, r, i, pieces)
    computed = hit * block
    tokens = min(total - computed, rep[r, LEFT])
    if s.cfg[RESERVE] == 0:
        need = _blocks(s, computed + tokens) - hit
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
    s.work[r] -= computed
    start_path(s, i, hit)
    _schedule(s, r, i, tokens)
    if rep[r, PREFILLING] == NONE:
        rep[r, PREFILLING] = i
    return tokens


@kernel
def _admit_waiting(s, r):
    """Admit waiting requests, head first, until one must wait or the budget is spent.

    Returns False if the pools became too small before that; the rest is to be done once they have grown.
    """
    rep = s.rep
    while rep[r, LEFT] > 0 and rep[r, WAIT_FIRST] != NONE and rep[r, N_RUNNING] < s.cfg[MAX_SEQS]:
        if not check_pools(s, rep[r, N_RUNNING]):
            return False
        tokens = _admit(s, r, rep[r, WAIT_FIRST])
        if tokens == 0:
            return s.pool[FAULT] == NO_FAULT
        rep[r, LEFT] -= tokens
    return True


# --- steps --------------------------------------------------------------------------------------------------


@kernel
def start(s, r):
    """Schedule the step, or the run of decode steps, that starts at the replica's clock; sets its end's key.

    If the pools turn out too small it stops half-way, to be called again.
    """
    rep = s.rep
    preempted = False
    if rep[r, KIND] != ADMITTING:
        preempted = _continue_running(s, r)
    if not preempted and not _admit_waiting(s, r):
        rep[r, KIND] = ADMITTING
        return
    if rep[r, PREFILLING] != NONE and s.req[rep[r, PREFILLING], SCHEDULED] > 0:
        duration = _single_step(s, r)
    else:
        duration = _decode_run(s, r, preempted)
    _set_end(s, r, duration)


@kernel
def _single_step(s, r):
    """A step in which somebody prefills; returns its duration."""
    rep = s.rep
    req = s.req
    prefill_tok = 0
    decoding = rep[r, DECODING]
    context = rep[r, CONTEXT]
    pairs = context
    computed = decoding
    i = rep[r, PREFILLING]
    while i != NONE:
        tokens = req[i, SCHEDULED]
        before = req[i, COMPUTED] - tokens
        computed += tokens
        if tokens == 1 and req[i, GENERATED] > 0:  # a preempted request, back with all but one token cached
            decoding += 1
            pairs += before + 1
            context += before + 1
        else:
            prefill_tok += tokens
            pairs += tokens * before + tokens * (tokens + 1) // 2
            context += before
        i = req[i, QUEUE_NEXT]
    rep[r, KIND] = STEP
    rep[r, STEPS] = 1
    rep[r, N_TOKENS] = computed
    return step_fs(
        s.coef, s.knot_ptr, s.knots, s.piece[r, 0], s.piece[r, 1], prefill_tok, pairs, decoding, context
    )


@kernel
def _decode_run(s, r, preempted):
    """The longest run of decode steps before anything but an arrival can change; returns its duration."""
    rep = s.rep
    decoding = rep[r, DECODING]
    alpha, beta, most = decode_line(
        s.coef, s.knot_ptr, s.knots, s.piece[r, 0], s.piece[r, 1], decoding, rep[r, CONTEXT]
    )
    steps = min(most, first_finish(s, r) - rep[r, TICK])
    if s.cfg[FAST] == 0 or preempted:  # what was preempted may be let in again at the next step
        steps = 1
    else:
        if float(steps) * float(alpha + beta * steps) > _MOST_FS:
            steps = min(steps, int(_MOST_FS) // (alpha + beta * steps) + 1)
        if rep[r, SHARERS] != NONE:
            steps = steps_before_shared_block(s, r, steps)
        if s.cfg[NEWS] & NEWS_CACHES and s.cfg[RESERVE] == 0:  # every eviction is reported when it happens
            steps = 1 + steps_that_fit(s, r, rep[r, BLANK], steps - 1)
        if s.cfg[NEWS] & NEWS_GAUGES:  # and so is every block that is taken
            steps = 1 + steps_that_fit(s, r, 0, steps - 1)
        steps = 1 + steps_that_fit(s, r, rep[r, FREE], steps - 1)
    rep[r, KIND] = RUN
    rep[r, STEPS] = steps
    rep[r, ALPHA] = alpha
    rep[r, BETA] = beta
    rep[r, TAKEN] = 1
    if s.cfg[TRACK] == TRACK_LIVE:
        _set_lazy(s, r, steps)
    return run_fs(alpha, beta, steps)


@kernel(inline="always")
def run_fs(alpha, beta, steps):
    """Femtoseconds that the first `steps` steps of a run take."""
    return steps * alpha + beta * (steps * (steps - 1) // 2)


@kernel
def _set_lazy(s, r, steps):
    """Mark whether the rest of a run may evict blocks that a router could see, erring towards yes."""
    rep = s.rep
    spare = rep[r, BLANK]
    e = rep[r, LRU_FIRST]
    if e != NONE and s.ext[e, KEY] == NONE:
        spare += s.ext[e, END] - s.ext[e, START]
    block = s.cfg[BLOCK]
    word = r // BITS
    bit = 1 << (r - word * BITS)
    if s.cfg[RESERVE] == 0 and rep[r, DECODING] * (steps - 1 + block) > spare * block:
        s.lazy[word] |= bit
    else:
        s.lazy[word] &= ~bit


@kernel(inline="always")
def _set_end(s, r, duration):
    rep = s.rep
    rep[r, DURATION] = duration
    s.key[r] = 2 * (rep[r, PS] + (rep[r, FS] + duration) // 1000)


@kernel
def take_until(s, r, steps):
    """Allocate the blocks of the first `steps` steps of the run under way."""
    rep = s.rep
    if steps > rep[r, TAKEN]:
        take_blocks(s, r, blocks_needed(s, r, rep[r, TAKEN], steps))
        rep[r, TAKEN] = steps


@kernel
def boundary_from(s, r, ps):
    """Steps of the run under way up to its first boundary at or after the instant `ps`."""
    rep = s.rep
    wait_fs = (ps - rep[r, PS]) * 1000 - rep[r, FS]
    return min(steps_until(rep[r, ALPHA], rep[r, BETA], wait_fs), rep[r, STEPS])


@kernel
def shorten(s, r, ps):
    """End the run under way at its first boundary at or after an arrival that could be admitted there."""
    steps = boundary_from(s, r, ps)
    if steps < s.rep[r, STEPS]:
        s.rep[r, STEPS] = steps
        _set_end(s, r, run_fs(s.rep[r, ALPHA], s.rep[r, BETA], steps))


@kernel
def end(s, r):
    """Close the step or run under way at its end: tokens appear, requests that have them all finish."""
    rep = s.rep
    steps = rep[r, STEPS]
    if rep[r, KIND] == RUN:
        take_until(s, r, steps)
        tokens = steps * rep[r, DECODING]
    else:
        tokens = rep[r, N_TOKENS]
    _advance(s, r)
    pass_ticks(s, r, steps)
    rep[r, N_STEPS] += steps
    rep[r, COMPUTED_TOK] += tokens
    s.work[r] -= tokens
    i = pop_finished(s, r)
    while i != NONE:
        _finish(s, r, i)
        i = pop_finished(s, r)
    if rep[r, KIND] == STEP:
        _close_prefills(s, r)
    rep[r, KIND] = IDLE


@kernel
def _advance(s, r):
    """Move the clock, and the time spent busy, to the end of what was under way."""
    rep = s.rep
    clock = rep[r, FS] + rep[r, DURATION]
    rep[r, PS] += clock // 1000
    rep[r, FS] = clock % 1000
    busy = rep[r, BUSY_FS] + rep[r, DURATION]
    rep[r, BUSY_PS] += busy // 1000
    rep[r, BUSY_FS] = busy % 1000


@kernel
def _close_prefills(s, r):
    """Let the requests whose prefill is complete produce a token; the others stay in their prefill."""
    rep = s.rep
    req = s.req
    i = rep[r, PREFILLING]
    rep[r, PREFILLING] = NONE
    while i != NONE:
        following = req[i, QUEUE_NEXT]
        req[i, SCHEDULED] = 0
        generated = req[i, GENERATED]
        if req[i, COMPUTED] < req[i, PROMPT] + generated:
            rep[r, PREFILLING] = i  # the last of the list: its chunk has used up the budget
        else:
            if generated == 0:
                req[i, FIRST] = rep[r, PS]
                tell_of_request(s, rep[r, PS], FIRST_TOKEN, i, r, NEWS_REQUESTS)
            if generated + 1 == req[i, OUTPUT]:
                _finish(s, r, i)
            else:
                add_decoding(s, r, i, generated + 1)
        i = following


@kernel
def _finish(s, r, i):
    """End request i, whose last token appears now."""
    rep = s.rep
    req = s.req
    req[i, DONE] = rep[r, PS]
    remove_running(s, r, i)
    release(s, r, i, req[i, PROMPT] + req[i, OUTPUT] - 1, False)
    rep[r, FINISHED] += 1
    change_load(s.load, s.level, r, -1)
    tell_of_request(s, rep[r, PS], FINISHED_NOW, i, r, NEWS_REQUESTS)
