"""Mooncake's conductor: the replica of the least time to first token, with caches copied where they are hot.

Source: Qin et al., "Mooncake: trading more storage for less computation", FAST 2025, algorithm 1. Prefill and
decode run on the same replicas here, so the decode instance is the one chosen for prefill.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from fastsim._bits import lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._scan import highest, place_in
from fastsim.cluster._state import BITS
from fastsim.cluster._step_time import step_fs
from fastsim.cluster.routers._preble_times import CLUSTER, prefill_ps
from fastsim.cluster.routers.registry import router
from fastsim.cluster.routers.view import (
    BLOCK_TOK,
    FINISHED,
    FIRST_TOKEN,
    NOW_PS,
    PROMPT_TOK,
    REJECT,
    SEND_BLK,
    SEND_PS,
    SOURCE,
    least,
    most_replicas,
    replica_room,
)

NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
Positive = Annotated[float, msgspec.Meta(gt=0.0)]
_PS_PER_S = 1e12


class Mooncake(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `mooncake`; those marked * are not published and assumed."""

    balancing_threshold: Positive = 2.0  # * fetch if the best match is more than so many times one's own
    fetch: bool = True  # off: the paper's ablation, in which every replica uses its own cache only
    ttft_slo_s: NotNegative = 30.0  # refuse what would wait longer for its first token; 0 refuses nothing
    tbt_slo_s: NotNegative = 0.2  # refuse what would be decoded more slowly; 0 refuses nothing
    bandwidth: Annotated[float, msgspec.Meta(ge=1e8)] = 2.5e10  # * bytes a second that a replica sends
    # of the model; Mistral-7B's
    kv_bytes_per_tok: Annotated[float, msgspec.Meta(gt=0.0, le=1e7)] = 131072.0


_THRESHOLD, _FETCH, _TTFT, _TBT, _BANDWIDTH, _BYTES = range(6)

# view.memory: columns of replicas, then a row a request; the last column has the times to first token
_QUEUED_PS, _SENDS_UNTIL_PS, _ACTIVE, _CONTEXT_TOK, _TTFT_PS = 0, 1, 2, 3, 4
_COLUMNS = 5
_PREDICTED_PS, _PROMPT = 0, 1
_REQUEST = 2


def _room(params, size):
    return _COLUMNS * replica_room(size.replicas) + _REQUEST * size.requests


@kernel(inline="always")
def _column(view, which):
    """Where a column of replicas begins."""
    return which * most_replicas(view)


@kernel(inline="always")
def _of_request(view, i):
    return view.memory.shape[0] - _REQUEST * (i + 1)


@kernel
def _hear(view, kind, what, replica, value):
    memory = view.memory
    request = _of_request(view, what)
    if kind == FIRST_TOKEN:
        memory[_column(view, _QUEUED_PS) + replica] -= memory[request + _PREDICTED_PS]
    elif kind == FINISHED:
        memory[_column(view, _ACTIVE) + replica] -= 1
        memory[_column(view, _CONTEXT_TOK) + replica] -= memory[request + _PROMPT]
    return 0


@kernel(inline="always")
def _fetches(view, match_tok, best_tok):
    """Whether a replica with such a match would have the best one copied rather than use its own."""
    return view.params[_FETCH] > 0.0 and best_tok > view.params[_THRESHOLD] * match_tok


@kernel
def _transfer_ps(view, tokens):
    return int(tokens * view.params[_BYTES] / view.params[_BANDWIDTH] * _PS_PER_S)


@kernel
def _tbt_ps(view, r):
    """Time between tokens on replica r with this request, were all it has in flight decoding."""
    requests = view.memory[_column(view, _ACTIVE) + r] + 1
    context = view.memory[_column(view, _CONTEXT_TOK) + r] + view.prompt[PROMPT_TOK]
    coef = view.step_coef
    last = coef.shape[0]
    return step_fs(coef, view.step_ptr, view.step_knots, 0, last, 0, context, requests, context) // 1000


@kernel
def _prefill_with(view, match_tok, best_tok):
    """Prefill of the prompt by a replica with such a match, the best one copied if that is longer enough."""
    prompt_tok = view.prompt[PROMPT_TOK]
    prefix = best_tok if _fetches(view, match_tok, best_tok) else match_tok
    return prefill_ps(view, CLUSTER, max(1, prompt_tok - prefix), prompt_tok)


@kernel
def _transfer_to(view, match_tok, best_tok, wait_ps):
    """Time until the best match is with a replica with such a match; 0 if it is not copied."""
    if not _fetches(view, match_tok, best_tok):
        return 0
    return wait_ps + _transfer_ps(view, best_tok - match_tok)


@kernel
def _predict(view, best_tok, wait_ps):
    """Time to first token on every replica, as a column of the memory and as scores."""
    replicas = view.load.shape[0]
    queued_ps = view.memory[_column(view, _QUEUED_PS) : _column(view, _QUEUED_PS) + replicas]
    ttft_ps = view.memory[_column(view, _TTFT_PS) : _column(view, _TTFT_PS) + replicas]
    score = view.score
    without_ps = _transfer_to(view, 0, best_tok, wait_ps) + _prefill_with(view, 0, best_tok)
    for r in range(replicas):
        ttft_ps[r] = queued_ps[r] + without_ps
    match = 0
    own_ps = without_ps
    for word in range(view.found.shape[0]):
        left = view.found[word]
        while left:
            r = word * BITS + lowest_bit(left)
            left &= left - 1
            if view.match[r] != match:  # most hold as much as the one before: the common start
                match = view.match[r]
                own_ps = _transfer_to(view, match, best_tok, wait_ps) + _prefill_with(view, match, best_tok)
            ttft_ps[r] = queued_ps[r] + own_ps
    for r in range(replicas):
        score[r] = ttft_ps[r]


@router(
    "mooncake",
    needs=["matches", "step_time"],
    params=Mooncake,
    source="Qin et al., FAST 2025, algorithm 1",
    view="own",
    heard=_hear,
    memory=_room,
)
def mooncake(view, request):
    """Least transfer + queue + prefill time, the best cache copied where it is much longer; or refusal.

    A replica whose match is so much shorter than the best one has the difference sent from the best holder,
    which makes copies of what is hot. Queue: predicted prefills of requests sent there and not begun to
    answer. Transfers of one sender follow each other. First replica of equals.
    """
    memory = view.memory
    params = view.params
    prompt_tok = view.prompt[PROMPT_TOK]
    now = view.prompt[NOW_PS]
    best_tok = highest(view.match)
    source = place_in(view.match, best_tok, 0)
    wait_ps = max(0, memory[_column(view, _SENDS_UNTIL_PS) + source] - now)
    _predict(view, best_tok, wait_ps)
    begin = _column(view, _TTFT_PS)
    ttft_ps = memory[begin : begin + view.load.shape[0]]
    chosen = least(ttft_ps)
    least_ps = ttft_ps[chosen]
    if params[_TTFT] > 0.0 and least_ps > params[_TTFT] * _PS_PER_S:
        return REJECT
    if params[_TBT] > 0.0 and _tbt_ps(view, chosen) > params[_TBT] * _PS_PER_S:
        return REJECT
    match = view.match[chosen]
    if _fetches(view, match, best_tok):
        transfer = wait_ps + _transfer_ps(view, best_tok - match)
        memory[_column(view, _SENDS_UNTIL_PS) + source] = now + transfer
        view.prompt[SOURCE] = source
        view.prompt[SEND_BLK] = best_tok // view.limits[BLOCK_TOK]
        view.prompt[SEND_PS] = transfer
    prefill = _prefill_with(view, match, best_tok)
    memory[_column(view, _QUEUED_PS) + chosen] += prefill
    memory[_column(view, _ACTIVE) + chosen] += 1
    memory[_column(view, _CONTEXT_TOK) + chosen] += prompt_tok
    mine = _of_request(view, request)
    memory[mine + _PREDICTED_PS] = prefill
    memory[mine + _PROMPT] = prompt_tok
    return chosen
