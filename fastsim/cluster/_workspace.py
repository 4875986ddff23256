"""The arrays a run needs, made from a workload, its compiled prompts and a cluster.

Nothing grows with replicas times distinct blocks. The pools of extents and holds and the table of runs start
small and are doubled whenever a run stops for want of room; it then goes on where it stopped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastsim.cluster import _state as st
from fastsim.cluster._look import start_gauges
from fastsim.cluster._table import copy_into
from fastsim.cluster.config import Cluster
from fastsim.cluster.fitting import fits, too_large
from fastsim.cluster.knowledge import Knowledge
from fastsim.cluster.orders import MOST_GROUPS, ORDERS
from fastsim.cluster.outages import compiled_steps, outage_rows
from fastsim.cluster.prefix import Prompts
from fastsim.cluster.routers.registry import Router
from fastsim.errors import InputError
from fastsim.workloads import Workload

PS_PER_S = 1e12
_FIRST_ROWS, _FIRST_ROWS_OF_REPLICA = 1 << 12, 1 << 7
_AT_ONCE = 1 << 12  # requests whose rows are written together, while they are in the processor's cache
_POOLS = {
    st.FULL_EXT: "ext",
    st.FULL_HOLD: "hold",
    st.FULL_TABLE: "table",
    st.FULL_HITS: "hits",
    st.FULL_NEWS: "news",
    st.FULL_EVENTS: "event",
}
_FIRST_NEWS = 1 << 10
_PS_RANGE_S = 1e6  # arrivals later than this (11 days) leave too little room for event keys


def sizes(prompts: Prompts, cluster: Cluster) -> dict[str, int]:
    """First rows of the pools that grow."""
    n = len(prompts.full_blk)
    blocks = cluster.replicas * cluster.kv_blocks
    rows = _FIRST_ROWS + _FIRST_ROWS_OF_REPLICA * cluster.replicas
    hits = int(np.diff(prompts.path_ptr).max(initial=0)) + 64
    slack = 4 * (hits + min(cluster.seqs, n))  # what a single event may use up
    return {
        "ext": min(blocks, rows) + slack,
        "hold": min(n, rows) + slack,
        "table": st.table_slots(min(blocks, rows) + slack),
        "hits": hits,
        "event": min(blocks, rows) + 2 * cluster.replicas + 2 * slack,
    }


def _first_news(news: int, extents: int) -> int:
    """First rows of the ring of reports: more than twice the extents, where their evictions are reported.

    Rows that are not used cost nothing, as nothing is written into them.
    """
    if news & st.NEWS_CACHES:
        return max(_FIRST_NEWS, 1 << (2 * extents).bit_length())
    return _FIRST_NEWS if news else 1


def grown(state: Any) -> Any:
    """The same state with twice the room where a run stopped for want of it, ready to go on."""
    arrays = {name: getattr(state, name) for name in st.FIELDS}
    short = _POOLS[int(state.pool[st.FAULT])]
    old = arrays[short]
    new = _aligned(2 * len(old), old.shape[1])
    if short == "table":
        copy_into(old, new)
        if len(state.seen) > 1:
            arrays["seen"] = _aligned(2 * len(old), 2)
            copy_into(state.seen, arrays["seen"])
    elif short == "news":
        unread = np.arange(state.pool[st.NEWS_READ], state.pool[st.NEWS_TOLD])
        new[unread % len(new)] = old[unread % len(old)]
    else:
        new[: len(old)] = old
    arrays[short] = new
    state.pool[st.FAULT] = st.NO_FAULT
    return st.State(**arrays)


def new_state(
    workload: Workload,
    prompts: Prompts,
    cluster: Cluster,
    knowledge: Knowledge,
    policy: Router,
    owner: np.ndarray,
    pool: dict[str, int],
    *,
    record: bool = False,
    most_load: np.ndarray | None = None,
) -> Any:
    """Make the state at time 0: empty replicas, no request arrived.

    Raises
    ------
    InputError
        If a request can never fit a replica's KV cache, or an arrival is too far out.
    """
    _require_fitting(workload, cluster)
    n, replicas, block = len(workload.arrival_s), cluster.replicas, cluster.block
    coef, knot_ptr, knots, piece = compiled_steps(
        cluster.steps,
        cluster.speeds or (),
        replicas,
        step_tok=cluster.batch_tok,
        step_seqs=cluster.seqs,
        context_tok=_longest_tok(workload),
    )
    joins = cluster.joins_s or ()
    leaves = 1 << max(1, (replicas - 1).bit_length())
    words = -(-replicas // st.BITS)
    runs = len(prompts.run_blk)
    track = knowledge.track
    cfg = _configuration(cluster, runs)
    knowledge.configure(cfg, policy)
    followed = track in (st.TRACK_LIVE, st.TRACK_PERIODIC, st.TRACK_DELAYED)
    order = ORDERS[cluster.order]
    state = st.State(
        cfg=cfg,
        coef=coef,
        knot_ptr=knot_ptr,
        knots=knots,
        req=_requests(workload, prompts),
        path=prompts.path,
        run_len=prompts.run_blk,
        rep=_replicas(cluster),
        key=np.full(leaves, st.NEVER, np.int64),
        tree=_tournament(leaves),
        load=np.zeros(replicas, np.int64),
        level=_levels(replicas - len(joins), words),
        work=np.zeros(replicas, np.int64),
        # Four more than needed: rows a power of two apart would share a few sets of the processor's cache.
        heap=np.empty((replicas, min(cluster.seqs, n) + 4, 2), np.int64),
        heap_len=np.zeros(replicas, np.int64),
        phase=np.zeros((replicas, block), np.int64),
        ext=_aligned(pool["ext"], st.N_EXT),
        hold=np.empty((pool["hold"], 3), np.int64),
        table=_aligned(pool["table"], 2),
        hits=np.empty((pool["hits"], 3), np.int64),
        pool=_pools(n),
        mask=np.zeros((runs if followed else 0, 2 * words), np.int64),
        lazy=np.zeros(words, np.int64),
        blocks_stale_ps=np.full(replicas, st.NEVER),
        work_stale_ps=np.zeros(replicas, np.int64),
        seen=np.zeros((pool["table"] if followed else 1, 2), np.int64),
        session=_sessions(workload),
        owner=owner,
        most_load=np.empty(0) if most_load is None else most_load,
        event=np.empty((pool["event"] if followed or cfg[st.NEWS] & st.NEWS_CACHES else 1, 4), np.int64),
        events=_event_lists(replicas),
        news=np.empty((_first_news(int(cfg[st.NEWS]), pool["ext"]), st.N_NEWS), np.int64),
        outage=outage_rows(cluster.restarts or (), joins, replicas),  # pyright: ignore[reportArgumentType]
        lost=np.zeros((runs if cluster.restarts else 0, replicas), np.int64),
        piece=piece,
        log_load=np.zeros((n if record else 0, replicas), np.int64),
        log_match=np.zeros((n if record else 0, replicas), np.int64),
        log_score=np.full((n if record else 0, replicas), np.nan),
        gauge=np.zeros((replicas if cfg[st.NEWS] & st.NEWS_GAUGES else 0, st.N_GAUGE), np.int64),
        rank=order.ranks(workload) if order.ranks else np.full(n if order.queue else 0, st.NONE, np.int64),
        mark=np.zeros(runs if order.queue == st.LONGEST_PREFIX else 0, np.int64),
        share=np.zeros(MOST_GROUPS + 1, np.int64),
    )
    start_gauges(state)
    return state


def _sessions(workload: Workload) -> np.ndarray:
    """Sessions as given, but numbered anew where one is not below the requests: routers keep tables by it."""
    given = np.ascontiguousarray(workload.session)
    if given.max() < len(given):
        return given
    known = given >= 0
    numbers = np.full(len(given), -1, np.int64)
    numbers[known] = np.unique(given[known], return_inverse=True)[1]
    return numbers


def _levels(replicas: int, words: int) -> np.ndarray:
    """Replicas that are there from the start, at load 0."""
    level = np.zeros((st.LEVELS, words), np.int64)
    for word in range(words):
        level[0, word] = (1 << min(st.BITS, max(0, replicas - word * st.BITS))) - 1
    return level


def _pools(requests: int) -> np.ndarray:
    pool = np.zeros(st.N_POOL, np.int64)
    pool[[st.EXT_FREE, st.HOLD_FREE, st.EVENT_FREE]] = st.NONE
    pool[[st.HELD_FIRST, st.HELD_LAST, st.ON_WAY, st.RETRY_PS]] = st.NONE
    pool[st.HELD_AGAIN] = st.NONE
    pool[[st.WAKE_PS, st.UNTIL_PS]] = st.NEVER
    pool[st.REFRESHED] = -1
    pool[st.COMING] = requests
    return pool


def _event_lists(replicas: int) -> np.ndarray:
    """Empty lists of cache events: of each replica, and of a periodic view."""
    events = np.zeros((replicas + 1, 4), np.int64)
    events[:, [st.EVENT_FIRST, st.EVENT_LAST]] = st.NONE
    return events


def _tournament(leaves: int) -> np.ndarray:
    """A tree of which every match is won by the left side."""
    tree = np.concatenate((np.zeros(leaves, np.int64), np.arange(leaves)))
    for at in range(leaves - 1, 0, -1):
        tree[at] = tree[2 * at]
    return tree


def _configuration(cluster: Cluster, runs: int) -> np.ndarray:
    lecture = int(cluster.engine == "lecture")
    cfg = np.zeros(st.N_CFG, np.int64)
    cfg[[st.BLOCK, st.BUDGET, st.MAX_SEQS, st.WATERMARK]] = (
        cluster.block,
        cluster.batch_tok,
        cluster.seqs,
        cluster.watermark_blocks,
    )
    cfg[[st.RESERVE, st.WHOLE, st.FAST]] = lecture, lecture, int(cluster.fast_forward)
    cfg[[st.RUNS, st.REPLICAS, st.KV_BLOCKS]] = runs, cluster.replicas, cluster.kv_blocks
    cfg[st.ACTIVE] = cluster.replicas - len(cluster.joins_s or ())
    order = ORDERS[cluster.order]
    by_rank = st.BY_FILE if cluster.preempt_ties == "file" else st.BY_RUNNING_LIST
    cfg[[st.QUEUE, st.VICTIM]] = order.queue, by_rank if order.preempts_by_rank else st.LAST_ADMITTED
    values = cluster.order_values
    cfg[st.QUEUE_A : st.QUEUE_A + len(values)] = values
    return cfg


def _requests(workload: Workload, prompts: Prompts) -> np.ndarray:
    n = len(workload.arrival_s)
    req = _aligned(n, st.N_REQ, filled=False)
    for begin in range(0, n, _AT_ONCE):
        rows = slice(begin, min(begin + _AT_ONCE, n))
        part = req[rows]
        part.fill(0)
        part[:, st.ARRIVAL] = np.rint(workload.arrival_s[rows] * PS_PER_S)
        part[:, st.PROMPT] = workload.prompt_tok[rows]
        part[:, st.OUTPUT] = workload.output_tok[rows]
        part[:, st.PATH] = prompts.path_ptr[rows]
        part[:, st.SHARED] = prompts.shared_blk[rows]
        part[:, st.HOLDS] = st.NONE
        part[:, st.OPEN] = st.NONE
    return req


def _aligned(rows: int, columns: int, *, filled: bool = True) -> np.ndarray:
    """A table of zeros, or of anything if it is not `filled`, whose first row starts a cache line.

    Filled rather than allocated as zeros: NumPy asks for huge pages only for memory it does not get zeroed.
    """
    table = st.from_a_cache_line(np.empty(rows * columns + 7, np.int64)).reshape(rows, columns)
    if filled:
        table.fill(0)
    return table


def _replicas(cluster: Cluster) -> np.ndarray:
    rep = _aligned(cluster.replicas, st.N_REP)
    rep[:, [st.BLANK, st.FREE]] = cluster.kv_blocks
    for column in (st.LRU_FIRST, st.LRU_LAST, st.RUN_FIRST, st.RUN_LAST, st.WAIT_FIRST, st.WAIT_LAST):
        rep[:, column] = st.NONE
    rep[:, st.TAKEN] = 1
    rep[:, [st.PREFILLING, st.SHARERS, st.PAUSED]] = st.NONE
    if ORDERS[cluster.order].queue == st.CYCLING_GROUPS:
        rep[:, st.TURN] = cluster.order_values[0] - 1
    return rep


def _longest_tok(workload: Workload) -> int:
    return int((workload.prompt_tok + workload.output_tok).max(initial=1))


def _require_fitting(workload: Workload, cluster: Cluster) -> None:
    if len(workload.arrival_s) == 0:
        raise InputError("workload: it has no requests; it must have at least 1")
    fit = fits(workload, cluster)
    if not fit.all():
        raise too_large(workload, cluster, fit)
    if workload.arrival_s[-1] > _PS_RANGE_S:
        raise InputError(
            f"workload: arrival_s = {workload.arrival_s[-1]} is not allowed; "
            f"the last must be at most {_PS_RANGE_S:g} s"
        )
