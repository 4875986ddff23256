"""The simple policies of AIBrix's gateway, and its index of prefixes; `aibrix_preble` has the rest.

Source: vllm-project/aibrix, head of mid-2026. Running counts are the gateway's own; metrics of the pods are
scraped every 50 ms. Users are sessions here.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from fastsim._jit import kernel
from fastsim.cluster._masks import fill
from fastsim.cluster._state import BITS
from fastsim.cluster.routers.picks import choose_least
from fastsim.cluster.routers.registry import Tree, router
from fastsim.cluster.routers.tree import KEEP_SHARED, forget_old, remember, tree_matches
from fastsim.cluster.routers.view import (
    FINISHED,
    FIRST_TOKEN,
    NOW_PS,
    PROMPT_TOK,
    session,
    smallest_and_largest,
)
from fastsim.rng import below, hash_bits

NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
_SOURCE = "vllm-project/aibrix, mid-2026"


class Scraped(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of policies that read the pods' metrics."""

    scrape_s: NotNegative = 0.05  # metrics are this old at most


class PrefixCache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `aibrix_prefix_cache`."""

    imbalance: NotNegative = (
        8.0  # requests between the busiest pod and the idlest that shut out all but these
    )
    deviations: NotNegative = 1.0  # of the counts above their mean that a pod with the prefix may have
    block_bytes: Count = 4  # bytes a block of the index
    index_blk: Count = 200_000  # blocks of the index, all pods together
    ttl_s: NotNegative = 1200.0  # what was not used for so long is dropped
    chars_per_tok: Positive = 4.0  # bytes a token stands for


# --- counts and metrics -------------------------------------------------------------------------------------


@kernel
def take_least_loaded(view):
    """Replica of the fewest requests in flight, one of equals at random."""
    for r in range(view.load.shape[0]):
        view.score[r] = view.load[r]
    return choose_least(view.score, view.rng, 0.0)


@kernel
def _last_least(score):
    """Index of the smallest value, the highest index among equals."""
    chosen = 0
    for r in range(score.shape[0]):
        if score[r] <= score[chosen]:
            chosen = r
    return chosen


@router("aibrix_least_request", source=_SOURCE, view="own")
def aibrix_least_request(view, request):
    """Fewest requests of this gateway's own in flight; ties at random."""
    return take_least_loaded(view)


@router("aibrix_least_kv_cache", needs=["metrics"], params=Scraped, source=_SOURCE, view="own")
def aibrix_least_kv_cache(view, request):
    """Lowest use of the KV cache; the last of equals, which are many while all are idle."""
    for r in range(view.score.shape[0]):
        view.score[r] = view.kv_used[r]
    return _last_least(view.score)


@router("aibrix_power_of_two", source=_SOURCE)
def aibrix_power_of_two(view, request):
    """Of two distinct random pods the one with fewer requests of all gateways; a tie keeps the first drawn.

    The counts are shared by all gateways (Redis), so its view is live; that they are lost at the full hour
    is not simulated.
    """
    replicas = view.load.shape[0]
    if replicas == 1:
        return 0
    first = below(view.rng, replicas)
    second = below(view.rng, replicas - 1)
    if second >= first:
        second += 1
    return second if view.load[second] < view.load[first] else first


@router("aibrix_session_affinity", blind=True, source=_SOURCE)
def aibrix_session_affinity(view, request):
    """The pod of the highest hash with the session (rendezvous); any pod where the session is unknown.

    Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998. The hash is not its own
    (FNV-1a of key and address), the structure is.
    """
    key = session(view)
    replicas = view.load.shape[0]
    if key < 0:
        return below(view.rng, replicas)
    chosen = 0
    most = -1
    for r in range(replicas):
        weight = hash_bits(((key + 1) << 20) | r, 62)
        if weight > most:
            most = weight
            chosen = r
    return chosen


# --- least latency ------------------------------------------------------------------------------------------

# view.memory: a row of sums a pod, then the time of each request's first token
_STARTED, _QUEUED_PS, _PREFILL_PS, _PROMPTS_TOK, _ENDED, _DECODE_PS, _OUTPUTS_TOK = range(7)
_ROW = 8
_UNKNOWN_PROMPT_TOK, _UNKNOWN_OUTPUT_TOK = 10.0, 100.0  # fleet means before anything is known

# Of a request, behind the rows: arrival, first token, prompt and output tokens
_ARRIVED, _FIRST, _PROMPT, _OUTPUT = 0, 1, 2, 3
_REQUEST = 4


def _latency_room(params, size):
    return 1 + _ROW * size.replicas + _REQUEST * size.requests


@kernel(inline="always")
def _of_request(view, i):
    return view.memory.shape[0] - _REQUEST * (i + 1)


@kernel
def _hear_latency(view, kind, what, replica, value):
    memory = view.memory
    row = _ROW * replica
    request = _of_request(view, what)
    if kind == FIRST_TOKEN:
        memory[request + _FIRST] = view.prompt[NOW_PS]
        memory[row + _STARTED] += 1
        memory[row + _QUEUED_PS] += value
        memory[row + _PREFILL_PS] += view.prompt[NOW_PS] - memory[request + _ARRIVED] - value
        memory[row + _PROMPTS_TOK] += memory[request + _PROMPT]
    elif kind == FINISHED:
        memory[row + _ENDED] += 1
        memory[row + _DECODE_PS] += view.prompt[NOW_PS] - memory[request + _FIRST]
        memory[row + _OUTPUTS_TOK] += memory[request + _OUTPUT]
    return 0


@kernel(inline="always")
def _mean(total, count):
    return total / count if count > 0 else 0.0


@router(
    "aibrix_least_latency",
    source=_SOURCE,
    view="own",
    heard=_hear_latency,
    memory=_latency_room,
)
def aibrix_least_latency(view, request):
    """Mean queueing time + prefill and decode time a token x the fleet's mean lengths; last of equals.

    Means since the start, of what this gateway sent, as a pod's counters tell; a pod of which nothing is
    known looks instantaneous.
    """
    memory = view.memory
    replicas = view.load.shape[0]
    started = 0
    prompts = 0
    ended = 0
    outputs = 0
    for r in range(replicas):
        started += memory[_ROW * r + _STARTED]
        prompts += memory[_ROW * r + _PROMPTS_TOK]
        ended += memory[_ROW * r + _ENDED]
        outputs += memory[_ROW * r + _OUTPUTS_TOK]
    prompt_tok = prompts / started if started > 0 else _UNKNOWN_PROMPT_TOK
    output_tok = outputs / ended if ended > 0 else _UNKNOWN_OUTPUT_TOK
    for r in range(replicas):
        row = _ROW * r
        queued = _mean(memory[row + _QUEUED_PS], memory[row + _STARTED])
        prefill = _mean(memory[row + _PREFILL_PS], memory[row + _PROMPTS_TOK]) * prompt_tok
        decode = _mean(memory[row + _DECODE_PS], memory[row + _OUTPUTS_TOK]) * output_tok
        view.score[r] = queued + prefill + decode
    mine = _of_request(view, request)
    memory[mine + _ARRIVED] = view.prompt[NOW_PS]
    memory[mine + _PROMPT] = view.prompt[PROMPT_TOK]
    memory[mine + _OUTPUT] = view.prompt[5]
    return _last_least(view.score)


# --- the prefix cache ---------------------------------------------------------------------------------------


@kernel
def shut_out_busy(view, most_apart):
    """Leave in ``view.best`` all pods, or the idlest only while counts are too far apart."""
    fill(view.best, view.load.shape[0])
    low, high = smallest_and_largest(view.load)
    if high - low > most_apart:
        for r in range(view.load.shape[0]):
            if view.load[r] != low:
                view.best[r // BITS] &= ~(1 << (r % BITS))


@kernel
def _most_requests(view, deviations):
    """Mean of the counts of requests plus so many of their standard deviations (of a sample)."""
    replicas = view.load.shape[0]
    total = 0
    for r in range(replicas):
        total += view.load[r]
    mean = total / replicas
    if replicas == 1:
        return mean
    squares = 0.0
    for r in range(replicas):
        squares += (view.load[r] - mean) * (view.load[r] - mean)
    return mean + deviations * math.sqrt(squares / (replicas - 1))


@kernel(inline="always")
def _in_best(view, r):
    return view.best[r // BITS] >> (r % BITS) & 1 == 1


@kernel
def _best_match(view, total_tok, most):
    """Candidate of the highest whole percentage of the prompt, then the fewest requests, then at random.

    -1 if no candidate has a block of it, or none of those is idle enough. Percentages are cut, not rounded,
    so that a match of less than one still counts as a match.
    """
    percent = -1
    fewest = 0
    equal = 0
    for r in range(view.load.shape[0]):
        if view.match[r] == 0 or view.score[r] < 0.0 or view.load[r] > most:
            continue
        mine = view.match[r] * 100 // total_tok
        if mine > percent or (mine == percent and view.load[r] < fewest):
            percent = mine
            fewest = view.load[r]
            equal = 0
        if mine == percent and view.load[r] == fewest:
            equal += 1
    if percent < 0:
        return -1
    skip = below(view.rng, equal) if equal > 1 else 0
    for r in range(view.load.shape[0]):
        known = view.match[r] > 0 and view.score[r] >= 0.0
        if known and view.load[r] == fewest and view.match[r] * 100 // total_tok == percent:
            if skip == 0:
                return r
            skip -= 1
    return -1


def _block_tok(params):
    return max(1, round(params.block_bytes / params.chars_per_tok))


@router(
    "aibrix_prefix_cache",
    params=PrefixCache,
    source=_SOURCE,
    view="own",
    tree=lambda params, cluster: Tree(KEEP_SHARED, _block_tok(params), params.index_blk, params.ttl_s),
)
def aibrix_prefix_cache(view, request):
    """The highest share of the prompt on a pod that is not much busier than the mean; else fewest requests.

    While counts are further apart than `imbalance`, only the idlest pods may be chosen. The index holds
    200,000 blocks of 4 bytes for all pods together, 800 kB of text: it forgets soon.
    """
    forget_old(view, view.prompt[NOW_PS])
    tree_matches(view, request)
    shut_out_busy(view, view.params[0])
    for r in range(view.load.shape[0]):
        view.score[r] = view.match[r] if _in_best(view, r) else -1.0
    block = view.tree[1]
    total = max(1, view.prompt[PROMPT_TOK] // block) * block
    r = _best_match(view, total, _most_requests(view, view.params[1]))
    if r < 0:
        r = take_least_loaded(view)
    remember(view, request, r)
    return r
