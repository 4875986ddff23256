"""The router of vLLM's production stack (vllm-project/production-stack), read at a6c01db0 (2026-08-05).

Its `roundrobin` is `round_robin`, as long as the set of engines stays the same.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._masks import count_of, fill, member_of
from fastsim.cluster._scan import highest, place_in
from fastsim.cluster._state import BITS
from fastsim.cluster.routers.ranges import Count, NotNegative, Positive
from fastsim.cluster.routers.registry import Tree, router
from fastsim.cluster.routers.ring import ring_owner, ring_room, session_key
from fastsim.cluster.routers.tree import KEEP_ALL, remember
from fastsim.cluster.routers.view import (
    NOW_PS,
    in_ps,
    least,
    most_replicas,
    prompt_tok,
    replica_room,
    session,
)
from fastsim.rng import below

_SOURCE = "production-stack a6c01db0"
_RING_NODES = 160
_WINDOW_S = 60.0  # over which requests a second are counted


# --- requests a second --------------------------------------------------------------------------------------

# From a place of the memory on: the window's first row and the row after it; for each engine the requests in
# the window and one more, or 0 if it never had any; a row for each request sent, when and where.
_FROM, _TO, _ENGINES = 0, 1, 2


def _rate_room(size: Any) -> int:
    return _ENGINES + replica_room(size.replicas) + 2 * size.requests


@kernel(inline="always")
def _row(view, at, place):
    return at + _ENGINES + most_replicas(view) + 2 * place


@kernel
def _count_sent(view, at, r):
    """Count a request that is sent to engine r now."""
    memory = view.memory
    row = _row(view, at, memory[at + _TO])
    memory[row] = view.prompt[NOW_PS]
    memory[row + 1] = r
    memory[at + _TO] += 1
    memory[at + _ENGINES + r] = 1 + max(1, memory[at + _ENGINES + r])


@kernel
def _lowest_rate(view, at):
    """The first engine that never got a request, else the first with fewest in the last minute."""
    memory = view.memory
    oldest = view.prompt[NOW_PS] - in_ps(_WINDOW_S)
    while memory[at + _FROM] < memory[at + _TO]:
        row = _row(view, at, memory[at + _FROM])
        if memory[row] >= oldest:
            break
        memory[at + _ENGINES + memory[row + 1]] -= 1
        memory[at + _FROM] += 1
    return least(memory[at + _ENGINES : at + _ENGINES + view.load.shape[0]])


# --- session ------------------------------------------------------------------------------------------------


def _ring_and_rates(params: Any, size: Any) -> int:
    return ring_room(replica_room(size.replicas), _RING_NODES) + _rate_room(size)


@kernel(inline="always")
def _after_ring(view):
    """Where the rates begin, which stand behind a ring of all engines there can be."""
    return 1 + most_replicas(view) * _RING_NODES


@kernel
def _by_session(view, request):
    if session(view) >= 0:
        return ring_owner(view, _RING_NODES, session_key(view, request))
    return _lowest_rate(view, _after_ring(view))


@router("production_stack_session", source=_SOURCE, view="own", memory=_ring_and_rates)
def production_stack_session(view, request):
    """A hash ring of sessions; without one, the engine that got the fewest requests in the last minute.

    160 virtual nodes an engine, as the ring of its library has; the hash is another one. An engine that never
    got a request comes before all others; ties go to the first.
    """
    r = _by_session(view, request)
    _count_sent(view, _after_ring(view), r)
    return r


# --- prefixaware --------------------------------------------------------------------------------------------


class PrefixAware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `production_stack_prefixaware`."""

    min_match_length: Annotated[int, msgspec.Meta(ge=0)] = 0  # characters below which the rates decide
    chunk_chars: Count = 128
    chars_per_tok: Positive = 4.0  # assumed
    insert_on_fallback: bool = True  # false: as before issue 990, when a short match left no trace


@kernel(inline="always")
def _chunk_tok(view):
    return max(1, int(view.params[1] / view.params[2] + 0.5))


@kernel
def _keep_common(best, others, begin):
    """Leave in a mask what is in another, too, unless that is nothing; returns whether it was something."""
    some = 0
    for word in range(best.shape[0]):
        some |= best[word] & others[begin + word]
    if some == 0:
        return False
    for word in range(best.shape[0]):
        best[word] &= others[begin + word]
    return True


@kernel
def _match_chunks(view, request):
    """Chunks that the longest match covers; ``view.best`` has the engines that got them.

    Chunks are alike if all before them are, and if they are whole: a prompt's last, short chunk matches only
    prompts that end there. The memory has for each run the engines that got a prompt which ends with it.
    """
    best = view.best
    words = best.shape[0]
    chunk = _chunk_tok(view)
    fill(best, view.load.shape[0])
    depth = 0
    chunks = 0
    end = view.path_ptr[request + 1]
    for place in range(view.path_ptr[request], end):
        run = view.path[place]
        depth += view.run_blk[run]
        if depth // chunk > chunks:
            some = 0
            for word in range(words):
                some |= best[word] & view.holds[run, word]
            if some == 0:
                return chunks
            for word in range(words):
                best[word] &= view.holds[run, word]
            chunks = depth // chunk
    short = view.tail_blk[request] == 0 and depth > chunks * chunk
    if short and _keep_common(best, view.memory, view.path[end - 1] * words):
        chunks += 1
    return chunks


@kernel
def _insert(view, request, r):
    remember(view, request, r)
    end = view.path_ptr[request + 1]
    if view.tail_blk[request] == 0 and end > view.path_ptr[request]:
        view.memory[view.path[end - 1] * view.best.shape[0] + r // BITS] |= 1 << (r % BITS)


@router(
    "production_stack_prefixaware",
    params=PrefixAware,
    source=_SOURCE,
    view="own",
    memory=lambda params, size: size.runs * (replica_room(size.replicas) // BITS) + _rate_room(size),
    tree=lambda params, cluster: Tree(KEEP_ALL, block_tok=1),
)
def production_stack_prefixaware(view, request):
    """A random engine of those with the longest match in chunks of 128 characters, whatever the loads.

    A trie of the chunks of all prompts sent, of which nothing is ever forgotten (issue 687); without a match
    any engine. Below `min_match_length` characters the engine that got the fewest requests in the last minute
    (as `production_stack_session` without a session).
    """
    at = view.holds.shape[0] * view.best.shape[0]
    matched_chars = _match_chunks(view, request) * view.params[1]
    if matched_chars < view.params[0]:
        r = _lowest_rate(view, at)
        keep = view.params[3] != 0
    else:
        r = member_of(view.best, below(view.rng, count_of(view.best)))
        keep = True
    if keep:
        _insert(view, request, r)
    if view.params[0] > 0:
        _count_sent(view, at, r)
    return r


# --- kvaware, loadaware -------------------------------------------------------------------------------------


class KvAware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `production_stack_kvaware`."""

    threshold_tok: Annotated[int, msgspec.Meta(ge=0)] = 2000  # of the prompt that may be missing
    chunk_tok: Count = 256  # LMCache's


@router(
    "production_stack_kvaware",
    needs=["matches"],
    params=KvAware,
    source=_SOURCE,
    view="own",
    memory=_ring_and_rates,
)
def production_stack_kvaware(view, request):
    """The first engine found to hold the prompt's start, if at most 2,000 tokens are missing, or by session.

    LMCache's controller is asked for holders; the first of its answer counts, not the one with most: here
    the holder of lowest index. It knows whole chunks of 256 tokens; here of what the engines' own caches
    hold. By session is `production_stack_session`.
    """
    chunk = int(view.params[1])
    r = -1
    for k in range(view.load.shape[0]):
        matched = view.match[k] // chunk * chunk
        if matched > 0:
            if matched >= prompt_tok(view) - view.params[0]:
                r = k
            break
    if r < 0:
        r = _by_session(view, request)
    _count_sent(view, _after_ring(view), r)
    return r


class LoadAware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `production_stack_loadaware`."""

    beta: NotNegative = 1.0  # of a load above the mean, against a prompt that is all cached
    chunk_tok: Count = 256  # LMCache's


@router(
    "production_stack_loadaware",
    needs=["matches"],
    params=LoadAware,
    source="production-stack, merged after a6c01db0",
    view="own",
    memory=_ring_and_rates,
)
def production_stack_loadaware(view, request):
    """Most of match / prompt - beta x (load - mean load) / max(1, mean load); by session without any match.

    Loads are requests in flight; matches as in `production_stack_kvaware`, but every engine's. Ties go to
    the first engine.
    """
    load = view.load
    chunk = int(view.params[1])
    if highest(view.match) < chunk:
        r = _by_session(view, request)
        _count_sent(view, _after_ring(view), r)
        return r
    total = 0
    for r in range(load.shape[0]):
        total += load[r]
    mean = total / load.shape[0]
    weight = view.params[0] / max(1.0, mean)
    score = view.score
    for r in range(load.shape[0]):
        score[r] = -weight * (load[r] - mean)
    for word in range(view.found.shape[0]):
        left = view.found[word]
        while left:
            r = word * BITS + lowest_bit(left)
            score[r] += view.match[r] // chunk * chunk / prompt_tok(view)
            left &= left - 1
    best = place_in(score, highest(score), 0)
    _count_sent(view, _after_ring(view), best)
    return best
