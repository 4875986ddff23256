"""SGLang's router: sgl-router, then sgl-model-gateway, now SMG (lightseekorg/smg).

Read as `sglang-router` 0.3.2 and SMG 73da68ca9 (2026-08-07). Every worker is taken to be healthy, so that
circuit breakers, retries and second choices never come in. The router counts the requests it has in flight
itself; what workers report of themselves it polls.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._scan import lowest
from fastsim.cluster._state import BITS
from fastsim.cluster.routers.leaves import FIRST, insert, trim
from fastsim.cluster.routers.load import two_replicas
from fastsim.cluster.routers.ranges import Count, NotNegative, Positive, Seconds, Share
from fastsim.cluster.routers.registry import Tree, router
from fastsim.cluster.routers.ring import prefix_key, prefix_room, ring_owner, unkept_tree
from fastsim.cluster.routers.sessions import (
    NEXT_SWEEP,
    drop_sessions,
    keep_session,
    replica_of,
    session_room,
    sessions_at,
)
from fastsim.cluster.routers.tree import (
    KEEP_LEAVES,
    SIZE_BLK,
    deepest,
    holds_run,
    tree_matches,
)
from fastsim.cluster.routers.view import (
    NOW_PS,
    in_ps,
    least,
    least_loaded,
    prompt_tok,
    session,
    smallest_and_largest,
    ticks,
)
from fastsim.rng import below

SOURCE = "sglang-router 0.3.2, SMG 73da68ca9"


# --- cache_aware --------------------------------------------------------------------------------------------


class CacheAware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of the cache_aware policies, as sglang-router 0.3.2 has them.

    Others had: the library itself 0.5, 32, 1.1, 30 s, 10,000; SMG 0.3, 64, 1.5, 120 s, 2^26; the command line
    of 0.1.0, from memory, 0.5, 32, 1.0001, 60 s, 2^24.
    """

    cache_threshold: Share = 0.3  # share of the prompt that must match for the tree to decide
    balance_abs_threshold: NotNegative = 64.0  # requests between the most and the least loaded worker
    balance_rel_threshold: NotNegative = 1.5  # their ratio
    eviction_interval_s: Seconds = 60.0
    max_tree_size: Count = 1 << 26  # characters a worker, in spite of what the documentation says
    chars_per_tok: Positive = 4.0  # assumed: prompts are tokens here, characters there
    count_load: bool = True  # off: every load looks like 0, as over gRPC once (issue 15473)
    keep_locality: bool = False  # while out of balance prefer a match, as proposed in July 2026 (PR 32195)


_TICK = 0  # memory: evictions so far
_PROCESSED = 1  # memory: requests sent to each worker
_PARAMS_INTERVAL_S, _COUNT_LOAD, _KEEP_LOCALITY = 3, 6, 7
_SMALLEST_TREE, _LOWEST_LOAD, _BY_PROCESSED = 0, 1, 2


def _tree(params: CacheAware, cluster: object) -> Tree:
    return Tree(KEEP_LEAVES, block_tok=1, capacity_blk=int(params.max_tree_size / params.chars_per_tok))


def _one_each(params: object, size: object) -> int:
    return _PROCESSED + size.replicas  # pyright: ignore[reportAttributeAccessIssue]


@kernel
def evict_on_time(view, request, interval_s, tick):
    """Cut all trees down to their size if the timer has gone off since; memory[tick] is for it."""
    now = ticks(view, interval_s)
    if now != view.memory[tick]:
        view.memory[tick] = now
        for r in range(view.load.shape[0]):
            trim(view, request, r)


@kernel
def out_of_balance(view, abs_threshold, rel_threshold):
    """Whether the most loaded worker has too many requests more, and too many times as many."""
    low, high = smallest_and_largest(view.load)
    return high - low > abs_threshold and high > rel_threshold * low


@kernel
def _tenant(view, run):
    """The worker that came to a node first; if it has lost the node since, any: the one of lowest index."""
    first = view.node[run, FIRST] - 1
    if first >= 0 and holds_run(view, run, first):
        return first
    word = 0
    while view.holds[run, word] == 0:
        word += 1
    return word * BITS + lowest_bit(view.holds[run, word])


@kernel
def _smallest_tree(view):
    sizes = view.list[:, SIZE_BLK]
    smallest = sizes[0]
    for r in range(view.load.shape[0]):
        smallest = min(smallest, sizes[r])
    r = 0
    while sizes[r] != smallest:
        r += 1
    return r


@kernel
def _least_processed(view, counted):
    """Fewest requests in flight, if they are counted, then fewest sent so far, then lowest index."""
    load = view.load
    processed = view.memory[_PROCESSED:]
    low = lowest(load) if counted else 0
    fewest = 1 << 62
    for r in range(load.shape[0]):
        # Count and number are one integer, so that the least of several at a time tells whose it is.
        fewest = min(fewest, processed[r] << 20 | r if load[r] == low or not counted else fewest)
    return fewest & ((1 << 20) - 1)


@kernel
def _longest_of_idle(view, request, abs_threshold):
    """Longest match among those hardly busier than the idlest, then least loaded; -1 if they have none."""
    low, _ = smallest_and_largest(view.load)
    tree_matches(view, request)
    best = -1
    for r in range(view.load.shape[0]):
        if view.load[r] - low > abs_threshold or view.match[r] == 0:
            continue
        longer = view.match[r] - view.match[best] if best >= 0 else 1
        if longer > 0 or (longer == 0 and view.load[r] < view.load[best]):
            best = r
    return best


@kernel
def _cache_aware(view, request, fallback):
    evict_on_time(view, request, view.params[_PARAMS_INTERVAL_S], _TICK)
    counted = view.params[_COUNT_LOAD] != 0.0
    r = -1
    if counted and out_of_balance(view, view.params[1], view.params[2]):
        if view.params[_KEEP_LOCALITY] != 0.0:
            r = _longest_of_idle(view, request, view.params[1])
    else:
        run, depth_tok = deepest(view, request)
        if depth_tok / prompt_tok(view) > view.params[0]:
            r = _tenant(view, run)
        elif fallback == _SMALLEST_TREE:
            r = _smallest_tree(view)
    if r < 0:
        if fallback == _BY_PROCESSED:
            r = _least_processed(view, counted)
        else:
            r = least_loaded(view) if counted else 0
    insert(view, request, r)
    view.memory[_PROCESSED + r] += 1
    return r


@router(
    "sglang_cache_aware_smallest_tree",
    params=CacheAware,
    source="sgl-router 0.1 to 0.2",
    view="own",
    memory=_one_each,
    tree=_tree,
)
def sglang_cache_aware_smallest_tree(view, request):
    """SGLang's cache_aware until December 2025: the worker with the match, else that with the smallest tree.

    One tree of all prompts sent, by characters; each node knows the workers that were sent a prompt through
    it. If the longest match covers more than `cache_threshold` of the prompt, the request goes to the worker
    that came first to the node where it ends: not to the least loaded of those that did. Otherwise, and
    whatever the loads, to the worker with the fewest characters, which is not one with little to do
    (sglang issue 14532). While loads are out of balance the least loaded gets it, as in `cache_aware_guard`.

    Every `eviction_interval_s` each worker's leaves go, the one used longest ago first, until it has
    `max_tree_size` characters. A match does not renew a leaf here (it does, in some versions for one match
    in eight); the prompt's insertion does. Ties go to the first worker.
    """
    return _cache_aware(view, request, _SMALLEST_TREE)


@router(
    "sglang_cache_aware_lowest_load",
    params=CacheAware,
    source="sglang-router 0.3.2",
    view="own",
    memory=_one_each,
    tree=_tree,
)
def sglang_cache_aware_lowest_load(view, request):
    """SGLang's cache_aware since December 2025: the worker with the match, else the least loaded.

    As `sglang_cache_aware_smallest_tree` but for that; ties go to the first worker.
    """
    return _cache_aware(view, request, _LOWEST_LOAD)


@router(
    "sglang_cache_aware_processed",
    params=CacheAware,
    source="SMG 73da68ca9",
    view="own",
    memory=_one_each,
    tree=_tree,
)
def sglang_cache_aware_processed(view, request):
    """SGLang's cache_aware since June 2026: as before, load ties to the worker that was sent the fewest.

    SMG's further triggers by KV use are off by default, and left out.
    """
    return _cache_aware(view, request, _BY_PROCESSED)


# --- prefix_hash --------------------------------------------------------------------------------------------

_RING_NODES = 150


class PrefixHash(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `sglang_prefix_hash`."""

    prefix_tok: Count = 256
    load_factor: Annotated[float, msgspec.Meta(ge=1.0)] = 1.25  # times the mean load, the request included


@router(
    "sglang_prefix_hash",
    params=PrefixHash,
    source=SOURCE,
    view="own",
    memory=lambda params, size: prefix_room(size.replicas, _RING_NODES, size.runs),
    tree=unkept_tree,
)
def sglang_prefix_hash(view, request):
    """A hash ring of the prompt's first tokens, unless the worker there has too much to do.

    Too much: more than `load_factor` times the mean, this request counted. Then the least loaded worker, if
    that has not too much, too. 150 virtual nodes a worker; the hash is another one than the system's.
    """
    replicas = view.load.shape[0]
    first = ring_owner(view, _RING_NODES, prefix_key(view, request, int(view.params[0]), _RING_NODES))
    total = 0
    for r in range(replicas):
        total += view.load[r]
    most = view.params[1] * ((total + 1) / replicas)
    if total == 0 or view.load[first] <= most:
        return first
    other = least_loaded(view)
    return other if view.load[other] <= most else first


# --- power_of_two -------------------------------------------------------------------------------------------


class PowerOfTwo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `sglang_power_of_two`."""

    scrape_s: Seconds = 10.0  # how often workers are polled
    reports: bool = True  # whether workers report their KV use


@router("sglang_power_of_two", needs=["metrics"], params=PowerOfTwo, source=SOURCE, view="own")
def sglang_power_of_two(view, request):
    """Of two distinct random workers the one with less KV in use, as polled; a tie keeps the first drawn.

    Without reports, or had one of the two none, the one with fewer requests in flight.
    """
    first, second = two_replicas(view)
    if view.params[1] != 0:
        return second if view.kv_used[second] < view.kv_used[first] else first
    return second if view.load[second] < view.load[first] else first


# --- manual -------------------------------------------------------------------------------------------------


class Manual(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `sglang_manual`."""

    assignment: Literal["random", "min_load", "min_group"] = "random"  # of a session that is new
    idle_s: Seconds = 4 * 3600.0  # after which a session is forgotten,
    sweep_s: Seconds = 60.0  # at the next sweep


@kernel
def _any_with_fewest(view, by_sessions):
    """A random worker of those with fewest sessions, or requests in flight; a single one draws nothing."""
    low = 1 << 62
    ties = 0
    for r in range(view.load.shape[0]):
        has = sessions_at(view, r) if by_sessions else view.load[r]
        if has < low:
            low = has
            ties = 0
        if has == low:
            ties += 1
    left = below(view.rng, ties) if ties > 1 else 0
    r = 0
    while True:
        has = sessions_at(view, r) if by_sessions else view.load[r]
        if has == low:
            if left == 0:
                return r
            left -= 1
        r += 1


@router("sglang_manual", params=Manual, source=SOURCE, view="own", memory=session_room)
def sglang_manual(view, request):
    """A session stays with the worker that its first request went to, until it has been idle for 4 hours.

    New sessions go to a random worker, to one with the fewest requests in flight, or to one with the fewest
    sessions (there: sessions with requests in flight). So do requests of unknown session, which are not
    remembered. A session's second worker is for when its first fails, which none does here.
    """
    sweeps = ticks(view, view.params[2])
    if sweeps != view.memory[NEXT_SWEEP]:
        view.memory[NEXT_SWEEP] = sweeps
        drop_sessions(view, sweeps * in_ps(view.params[2]) - in_ps(view.params[1]))
    known = session(view)
    r = replica_of(view, known) if known >= 0 else -1
    if r < 0:
        if view.params[0] == 0:
            r = below(view.rng, view.load.shape[0])
        else:
            r = _any_with_fewest(view, view.params[0] == 2)
    if known >= 0:
        keep_session(view, known, r, view.prompt[NOW_PS])
    return r


# --- least_load ---------------------------------------------------------------------------------------------


class LeastLoad(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `sglang_least_load`."""

    scrape_s: Seconds = 10.0  # how often workers are polled
    kv_pressure_s: NotNegative = 0.15  # weight of the KV cache's use
    throughput_tok_s: Positive = 2000.0  # of a worker that does not report its own
    mean_prefill_tok: NotNegative = 1024.0  # assumed of requests in workers' queues


# Memory: number of the last poll, from 1 on; which of the metrics' changes view.real is of; tokens sent since
_POLLS, _SCORED, _SENT = 0, 1, 2


@router(
    "sglang_least_load",
    needs=["metrics"],
    params=LeastLoad,
    source=SOURCE,
    view="own",
    memory=lambda params, size: _SENT + size.replicas,
    real=lambda params, size: size.replicas,
)
def sglang_least_load(view, request):
    """Least time to drain, (tokens queued + tokens sent since the poll) / throughput + 0.15 s k / (1 - k).

    k is the share of the KV cache in use, at most 0.999. Workers report their queue's uncached tokens there;
    here their queue's requests, of `mean_prefill_tok` each, and no throughput. Ties go to the first worker.
    """
    memory = view.memory
    replicas = view.load.shape[0]
    polls = 1 + ticks(view, view.params[0])
    if polls != memory[_POLLS]:
        memory[_POLLS] = polls
        for r in range(replicas):
            memory[_SENT + r] = 0
    score = view.score
    waiting = view.waiting
    sent_tok = memory[_SENT:]
    pressure_s = view.real  # for whose divisions there is time at a poll
    if memory[_SCORED] != view.changes[0]:
        memory[_SCORED] = view.changes[0]
        share = 1.0 / view.kv_blocks[0]
        for r in range(replicas):
            k = min(view.kv_used[r] * share, 0.999)
            pressure_s[r] = view.params[1] * k / (1.0 - k)
    tok_s, prefill_tok = 1.0 / view.params[2], view.params[3]
    for r in range(replicas):
        score[r] = (waiting[r] * prefill_tok + sent_tok[r]) * tok_s + pressure_s[r]
    best = least(score)
    memory[_SENT + best] += prompt_tok(view)
    return best
