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
from fastsim.cluster._admission import admit_waiting
from fastsim.cluster._decode import (
    add_decoding,
    blocks_needed,
    first_finish,
    pass_ticks,
    pop_finished,
    steps_before_shared_block,
    steps_that_fit,
)
from fastsim.cluster._events import publish_all, watched
from fastsim.cluster._kv import take_blocks
from fastsim.cluster._masks import change_load
from fastsim.cluster._news import tell_of_request
from fastsim.cluster._queues import remove_running
from fastsim.cluster._running import continue_running, release, resume_paused, scheduled_any
from fastsim.cluster._state import (
    ADMITTING,
    ALPHA,
    ARRIVAL,
    BETA,
    BITS,
    BLANK,
    BLOCK,
    BUSY_FS,
    BUSY_PS,
    COMPUTED,
    COMPUTED_TOK,
    CONTEXT,
    CYCLING_GROUPS,
    DECODING,
    DONE,
    DURATION,
    END,
    FAST,
    FINISHED,
    FINISHED_NOW,
    FIRST,
    FIRST_TOKEN,
    FREE,
    FS,
    GENERATED,
    IDLE,
    KEY,
    KIND,
    LEFT,
    LRU_FIRST,
    MAX_SEQS,
    N_EVENTS,
    N_RUNNING,
    N_STEPS,
    N_TOKENS,
    N_WAITING,
    NEVER,
    NEWS,
    NEWS_CACHES,
    NEWS_GAUGES,
    NEWS_REQUESTS,
    NONE,
    OUTPUT,
    PAUSED,
    PREFILLING,
    PROMPT,
    PS,
    QUEUE,
    QUEUE_NEXT,
    RANKING,
    REGISTERED,
    RESERVE,
    RUN,
    SCHEDULED,
    SHARERS,
    START,
    STEP,
    STEPS,
    TAKEN,
    TICK,
    TRACK,
    TRACK_LIVE,
)
from fastsim.cluster._step_time import decode_line, step_fs, steps_until

_MOST_FS = 4e18  # of one run, so that its length in femtoseconds fits an int64


@kernel
def start(s, r):
    """Schedule the step, or the run of decode steps, that starts at the replica's clock; sets its end's key.

    If the pools turn out too small it stops half-way, to be called again.
    """
    rep = s.rep
    preempted = False
    if rep[r, KIND] != ADMITTING:
        preempted = continue_running(s, r)
        while preempted and not scheduled_any(s, r):  # nothing to compute, so no time passes
            resume_paused(s, r)
            preempted = continue_running(s, r)
    if not preempted and not admit_waiting(s, r):
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
        if watched(s):
            steps = _steps_before_events(s, r, steps)
        if s.cfg[NEWS] & NEWS_GAUGES:  # and so is every block that is taken
            steps = 1 + steps_that_fit(s, r, 0, steps - 1)
        steps = 1 + steps_that_fit(s, r, rep[r, FREE], steps - 1)
        if s.cfg[QUEUE] >= RANKING and rep[r, N_WAITING] > 0:
            steps = _steps_in_order(s, r, steps)
    rep[r, KIND] = RUN
    rep[r, STEPS] = steps
    rep[r, ALPHA] = alpha
    rep[r, BETA] = beta
    rep[r, TAKEN] = 1
    note_blocks_stale(s, r, rep[r, PS])
    if s.cfg[TRACK] == TRACK_LIVE:
        _set_lazy(s, r, steps)
    return run_fs(alpha, beta, steps)


@kernel
def _steps_before_events(s, r, most):
    """Longest run, at most `most`, of which only the last step has cache events that are wanted at its end.

    New blocks are; evictions are only where they are reported, as a look at the index brings it up to date.
    """
    if s.events[r, REGISTERED]:
        return 1
    if s.cfg[NEWS] & NEWS_CACHES == 0 or s.cfg[RESERVE]:
        return most
    if s.events[r, N_EVENTS] > 0:
        return 1
    return min(most, 2 + steps_that_fit(s, r, _unmatched(s, r), most - 1))


@kernel
def _steps_in_order(s, r, most):
    """Longest run, at most `most`, before another waiting request may be next than the one that must wait."""
    rep = s.rep
    if rep[r, LEFT] == 0 or rep[r, N_RUNNING] == s.cfg[MAX_SEQS]:
        return most  # nobody can be admitted, whoever is next
    if s.cfg[QUEUE] == CYCLING_GROUPS:
        return 1
    return 1 + steps_that_fit(s, r, _unmatched(s, r), most - 1)  # what is evicted changes the matches


@kernel
def _unmatched(s, r):
    """Blocks that can be taken before any that a request may yet hit."""
    e = s.rep[r, LRU_FIRST]
    if e == NONE or s.ext[e, KEY] != NONE:
        return s.rep[r, BLANK]
    return s.rep[r, BLANK] + s.ext[e, END] - s.ext[e, START]


@kernel(inline="always")
def run_fs(alpha, beta, steps):
    """Femtoseconds that the first `steps` steps of a run take."""
    return steps * alpha + beta * (steps * (steps - 1) // 2)


@kernel
def _set_lazy(s, r, steps):
    """Mark whether a run may evict blocks that a router could see, erring towards yes."""
    rep = s.rep
    spare = _unmatched(s, r)
    block = s.cfg[BLOCK]
    word = r // BITS
    bit = 1 << (r - word * BITS)
    evicting = s.cfg[RESERVE] == 0 and rep[r, DECODING] * (steps - 1 + block) > spare * block
    if evicting or s.events[r, N_EVENTS] > 0:
        s.lazy[word] |= bit
    else:
        s.lazy[word] &= ~bit


@kernel(inline="always")
def _set_end(s, r, duration):
    rep = s.rep
    rep[r, DURATION] = duration
    s.key[r] = 2 * (rep[r, PS] + (rep[r, FS] + duration) // 1000)


@kernel(inline="always")
def note_blocks_stale(s, r, now):
    """Note when, after `now`, the last step of the run whose blocks are booked ends, and the next begins."""
    rep = s.rep
    taken = rep[r, TAKEN]
    s.blocks_stale_ps[r] = NEVER
    if taken < rep[r, STEPS]:
        taken_fs = rep[r, FS] + run_fs(rep[r, ALPHA], rep[r, BETA], taken)
        end_ps = rep[r, PS] + taken_fs // 1000
        s.blocks_stale_ps[r] = end_ps if end_ps > now else now + 1


@kernel
def take_until(s, r, steps):
    """Allocate the blocks of the first `steps` steps of the run under way."""
    rep = s.rep
    if steps > rep[r, TAKEN]:
        need = blocks_needed(s, r, rep[r, TAKEN], steps)
        rep[r, TAKEN] = steps
        take_blocks(s, r, need)


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
    publish_all(s, r, steps, rep[r, PS])
    rep[r, TAKEN] = 1
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
    elif rep[r, PAUSED] != NONE:
        resume_paused(s, r)
    rep[r, KIND] = IDLE
    s.blocks_stale_ps[r] = NEVER


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
                queued_ps = req[i, FIRST] - req[i, ARRIVAL]
                req[i, FIRST] = rep[r, PS]
                tell_of_request(s, rep[r, PS], FIRST_TOKEN, i, r, queued_ps, NEWS_REQUESTS)
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
    tell_of_request(s, rep[r, PS], FINISHED_NOW, i, r, 0, NEWS_REQUESTS)
