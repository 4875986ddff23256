"""Kernels of what the routers see: loads, work, metrics and caches, as fresh as their view is.

Reports (`_news`) reach the routers here: at once (live and own views), at the next refresh (periodic), or
when they are as old as the view (delayed). Values are filled in when a request arrives and the policy asks.
"""

from __future__ import annotations

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster import engine
from fastsim.cluster._events import publish, show_published
from fastsim.cluster._flight import count_flight, knows_of_flights
from fastsim.cluster._index import every_match, longest_match, show
from fastsim.cluster._masks import change_load, least_loaded_of
from fastsim.cluster._news import write_gauges
from fastsim.cluster._scan import times_up_to
from fastsim.cluster._state import (
    ALPHA,
    AT_FIRST,
    BETA,
    BITS,
    BLOCK,
    BY_NEWS,
    CACHE,
    DECODING,
    DELAY_PS,
    DELAYED,
    FINISHED_NOW,
    FIRST_TOKEN,
    FREE,
    FS,
    G_ALPHA,
    G_BETA,
    G_DECODING,
    G_FREE,
    G_FS,
    G_PS,
    G_RUNNING,
    G_RUNS,
    G_STEPS,
    G_WAITING,
    G_WORK,
    GAUGES,
    KIND,
    LIVE,
    LOAD_VIEW,
    METRICS_VIEW,
    N_GAUGE,
    N_RUNNING,
    N_WAITING,
    NEEDS,
    NEEDS_MATCH,
    NEEDS_MATCHES,
    NEEDS_METRICS,
    NEEDS_WORK,
    NEVER,
    NEWS_DUE,
    NEWS_GAUGE,
    NEWS_KIND,
    NEWS_PS,
    NEWS_READ,
    NEWS_TOLD,
    NEWS_VALUE,
    NEWS_WHAT,
    NEWS_WHERE,
    OUTPUT,
    OWN,
    PATH,
    PERIODIC,
    PROMPT,
    PS,
    REPLICAS,
    ROUTERS,
    RUN,
    SENT,
    SHARED,
    STEPS,
    TRACK,
    TRACK_DELAYED,
    TRACK_LIVE,
    TRACK_PERIODIC,
    TRACK_TREE,
)
from fastsim.cluster._step_time import steps_until
from fastsim.cluster.routers.tree import tree_matches, tree_nearest
from fastsim.cluster.routers.view import MATCH_TOK, NEAREST, NOW_PS, view_at

_STRIDE = 32  # replicas looked at together

# --- what is true now ---------------------------------------------------------------------------------------


@kernel
def _steps_done(alpha, beta, ps, fs, steps, now):
    """Steps of a run that ended by `now`."""
    return min(steps_until(alpha, beta, (now - ps + 1) * 1000 - fs) - 1, steps)


@kernel
def catch_up(s, r, now):
    """Book what replica r's run has done by `now`; returns whether there was anything to do.

    Steps that started before have taken their blocks, those that ended by then have published their events.
    """
    if now < s.blocks_stale_ps[r]:
        return False
    rep = s.rep
    done = _steps_done(rep[r, ALPHA], rep[r, BETA], rep[r, PS], rep[r, FS], rep[r, STEPS], now)
    engine.take_until(s, r, done)
    publish(s, r, done, now)
    engine.take_until(s, r, engine.boundary_from(s, r, now))
    engine.note_blocks_stale(s, r, now)
    return True


@kernel
def _work_now(s, r, now):
    """Tokens that replica r has still to compute: those of steps that ended by `now` count as computed.

    Until when that is so is noted, too.
    """
    rep = s.rep
    s.work_stale_ps[r] = NEVER
    if rep[r, KIND] != RUN:
        return s.work[r]
    alpha = rep[r, ALPHA]
    beta = rep[r, BETA]
    done = _steps_done(alpha, beta, rep[r, PS], rep[r, FS], rep[r, STEPS], now)
    if done < rep[r, STEPS]:
        s.work_stale_ps[r] = rep[r, PS] + (rep[r, FS] + engine.run_fs(alpha, beta, done + 1)) // 1000
    return s.work[r] - done * rep[r, DECODING]


@kernel
def _renew_work(s, view, now):
    """Bring a live view of the work up to now: since it was looked at last, few replicas made a step."""
    work = view.work
    until_ps = s.work_stale_ps[: work.shape[0]]
    for begin in range(0, work.shape[0], _STRIDE):
        part = until_ps[begin : begin + _STRIDE]
        if times_up_to(part, now) > 0:
            for k in range(part.shape[0]):
                if part[k] <= now:
                    work[begin + k] = _work_now(s, begin + k, now)


@kernel
def _work_reported(s, r, at):
    """As `_work_now`, at an instant in the past, by the gauges reported until then."""
    gauge = s.gauge
    work = gauge[r, G_WORK]
    if gauge[r, G_RUNS]:
        done = _steps_done(
            gauge[r, G_ALPHA], gauge[r, G_BETA], gauge[r, G_PS], gauge[r, G_FS], gauge[r, G_STEPS], at
        )
        work -= done * gauge[r, G_DECODING]
    return work


@kernel
def _measure(s, view, r, now):
    """Read replica r's metrics off its state."""
    catch_up(s, r, now)
    view.waiting[r] = s.rep[r, N_WAITING]
    view.running[r] = s.rep[r, N_RUNNING]
    view.kv_used[r] = view.kv_blocks[0] - s.rep[r, FREE]


# --- caches -------------------------------------------------------------------------------------------------


@kernel(inline="always")
def _limit(s, i):
    """Blocks of request i's prompt that others may hold."""
    return min(s.req[i, PROMPT] // s.cfg[BLOCK], s.req[i, SHARED])


@kernel
def _nearest(s, view, i, now):
    """Find the least loaded of the replicas with the longest match; returns it and the match in blocks.

    In a live view the masks may show too much, as runs under way take their blocks late, but never too
    little. So the replica found is brought up to now; if it has kept its match, nobody has a longer one.
    """
    while True:
        blocks = longest_match(s, view, s.req[i, PATH], _limit(s, i))
        r = least_loaded_of(view.load, view.level, view.best)
        lazy = s.lazy[r // BITS] >> (r % BITS) & 1
        if blocks == 0 or lazy == 0 or s.cfg[TRACK] != TRACK_LIVE or not catch_up(s, r, now):
            return r, blocks


@kernel
def _catch_up_holders(s, i, now):
    """Bring all replicas up to now that seem to hold the start of request i's prompt."""
    mask = s.mask
    words = mask.shape[1] >> 1
    run = s.path[s.req[i, PATH]]
    for word in range(words):
        left = s.lazy[word] & (mask[run, word] | mask[run, words + word])
        while left:
            catch_up(s, word * BITS + lowest_bit(left), now)
            left &= left - 1


@kernel
def _look_at_caches(s, view, i, now):
    """Match request i's prompt against the caches, as the router knows them."""
    block = s.cfg[BLOCK]
    needs = s.cfg[NEEDS]
    tree = s.cfg[TRACK] == TRACK_TREE
    if needs & NEEDS_MATCH:
        if tree:
            nearest, blocks = tree_nearest(view, i)
        else:
            nearest, blocks = _nearest(s, view, i, now)
        view.prompt[MATCH_TOK] = blocks * block
        view.prompt[NEAREST] = nearest
    if needs & NEEDS_MATCHES:
        if tree:
            tree_matches(view, i)
            return
        limit = _limit(s, i)
        if s.cfg[TRACK] == TRACK_LIVE and limit > 0:
            _catch_up_holders(s, i, now)
        every_match(s, view, s.req[i, PATH], limit)


# --- a request arrives --------------------------------------------------------------------------------------


@kernel
def look(s, view, i, now):
    """Fill in what the view tells as request i arrives."""
    needs = s.cfg[NEEDS]
    view.prompt[NOW_PS] = now
    if needs == 0:
        return
    if needs & NEEDS_WORK:
        kind = s.cfg[LOAD_VIEW]
        if kind == LIVE:
            _renew_work(s, view, now)
        elif kind == DELAYED:
            for r in range(view.work.shape[0]):
                view.work[r] = _work_reported(s, r, now - s.cfg[DELAY_PS])
    if needs & NEEDS_METRICS:
        kind = s.cfg[METRICS_VIEW]
        if kind in (LIVE, DELAYED):
            view.changes[0] += 1
        if kind == LIVE:
            for r in range(view.waiting.shape[0]):
                _measure(s, view, r, now)
        elif kind == DELAYED:
            for r in range(view.waiting.shape[0]):
                view.waiting[r] = s.gauge[r, G_WAITING]
                view.running[r] = s.gauge[r, G_RUNNING]
                view.kv_used[r] = view.kv_blocks[0] - s.gauge[r, G_FREE]
    if needs & (NEEDS_MATCH | NEEDS_MATCHES):
        _look_at_caches(s, view, i, now)


@kernel
def refresh(s, view, now):
    """Take a snapshot for the periodic parts of a view; all routers share them."""
    needs = s.cfg[NEEDS]
    loads = s.cfg[LOAD_VIEW] == PERIODIC
    if loads and s.cfg[BY_NEWS] == 0:
        for r in range(view.load.shape[0]):
            change_load(view.load, view.level, r, s.load[r] - view.load[r])
    if loads and needs & NEEDS_WORK:
        for r in range(view.work.shape[0]):
            view.work[r] = _work_now(s, r, now)
    if needs & NEEDS_METRICS and s.cfg[METRICS_VIEW] == PERIODIC:
        view.changes[0] += 1
        for r in range(view.waiting.shape[0]):
            _measure(s, view, r, now)
    if s.cfg[TRACK] == TRACK_PERIODIC and needs & (NEEDS_MATCH | NEEDS_MATCHES):
        for r in range(s.rep.shape[0]):
            catch_up(s, r, now)
        show_published(s)


# --- reports ------------------------------------------------------------------------------------------------


@kernel
def count_sent(s, view, i, r):
    """Let a router that counts for itself count request i, which it has just sent to replica r."""
    if knows_of_flights(view):
        count_flight(s, view, i, r, 1)
    if s.cfg[LOAD_VIEW] == OWN:
        if s.cfg[AT_FIRST] == 0:
            change_load(view.load, view.level, r, 1)
        if s.cfg[NEEDS] & NEEDS_WORK:
            view.work[r] += s.req[i, PROMPT] + s.req[i, OUTPUT]
    if s.cfg[METRICS_VIEW] == OWN:
        view.changes[0] += 1
        view.waiting[r] += 1
        view.kv_used[r] += -(-s.req[i, PROMPT] // s.cfg[BLOCK])


@kernel
def _count_first(s, view, i, r):
    if s.cfg[AT_FIRST]:
        change_load(view.load, view.level, r, 1)
    if s.cfg[LOAD_VIEW] == OWN and s.cfg[NEEDS] & NEEDS_WORK:
        view.work[r] -= s.req[i, PROMPT]
    if s.cfg[METRICS_VIEW] == OWN:
        view.changes[0] += 1
        view.waiting[r] -= 1
        view.running[r] += 1


@kernel
def _count_finished(s, view, i, r):
    if s.cfg[BY_NEWS]:
        change_load(view.load, view.level, r, -1)
    if s.cfg[LOAD_VIEW] == OWN and s.cfg[NEEDS] & NEEDS_WORK:
        view.work[r] -= s.req[i, OUTPUT]
    if s.cfg[METRICS_VIEW] == OWN:
        view.changes[0] += 1
        view.running[r] -= 1
        view.kv_used[r] -= -(-s.req[i, PROMPT] // s.cfg[BLOCK])


@kernel
def _count_others(s, views, i, r, by):
    """Let the other routers count request i among those in flight, or take it off, if they hear of it."""
    kind = s.cfg[LOAD_VIEW]
    if kind in (LIVE, OWN):  # a live view is one for all
        return
    for k in range(s.cfg[ROUTERS]):
        if k != s.owner[i]:
            count_flight(s, view_at(views, k), i, r, by)


@kernel
def _read(s, views, heard, row):
    """Give the routers one report; returns whether it is of a request's first token or end."""
    news = s.news
    kind = news[row, NEWS_KIND]
    what = news[row, NEWS_WHAT]
    r = news[row, NEWS_WHERE]
    if kind == GAUGES:
        for column in range(N_GAUGE):
            s.gauge[r, column] = news[row, NEWS_GAUGE + column]
        return False
    if kind == CACHE:
        if s.cfg[TRACK] == TRACK_DELAYED:
            show(s, what * s.cfg[REPLICAS] + r, news[row, NEWS_VALUE])
        for k in range(s.cfg[ROUTERS]):
            view = view_at(views, k)
            view.prompt[NOW_PS] = news[row, NEWS_PS]
            heard(view, kind, what, r, news[row, NEWS_VALUE])
        return False
    view = view_at(views, s.owner[what])
    if kind == SENT:
        if knows_of_flights(view):
            _count_others(s, views, what, r, 1)
        if s.cfg[BY_NEWS] and s.cfg[AT_FIRST] == 0 and s.cfg[LOAD_VIEW] != OWN:
            change_load(view.load, view.level, r, 1)
        return False
    view.prompt[NOW_PS] = news[row, NEWS_PS]
    if kind == FIRST_TOKEN:
        _count_first(s, view, what, r)
    elif kind == FINISHED_NOW:
        _count_finished(s, view, what, r)
        if knows_of_flights(view):
            count_flight(s, view, what, r, -1)
            _count_others(s, views, what, r, -1)
    heard(view, kind, what, r, news[row, NEWS_VALUE])
    return True


@kernel
def read_news(s, views, heard, now):
    """Give the routers all reports that have reached them by `now`.

    Returns whether a first token or an end is among them: a reason to ask again for requests held back.
    """
    pool = s.pool
    until = now - s.cfg[DELAY_PS]
    end = pool[NEWS_DUE] if s.cfg[LOAD_VIEW] == PERIODIC else pool[NEWS_TOLD]
    last = s.news.shape[0] - 1
    told = False
    while pool[NEWS_READ] < end:
        row = pool[NEWS_READ] & last
        if s.news[row, NEWS_PS] > until:
            break
        pool[NEWS_READ] += 1
        if _read(s, views, heard, row):
            told = True
    if pool[NEWS_READ] == pool[NEWS_TOLD]:  # begin anew with rows that are in the processor's cache
        pool[NEWS_READ] = pool[NEWS_TOLD] = pool[NEWS_DUE] = 0
    return told


@kernel
def start_gauges(s):
    """Report every replica's gauges as they are at the start."""
    for r in range(s.gauge.shape[0]):
        write_gauges(s, r, s.gauge, r, 0)
