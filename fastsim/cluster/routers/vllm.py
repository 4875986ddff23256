"""vLLM's router (vllm-project/router, a fork of SGLang's) and the balancer inside vLLM.

Read as `vllm-router` 0.1.17 and `vllm` 0.33.0. As with SGLang's, every worker is taken to be healthy.
"""

from __future__ import annotations

import msgspec

from fastsim._jit import kernel
from fastsim.cluster._masks import least_loaded_of, member_of
from fastsim.cluster._scan import lowest, place_in
from fastsim.cluster.routers.leaves import insert
from fastsim.cluster.routers.ranges import Count, NotNegative, Seconds, Share
from fastsim.cluster.routers.registry import Tree, router
from fastsim.cluster.routers.ring import ring_owner, ring_room, session_key
from fastsim.cluster.routers.sessions import (
    NEXT_SWEEP,
    drop_sessions,
    keep_session,
    replica_of,
    session_room,
)
from fastsim.cluster.routers.sglang import evict_on_time, out_of_balance
from fastsim.cluster.routers.tree import KEEP_LEAVES, deepest
from fastsim.cluster.routers.view import (
    N_ROUTERS,
    NOW_PS,
    in_ps,
    least,
    least_loaded,
    prompt_tok,
    session,
    ticks,
)
from fastsim.rng import bits_of_pair, mix64

_SOURCE = "vllm-router 0.1.17"


# --- cache_aware --------------------------------------------------------------------------------------------


class CacheAware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `vllm_cache_aware`."""

    cache_threshold: Share = 0.3  # share of the prompt that must match for the tree to decide
    balance_abs_threshold: NotNegative = 64.0  # requests between the most and the least loaded worker
    balance_rel_threshold: NotNegative = 1.5  # their ratio
    eviction_interval_s: Seconds = 120.0
    max_tree_size: Count = 1 << 25  # tokens a worker
    session_idle_s: Seconds = 3600.0  # after which a session is forgotten
    count_load: bool = True  # off: every load looks like 0, as behind a transparent proxy once (issue 179)


_COUNT_LOAD = 6


@kernel
def _least_loaded_tenant(view, run):
    for word in range(view.best.shape[0]):
        view.best[word] = view.holds[run, word]
    if view.params[_COUNT_LOAD] == 0.0:
        return member_of(view.best, 0)
    return least_loaded_of(view.load, view.level, view.best)


@router(
    "vllm_cache_aware",
    params=CacheAware,
    source=_SOURCE,
    view="own",
    memory=session_room,
    tree=lambda params, cluster: Tree(KEEP_LEAVES, block_tok=1, capacity_blk=params.max_tree_size),
)
def vllm_cache_aware(view, request):
    """The session's worker; else the least loaded of those with the match; else the least loaded.

    One tree of all prompts sent, by token ids, cut down as in `sglang_cache_aware_smallest_tree`. If the
    longest match covers more than `cache_threshold` of the prompt, the least loaded of the workers that were
    sent a prompt through the node where it ends. While loads are out of balance the least loaded of all, to
    which its session moves. A session is forgotten when idle for an hour; its map has no further limit here.
    Ties go to the first worker.
    """
    evict_on_time(view, request, view.params[3], NEXT_SWEEP)
    now = view.prompt[NOW_PS]
    drop_sessions(view, now - in_ps(view.params[5]))
    known = session(view)
    counted = view.params[_COUNT_LOAD] != 0.0
    r = -1
    if not counted or not out_of_balance(view, view.params[1], view.params[2]):
        if known >= 0:
            r = replica_of(view, known)
        if r < 0:
            run, depth_tok = deepest(view, request)
            if depth_tok / prompt_tok(view) > view.params[0]:
                r = _least_loaded_tenant(view, run)
    if r < 0:
        r = least_loaded(view) if counted else 0
    if known >= 0:
        keep_session(view, known, r, now)
    insert(view, request, r)
    return r


# --- sessions -----------------------------------------------------------------------------------------------

_RING_NODES = 160
_WEIGHT = 42  # bits of a hash


@router(
    "vllm_consistent_hash",
    source=_SOURCE,
    view="own",
    memory=lambda params, size: ring_room(size.replicas, _RING_NODES),
    blind=True,
)
def vllm_consistent_hash(view, request):
    """A hash ring of sessions with 160 virtual nodes a worker, whatever the loads.

    A request of unknown session is a session of its own; the system hashes its whole body, so that equal
    requests meet again. The hash is another one than the system's.
    """
    return ring_owner(view, _RING_NODES, session_key(view, request))


class StickyLeastLoaded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `vllm_sticky_least_loaded`."""

    idle_s: Seconds = 2 * 3600.0  # after which a session is forgotten,
    sweep_s: Seconds = 60.0  # when a request comes at least so long after the last sweep


@kernel
def _fewest_sessions(view, key):
    """The worker with fewest sessions; among equals the one whose hash with the key is highest.

    Hash and number are one integer, so that the largest of eight at a time tells whose it is.
    """
    replicas = view.load.shape[0]
    memory = view.memory
    sessions = memory[memory.shape[0] - replicas :]  # that of the last replica is the first
    low = lowest(sessions)
    mixed = mix64(key)
    best = -1
    for k in range(replicas):
        r = replicas - 1 - k
        best = max(best, bits_of_pair(mixed, r, _WEIGHT) << 20 | r if sessions[k] == low else -1)
    return best & ((1 << 20) - 1)


@router(
    "vllm_sticky_least_loaded",
    params=StickyLeastLoaded,
    source=_SOURCE,
    view="own",
    memory=session_room,
)
def vllm_sticky_least_loaded(view, request):
    """A session stays with its worker for 2 idle hours; a new one goes to the worker with fewest sessions.

    Sessions count, not requests; ties by rendezvous hashing of the session. Requests of unknown session go
    to a worker with fewest sessions, too, and are not remembered.
    """
    now = view.prompt[NOW_PS]
    if now - view.memory[NEXT_SWEEP] >= in_ps(view.params[1]):
        view.memory[NEXT_SWEEP] = now
        drop_sessions(view, now - in_ps(view.params[0]))
    known = session(view)
    r = replica_of(view, known) if known >= 0 else -1
    if r < 0:
        r = _fewest_sessions(view, session_key(view, request))
    if known >= 0:
        keep_session(view, known, r, now)
    return r


# --- kv_aware -----------------------------------------------------------------------------------------------


class KvAware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `vllm_kv_aware`."""

    overlap_weight: NotNegative = 1.0  # of blocks to compute, against blocks that requests in flight hold
    block_tok: Count = 16


@router("vllm_kv_aware", needs=["matches", "metrics"], params=KvAware, source=_SOURCE, view="own")
def vllm_kv_aware(view, request):
    """Fewest blocks, those to compute for the prompt and those that requests in flight hold on the worker.

    Workers report which blocks they cache. The cost of the released version was not to be read: this is
    Dynamo's, `overlap_weight` x (prompt - match) / `block_tok` + blocks of the prompts in flight, at
    temperature 0, without tiers, since replicas here have GPU blocks only. Ties go to the first worker.
    """
    score = view.score
    match = view.match
    kv_used = view.kv_used
    weight, tokens = view.params[0] / view.params[1], prompt_tok(view)
    for r in range(score.shape[0]):
        score[r] = weight * (tokens - match[r]) + kv_used[r]
    return least(score)


# --- the balancer inside vLLM -------------------------------------------------------------------------------


class DataParallel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `vllm_dp_balancer`."""

    scrape_s: Seconds = 0.1  # between two snapshots of the engines
    kv_weight: NotNegative = 6.0  # of waiting requests, where more than half of the KV cache is used
    kv_threshold: Share = 0.5


@kernel
def _least_from(values, start):
    """Index of the smallest value, the first of several from `start` on, cyclically."""
    low = lowest(values)
    later = values[start:]
    r = place_in(later, low, 0)
    return start + r if later[r] == low else place_in(values, low, 0)


_START, _SCORED = 0, 1  # memory: where the next scan starts; which of the metrics' changes view.real is of


def _requests_and_penalties(params, size):
    return 2 * size.replicas


@kernel
def _read_snapshot(view):
    """The engines' requests, and the penalties of queues where memory is short, into ``view.real``."""
    engines = view.load.shape[0]
    requests = view.real[:engines]
    penalty = view.real[view.real.shape[0] // 2 :]
    share = 1.0 / view.kv_blocks[0]
    kv_weight, kv_threshold = view.params[1], view.params[2]
    for r in range(engines):
        over = max(0.0, view.kv_used[r] * share - kv_threshold)
        requests[r] = view.waiting[r] + view.running[r]
        penalty[r] = view.waiting[r] * kv_weight * over


@router(
    "vllm_dp_balancer",
    needs=["metrics"],
    params=DataParallel,
    source="vllm 0.33.0",
    view="own",
    memory=lambda params, size: 2,
    real=_requests_and_penalties,
)
def vllm_dp_balancer(view, request):
    """Least of max(own requests in flight x clients, waiting + running) + 6 waiting x (KV use over a half).

    vLLM's internal data-parallel balancer: each API server is a client and knows its own requests, and the
    engines by a snapshot every 0.1 s. The scan starts one engine further at each decision; the first of
    equals is taken.
    """
    engines = view.load.shape[0]
    start = view.memory[_START] % engines
    view.memory[_START] += 1
    if view.memory[_SCORED] != view.changes[0]:
        view.memory[_SCORED] = view.changes[0]
        _read_snapshot(view)
    score = view.score
    load = view.load
    requests = view.real[:engines]
    penalty = view.real[view.real.shape[0] // 2 :]
    clients = view.prompt[N_ROUTERS]
    for r in range(engines):
        mine = clients * load[r]
        score[r] = (mine if mine > requests[r] else requests[r]) + penalty[r]
    return _least_from(score, start)


class DataParallelBefore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `vllm_dp_balancer_before`."""

    scrape_s: Seconds = 0.1  # between two snapshots of the engines
    waiting_weight: NotNegative = 4.0  # of waiting requests, against running ones


_SNAPSHOT = 0  # memory: number of the last snapshot, from 1 on
_SINCE = 1  # memory: requests sent to each engine since


@router(
    "vllm_dp_balancer_before",
    needs=["metrics"],
    params=DataParallelBefore,
    source="vllm until mid-2026",
    view="own",
    memory=lambda params, size: _SINCE + size.replicas,
)
def vllm_dp_balancer_before(view, request):
    """Least of 4 waiting + running: vLLM's internal data-parallel balancer until mid-2026.

    A client adds one waiting request a client to the engine it chooses, until the next snapshot overwrites
    that, whether or not it has the request already. Ties go to the first engine.
    """
    memory = view.memory
    engines = view.load.shape[0]
    snapshots = 1 + ticks(view, view.params[0])
    if snapshots != memory[_SNAPSHOT]:
        memory[_SNAPSHOT] = snapshots
        for r in range(engines):
            memory[_SINCE + r] = 0
    score = view.score
    waiting = view.waiting
    running = view.running
    since = memory[_SINCE:]
    clients, weight = view.prompt[N_ROUTERS], view.params[1]
    for r in range(engines):
        score[r] = weight * (waiting[r] + clients * since[r]) + running[r]
    best = least(score)
    memory[_SINCE + best] += 1
    return best
