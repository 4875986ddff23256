"""The simple policies of AIBrix's gateway, and its index of prefixes; `aibrix_preble` has the rest.

Source: vllm-project/aibrix, head of mid-2026. Running counts are the gateway's own; metrics of the pods are
scraped every 50 ms. Users are sessions here.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from fastsim._bits import key_of, value_of
from fastsim._jit import kernel
from fastsim.cluster._masks import fill
from fastsim.cluster._scan import last_place_in, lowest, place_in, times_in
from fastsim.cluster._state import BITS, LEVELS
from fastsim.cluster.routers.picks import choose_least
from fastsim.cluster.routers.registry import Tree, router
from fastsim.cluster.routers.tree import KEEP_SHARED, forget_old, remember, tree_matches
from fastsim.cluster.routers.view import (
    FINISHED,
    FIRST_TOKEN,
    NOW_PS,
    OUTPUT_TOK,
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
    score = view.score
    load = view.load
    for r in range(score.shape[0]):
        score[r] = load[r]
    return choose_least(score, view.rng, 0.0)


@kernel
def _last_least(score):
    """Index of the smallest value, the highest index among equals."""
    return last_place_in(score, lowest(score))


@router("aibrix_least_request", source=_SOURCE, view="own")
def aibrix_least_request(view, request):
    """Fewest requests of this gateway's own in flight; ties at random."""
    return take_least_loaded(view)


@router("aibrix_least_kv_cache", needs=["metrics"], params=Scraped, source=_SOURCE, view="own")
def aibrix_least_kv_cache(view, request):
    """Lowest use of the KV cache; the last of equals, which are many while all are idle."""
    score = view.score
    kv_used = view.kv_used
    for r in range(score.shape[0]):
        score[r] = kv_used[r]
    return _last_least(score)


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

# view.memory: a row of sums of all pods, a row a pod, then what is known of each request
_STARTED, _QUEUED_PS, _PREFILL_PS, _PROMPTS_TOK, _ENDED, _DECODE_PS, _OUTPUTS_TOK = range(7)
_CHOSEN, _SCORED = 7, 8  # of all pods: the one chosen, and ``view.changes`` then; 0 once something is heard
_ROW = 9
# view.real: columns of pods, the means of those sums
_QUEUED, _PREFILL, _DECODE = 0, 1, 2
_MEANS = 3
_UNKNOWN_PROMPT_TOK, _UNKNOWN_OUTPUT_TOK = 10.0, 100.0  # fleet means before anything is known

# Of a request, from the end: arrival, first token, prompt and output tokens
_ARRIVED, _FIRST, _PROMPT, _OUTPUT = 0, 1, 2, 3
_REQUEST = 4


def _latency_room(params, size):
    return _ROW * (1 + size.replicas) + _REQUEST * size.requests


def _mean_room(params, size):
    return _MEANS * size.replicas


@kernel(inline="always")
def _of_request(view, i):
    return view.memory.shape[0] - _REQUEST * (i + 1)


@kernel(inline="always")
def _mean(view, which):
    """Where a column of means begins."""
    return which * (view.real.shape[0] // _MEANS)


@kernel
def _hear_latency(view, kind, what, replica, value):
    memory = view.memory
    memory[_SCORED] = 0
    mean = view.real
    row = _ROW * (1 + replica)
    request = _of_request(view, what)
    if kind == FIRST_TOKEN:
        memory[request + _FIRST] = view.prompt[NOW_PS]
        memory[row + _STARTED] += 1
        memory[row + _QUEUED_PS] += value
        memory[row + _PREFILL_PS] += view.prompt[NOW_PS] - memory[request + _ARRIVED] - value
        memory[row + _PROMPTS_TOK] += memory[request + _PROMPT]
        memory[_STARTED] += 1
        memory[_PROMPTS_TOK] += memory[request + _PROMPT]
        mean[_mean(view, _QUEUED) + replica] = memory[row + _QUEUED_PS] / memory[row + _STARTED]
        mean[_mean(view, _PREFILL) + replica] = memory[row + _PREFILL_PS] / memory[row + _PROMPTS_TOK]
    elif kind == FINISHED:
        memory[row + _ENDED] += 1
        memory[row + _DECODE_PS] += view.prompt[NOW_PS] - memory[request + _FIRST]
        memory[row + _OUTPUTS_TOK] += memory[request + _OUTPUT]
        memory[_ENDED] += 1
        memory[_OUTPUTS_TOK] += memory[request + _OUTPUT]
        mean[_mean(view, _DECODE) + replica] = memory[row + _DECODE_PS] / memory[row + _OUTPUTS_TOK]
    return 0


@router(
    "aibrix_least_latency",
    source=_SOURCE,
    view="own",
    heard=_hear_latency,
    memory=_latency_room,
    real=_mean_room,
)
def aibrix_least_latency(view, request):
    """Mean queueing time + prefill and decode time a token x the fleet's mean lengths; last of equals.

    Means since the start, of what this gateway sent, as a pod's counters tell; a pod of which nothing is
    known looks instantaneous.
    """
    memory = view.memory
    if memory[_SCORED] != view.changes[0]:
        memory[_SCORED] = view.changes[0]
        memory[_CHOSEN] = _fastest(view)
    mine = _of_request(view, request)
    memory[mine + _ARRIVED] = view.prompt[NOW_PS]
    memory[mine + _PROMPT] = view.prompt[PROMPT_TOK]
    memory[mine + _OUTPUT] = view.prompt[OUTPUT_TOK]
    return memory[_CHOSEN]


@kernel
def _fastest(view):
    """Pod of the least latency, the highest index among equals; fills ``view.score``."""
    memory = view.memory
    score = view.score
    started, ended = memory[_STARTED], memory[_ENDED]
    prompt_tok = memory[_PROMPTS_TOK] / started if started > 0 else _UNKNOWN_PROMPT_TOK
    output_tok = memory[_OUTPUTS_TOK] / ended if ended > 0 else _UNKNOWN_OUTPUT_TOK
    queued = view.real[_mean(view, _QUEUED) : _mean(view, _PREFILL)]
    prefill = view.real[_mean(view, _PREFILL) : _mean(view, _DECODE)]
    decode = view.real[_mean(view, _DECODE) :]
    low = key_of(math.inf)
    for r in range(score.shape[0]):
        value = queued[r] + prefill[r] * prompt_tok + decode[r] * output_tok
        score[r] = value
        low = min(low, key_of(value))
    return last_place_in(score, value_of(low, prompt_tok))


_WORD = (1 << 32) - 1
_MANY = 1 << 62  # requests of a pod that has not enough of the prompt

# --- the prefix cache ---------------------------------------------------------------------------------------


@kernel
def shut_out_busy(view, most_apart):
    """Leave in ``view.best`` all pods, or the idlest only while counts are too far apart.

    Returns whether any are left out.
    """
    best = view.best
    low, high = smallest_and_largest(view.load)
    if high - low <= most_apart:
        fill(best, view.load.shape[0])
        return False
    for word in range(best.shape[0]):
        best[word] = view.level[low, word] if low < LEVELS - 1 else 0
    if low >= LEVELS - 1:
        for r in range(view.load.shape[0]):
            if view.load[r] == low:
                best[r // BITS] |= 1 << (r % BITS)
    return True


@kernel
def _most_requests(load, deviations):
    """Mean of the counts of requests plus so many of their standard deviations (of a sample).

    Sums of whole numbers, so that nothing is rounded but the result.
    """
    replicas = load.shape[0]
    total = 0
    squares = 0
    for r in range(replicas):
        total += load[r]
        squares += (load[r] & _WORD) * (load[r] & _WORD)  # which tells the compiler that it fits
    mean = total / replicas
    if replicas == 1:
        return mean
    return mean + deviations * math.sqrt((replicas * squares - total * total) / (replicas * (replicas - 1)))


@kernel
def _best_match(view, match, total_tok, most):
    """Candidate of the highest whole percentage of the prompt, then the fewest requests, then at random.

    -1 if no candidate has a block of it, or none of those is idle enough. Percentages are cut, not rounded,
    so that a match of less than one still counts as a match. `match` is 0 of pods that are no candidates.
    """
    load = view.load
    idle = int(most)
    top_tok = 0
    for r in range(match.shape[0]):
        top_tok = max(top_tok, match[r] if load[r] <= idle else 0)
    if top_tok == 0:
        return -1
    percent = top_tok * 100 // total_tok
    enough_tok = max(1, -(-percent * total_tok // 100))
    requests = view.memory[: match.shape[0]]
    fewest = _MANY
    for r in range(match.shape[0]):
        mine = load[r] if match[r] >= enough_tok else _MANY
        requests[r] = mine
        fewest = min(fewest, mine)
    equal = times_in(requests, fewest)
    return place_in(requests, fewest, below(view.rng, equal) if equal > 1 else 0)


def _block_tok(params):
    return max(1, round(params.block_bytes / params.chars_per_tok))


@router(
    "aibrix_prefix_cache",
    params=PrefixCache,
    source=_SOURCE,
    view="own",
    memory=lambda params, size: 2 * size.replicas,  # scratch
    tree=lambda params, cluster: Tree(KEEP_SHARED, _block_tok(params), params.index_blk, params.ttl_s),
)
def aibrix_prefix_cache(view, request):
    """The highest share of the prompt on a pod that is not much busier than the mean; else fewest requests.

    While counts are further apart than `imbalance`, only the idlest pods may be chosen. The index holds
    200,000 blocks of 4 bytes for all pods together, 800 kB of text: it forgets soon.
    """
    forget_old(view, view.prompt[NOW_PS])
    tree_matches(view, request)
    replicas = view.score.shape[0]
    score = view.score  # the match of candidates, -1 of others
    match = view.match
    for r in range(replicas):
        score[r] = match[r]
    if shut_out_busy(view, view.params[0]):
        match = view.memory[replicas : 2 * replicas]
        for r in range(replicas):
            candidate = view.best[r // BITS] >> (r % BITS) & 1
            match[r] = view.match[r] if candidate else 0
            score[r] = view.match[r] if candidate else -1.0
    block = view.tree[1]
    total = max(1, view.prompt[PROMPT_TOK] // block) * block
    r = _best_match(view, match, total, _most_requests(view.load, view.params[1]))
    if r < 0:
        r = take_least_loaded(view)
    remember(view, request, r)
    return r
