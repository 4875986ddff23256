"""NVIDIA Dynamo's KV router: cached blocks against active blocks, in blocks of work.

Source: ai-dynamo/dynamo as of mid-2026 (selector, configuration, documentation), and its earlier forms of
2025. What is simulated: one tier of cache (device), no shared cache, no taints or pins, first come first
served.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._scan import highest, lowest
from fastsim.cluster._state import BITS, NONE
from fastsim.cluster._table import drop_slot, find_slot, put
from fastsim.cluster.routers.picks import choose_least
from fastsim.cluster.routers.registry import Tree, router
from fastsim.cluster.routers.tree import KEEP_ALL, KEEP_TIME, REPLICAS, forget_old, remember, tree_matches
from fastsim.cluster.routers.view import (
    BATCH_TOK,
    BLOCK_TOK,
    FINISHED,
    FIRST_TOKEN,
    HOLD,
    NOW_PS,
    PROMPT_TOK,
)

NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
_SOURCE = "ai-dynamo/dynamo, mid-2026"
_PS_PER_S = 1e12


class DynamoCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of today's cost, however caches are known."""

    overlap_credit: NotNegative = 1.0  # blocks of prefill that a cached block saves
    prefill_load_scale: NotNegative = 1.0  # weight of prefill against decode blocks
    request_weight: NotNegative = 0.0  # blocks that an active request counts for
    credit_decay: NotNegative = 0.0  # how fast credit fades with a replica's lead in active prefill; 0 never
    temperature: NotNegative = 0.0  # 0 takes the least cost; above, costs are weights
    queue_threshold: NotNegative = 0.0  # hold while all have more active prefill, in batches; 0 never holds
    expiry_s: NotNegative = 300.0  # a request not heard of for so long is taken for lost
    sweep_s: NotNegative = 60.0  # lost requests are looked for so often; 0 only at a replica's next request


class DynamoKv(DynamoCosts, frozen=True, forbid_unknown_fields=True):
    """Parameters of `dynamo_kv`."""

    predicted_ttl_s: NotNegative = 0.0  # believe for so long that what was sent is cached; 0 never


class DynamoTtl(DynamoCosts, frozen=True, forbid_unknown_fields=True):
    """Parameters of `dynamo_kv_ttl`."""

    ttl_s: NotNegative = 120.0  # what was sent is taken to be cached for so long after its last use


class Dynamo2025(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `dynamo_2025`."""

    overlap_weight: NotNegative = 1.0  # weight of prefill against decode blocks; 0 looks at load only
    temperature: NotNegative = 0.0


class DynamoV01(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `dynamo_v01`."""

    scrape_s: NotNegative = 1.0  # metrics are this old at most


# Where the parameters stand, the same for the two of today.
_CREDIT, _SCALE, _REQUEST, _DECAY, _TEMPERATURE, _QUEUE, _EXPIRY, _SWEEP, _TTL = range(9)

# view.memory: head, tail and last sweep of the list of active requests; columns of replicas, a row a request
_OLDEST, _NEWEST, _SWEPT = 0, 1, 2
_HEADER = 4
_PREFILL_TOK, _DECODE_BLK, _REQUESTS = 0, 1, 2  # columns of replicas: active ones
_OF_REPLICA = 3
_STAGE, _WHERE, _UNCACHED, _SINCE, _NEXT, _PREV = 0, 1, 2, 3, 4, 5  # of a request; places are numbers + 1
_OF_REQUEST = 6
_PREFILLING, _DECODING, _OVER = 1, 2, 3


def _room(params, size):
    return _HEADER + _OF_REPLICA * size.replicas + _OF_REQUEST * size.requests


def _blocks(params, size):
    return size.replicas


def _blocks_and_matches(params, size):
    return 2 * size.replicas


def _active(params, size):
    return size.path


@kernel(inline="always")
def _column(view, which):
    """Where a column of replicas begins."""
    return _HEADER + which * view.tree[REPLICAS]


@kernel(inline="always")
def _request(view, i):
    return _HEADER + _OF_REPLICA * view.tree[REPLICAS] + _OF_REQUEST * i


# --- active blocks ------------------------------------------------------------------------------------------


@kernel
def _change_blocks(view, request, r, change):
    """Count (+1) or discount (-1) the blocks of a request on a replica, each shared run once."""
    word = r // BITS
    bit = 1 << (r % BITS)
    replicas = view.tree[REPLICAS]
    blocks = view.tail_blk[request]
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        run = view.path[place]
        key = run * replicas + r
        slot = find_slot(view.count, key)
        users = view.count[slot, 1] if view.count[slot, 0] != 0 else 0
        if change > 0:
            if users == 0:
                view.marks[run, word] |= bit
                blocks += view.run_blk[run]
            put(view.count, key, users + 1)
        elif users == 1:
            view.marks[run, word] &= ~bit
            blocks += view.run_blk[run]
            drop_slot(view.count, slot)
        else:
            view.count[slot, 1] = users - 1
    view.memory[_column(view, _DECODE_BLK) + r] += change * blocks


@kernel
def _note_shared(view, request):
    """Write the blocks of a prompt that are active on a replica already to ``view.real``, 0 elsewhere.

    ``view.best`` has these replicas and those with a match; returns the prompt's blocks.
    """
    best = view.best
    shared = view.real
    for word in range(best.shape[0]):
        best[word] = view.found[word]
    total = view.tail_blk[request]
    for place in range(view.path_ptr[request], view.path_ptr[request + 1]):
        run = view.path[place]
        total += view.run_blk[run]
        for word in range(best.shape[0]):
            left = view.marks[run, word]
            best[word] |= left
            while left:
                shared[word * BITS + lowest_bit(left)] += view.run_blk[run]
                left &= left - 1
    return total


# --- active requests ----------------------------------------------------------------------------------------


@kernel
def _start(view, request, r, uncached_tok):
    memory = view.memory
    row = _request(view, request)
    memory[row + _STAGE] = _PREFILLING
    memory[row + _WHERE] = r
    memory[row + _UNCACHED] = uncached_tok
    memory[row + _SINCE] = view.prompt[NOW_PS]
    last = memory[_NEWEST]
    memory[row + _PREV] = last
    memory[row + _NEXT] = 0
    if last == 0:
        memory[_OLDEST] = request + 1
    else:
        memory[_request(view, last - 1) + _NEXT] = request + 1
    memory[_NEWEST] = request + 1
    memory[_column(view, _PREFILL_TOK) + r] += uncached_tok
    memory[_column(view, _REQUESTS) + r] += 1
    _change_blocks(view, request, r, 1)


@kernel
def _end_prefill(view, request):
    memory = view.memory
    row = _request(view, request)
    if memory[row + _STAGE] == _PREFILLING:
        memory[row + _STAGE] = _DECODING
        memory[_column(view, _PREFILL_TOK) + memory[row + _WHERE]] -= memory[row + _UNCACHED]


@kernel
def _end(view, request):
    """Let go of a request that has ended, or is taken to have."""
    memory = view.memory
    row = _request(view, request)
    if memory[row + _STAGE] == _OVER:
        return
    _end_prefill(view, request)
    memory[row + _STAGE] = _OVER
    r = memory[row + _WHERE]
    memory[_column(view, _REQUESTS) + r] -= 1
    _change_blocks(view, request, r, -1)
    before = memory[row + _PREV]
    after = memory[row + _NEXT]
    if before == 0:
        memory[_OLDEST] = after
    else:
        memory[_request(view, before - 1) + _NEXT] = after
    if after == 0:
        memory[_NEWEST] = before
    else:
        memory[_request(view, after - 1) + _PREV] = before


@kernel
def _expire(view, expiry_ps, only):
    """Let go of all requests older than that, on all replicas or on one only."""
    memory = view.memory
    i = memory[_OLDEST]
    while i != 0 and memory[_request(view, i - 1) + _SINCE] + expiry_ps <= view.prompt[NOW_PS]:
        following = memory[_request(view, i - 1) + _NEXT]
        if only == NONE or memory[_request(view, i - 1) + _WHERE] == only:
            _end(view, i - 1)
        i = following


@kernel
def _sweep(view):
    """Look for lost requests, if it is time."""
    period_ps = int(view.params[_SWEEP] * _PS_PER_S)
    if period_ps > 0 and view.prompt[NOW_PS] // period_ps > view.memory[_SWEPT]:
        view.memory[_SWEPT] = view.prompt[NOW_PS] // period_ps
        _expire(view, int(view.params[_EXPIRY] * _PS_PER_S), NONE)


@kernel
def _hear(view, kind, what, replica, value):
    if kind == FIRST_TOKEN:
        _end_prefill(view, what)
    elif kind == FINISHED:
        _end(view, what)
    return 0


# --- choices ------------------------------------------------------------------------------------------------


@kernel
def _all_busy(view):
    """Whether every replica has more active prefill than the threshold lets through."""
    most = view.params[_QUEUE] * view.limits[BATCH_TOK]
    return view.params[_QUEUE] > 0.0 and _least_prefill_tok(view) > most


@kernel
def _least_prefill_tok(view):
    begin = _column(view, _PREFILL_TOK)
    return lowest(view.memory[begin : begin + view.load.shape[0]])


@kernel
def _credit(view, r, least_tok):
    """Blocks of prefill that replica r's match saves."""
    params = view.params
    credit = params[_CREDIT] * (view.match[r] * _per_block(view))
    if params[_DECAY] > 0.0:
        block = view.limits[BLOCK_TOK]
        request_blk = (view.prompt[PROMPT_TOK] + block - 1) // block  # here an incomplete block counts
        lead = (view.memory[_column(view, _PREFILL_TOK) + r] - least_tok) / block / request_blk
        credit /= 1.0 + params[_DECAY] * lead
    return credit


@kernel(inline="always")
def _per_block(view):
    """One over a block's tokens."""
    return 1.0 / view.limits[BLOCK_TOK]


@kernel
def _weigh(view, request):
    """Write today's cost of each replica, by the matches in ``view.match``, into ``view.score``.

    All at once as if nothing of the prompt were there, then those that have or compute some of it.
    """
    params = view.params
    score = view.score
    replicas = score.shape[0]
    scale, weight = params[_SCALE], params[_REQUEST]
    slope, prompt_tok = scale * _per_block(view), view.prompt[PROMPT_TOK]
    begin = _column(view, _PREFILL_TOK)
    active_tok = view.memory[begin : begin + replicas]
    begin = _column(view, _DECODE_BLK)
    blocks = view.memory[begin : begin + replicas]
    begin = _column(view, _REQUESTS)
    requests = view.memory[begin : begin + replicas]
    total = _note_shared(view, request)
    if weight == 0.0:
        for r in range(replicas):
            score[r] = (blocks[r] + total) + slope * (active_tok[r] + prompt_tok)
    else:
        for r in range(replicas):
            score[r] = (blocks[r] + total) + (slope * (active_tok[r] + prompt_tok) + weight * requests[r])
    least_tok = _least_prefill_tok(view) if params[_DECAY] > 0.0 else 0
    for word in range(view.best.shape[0]):
        left = view.best[word]
        while left:
            r = word * BITS + lowest_bit(left)
            left &= left - 1
            uncached = slope * (active_tok[r] + prompt_tok) - scale * _credit(view, r, least_tok)
            score[r] = blocks[r] + total - view.real[r] + (max(0.0, uncached) + weight * requests[r])
            view.real[r] = 0.0


@kernel
def _choose(view, request):
    """The replica of least cost, which is counted there."""
    params = view.params
    score = view.score
    prompt_tok = view.prompt[PROMPT_TOK]
    _weigh(view, request)
    r = choose_least(score, view.rng, params[_TEMPERATURE])
    if params[_SWEEP] == 0.0:
        _expire(view, int(params[_EXPIRY] * _PS_PER_S), r)
    _start(view, request, r, prompt_tok - view.match[r])
    return r


@kernel
def _add_believed(view, request):
    """Replace matches by those of what was sent lately where these are longer."""
    known = view.tree[REPLICAS]  # behind the blocks
    for r in range(view.match.shape[0]):
        view.real[known + r] = view.match[r]
    forget_old(view, view.prompt[NOW_PS])
    tree_matches(view, request)
    for r in range(view.match.shape[0]):
        if view.real[known + r] > view.match[r]:
            view.match[r] = int(view.real[known + r])
            view.found[r // BITS] |= 1 << (r % BITS)


def _dynamo_tree(params, cluster):
    if params.predicted_ttl_s > 0.0:
        return Tree(KEEP_TIME, ttl_s=params.predicted_ttl_s, marks=True)
    return Tree(KEEP_ALL, marks=True)


@router(
    "dynamo_kv",
    needs=["matches"],
    params=DynamoKv,
    source=_SOURCE,
    view="own",
    heard=_hear,
    memory=_room,
    real=_blocks_and_matches,
    count=_active,
    tree=_dynamo_tree,
)
def dynamo_kv(view, request):
    """Least prefill left plus active blocks, in KV blocks, caches known by events; ties at random.

    cost = scale max(0, (active prefill tokens + prompt) / block - credit decay overlap) + decode blocks with
    this request + weight x active requests. Decode blocks are those with a hash, which an incomplete one has
    not, and count a prefix once for all requests in flight.
    Prefill is active at its full length until the first token. Parameters with their published defaults:
    `DynamoKv`; the weight of requests was not seen published and is 0.
    """
    _sweep(view)
    if _all_busy(view):
        return HOLD
    if view.params[_TTL] > 0.0:
        _add_believed(view, request)
    r = _choose(view, request)
    if view.params[_TTL] > 0.0:
        remember(view, request, r)
    return r


@router(
    "dynamo_kv_ttl",
    params=DynamoTtl,
    source=_SOURCE,
    view="own",
    heard=_hear,
    memory=_room,
    real=_blocks,
    count=_active,
    tree=lambda params, cluster: Tree(KEEP_TIME, ttl_s=params.ttl_s, marks=True),
)
def dynamo_kv_ttl(view, request):
    """As dynamo_kv without events: what was sent is taken to be cached for a time after its last use."""
    _sweep(view)
    if _all_busy(view):
        return HOLD
    forget_old(view, view.prompt[NOW_PS])
    tree_matches(view, request)
    r = _choose(view, request)
    remember(view, request, r)
    return r


@router(
    "dynamo_2025",
    needs=["matches"],
    params=Dynamo2025,
    source="ai-dynamo/dynamo, 2025",
    view="own",
    heard=_hear,
    memory=_room,
    real=_blocks,
    count=_active,
    tree=lambda params, cluster: Tree(KEEP_ALL, marks=True),
)
def dynamo_2025(view, request):
    """Weight x (active prefill + uncached tokens) / block + decode blocks, least first; ties at random."""
    score = view.score
    replicas = score.shape[0]
    slope, prompt_tok = view.params[0] * _per_block(view), view.prompt[PROMPT_TOK]
    begin = _column(view, _PREFILL_TOK)
    active_tok = view.memory[begin : begin + replicas]
    begin = _column(view, _DECODE_BLK)
    blocks = view.memory[begin : begin + replicas]
    total = _note_shared(view, request)
    for r in range(replicas):
        score[r] = (blocks[r] + total) + slope * (active_tok[r] + prompt_tok)
    for word in range(view.best.shape[0]):
        left = view.best[word]
        while left:
            r = word * BITS + lowest_bit(left)
            left &= left - 1
            uncached_tok = active_tok[r] + prompt_tok - view.match[r]
            score[r] = blocks[r] + total - view.real[r] + slope * uncached_tok
            view.real[r] = 0.0
    r = choose_least(score, view.rng, view.params[1])
    _start(view, request, r, view.prompt[PROMPT_TOK] - view.match[r])
    return r


@router(
    "dynamo_v01",
    needs=["matches", "metrics"],
    params=DynamoV01,
    source="ai-dynamo/dynamo v0.1, early 2025 (its form inferred)",
    view="own",
    memory=lambda params, size: 1,
    real=lambda params, size: size.replicas,
)
def dynamo_v01(view, request):
    """Most of 2 x share cached - KV usage - queue against the longest, by polled metrics; ties at random.

    Several routers that read the same metrics choose the same replica until the next poll
    (ai-dynamo/dynamo#589).
    """
    score = view.score
    busy = view.real
    if view.memory[0] != view.changes[0]:
        view.memory[0] = view.changes[0]
        longest = max(1, highest(view.waiting))
        for r in range(score.shape[0]):
            busy[r] = view.kv_used[r] / view.kv_blocks[0] + view.waiting[r] / longest
    for r in range(score.shape[0]):
        score[r] = busy[r]
    for word in range(view.found.shape[0]):
        left = view.found[word]
        while left:
            r = word * BITS + lowest_bit(left)
            score[r] -= 2.0 * (view.match[r] / view.prompt[PROMPT_TOK])
            left &= left - 1
    return choose_least(score, view.rng, 0.0)
