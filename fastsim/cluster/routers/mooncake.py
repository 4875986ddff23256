"""Mooncake's conductor: the replica of the least time to first token, with caches copied where they are hot.

Source: Qin et al., "Mooncake: trading more storage for less computation", FAST 2025, algorithm 1. Prefill and
decode run on the same replicas here, so the decode instance is the one chosen for prefill.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from fastsim._jit import kernel
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

# view.memory: a row a replica, then a row a request
_QUEUED_PS, _SENDS_UNTIL_PS, _ACTIVE, _CONTEXT_TOK = 0, 1, 2, 3
_ROW = 4
_PREDICTED_PS, _PROMPT = 0, 1
_REQUEST = 2


def _room(params, size):
    return _ROW * size.replicas + _REQUEST * size.requests


@kernel(inline="always")
def _of_request(view, i):
    return view.memory.shape[0] - _REQUEST * (i + 1)


@kernel
def _hear(view, kind, what, replica, value):
    memory = view.memory
    row = _ROW * replica
    request = _of_request(view, what)
    if kind == FIRST_TOKEN:
        memory[row + _QUEUED_PS] -= memory[request + _PREDICTED_PS]
    elif kind == FINISHED:
        memory[row + _ACTIVE] -= 1
        memory[row + _CONTEXT_TOK] -= memory[request + _PROMPT]
    return 0


@kernel
def _best_holder(view):
    """Replica of the longest match, the first of several."""
    best = 0
    for r in range(1, view.match.shape[0]):
        if view.match[r] > view.match[best]:
            best = r
    return best


@kernel(inline="always")
def _fetches(view, r, best_tok):
    """Whether replica r would have the best match copied rather than use its own."""
    return view.params[_FETCH] > 0.0 and best_tok > view.params[_THRESHOLD] * view.match[r]


@kernel
def _transfer_ps(view, tokens):
    return int(tokens * view.params[_BYTES] / view.params[_BANDWIDTH] * _PS_PER_S)


@kernel
def _tbt_ps(view, r):
    """Time between tokens on replica r with this request, were all it has in flight decoding."""
    row = _ROW * r
    requests = view.memory[row + _ACTIVE] + 1
    context = view.memory[row + _CONTEXT_TOK] + view.prompt[PROMPT_TOK]
    coef = view.step_coef
    last = coef.shape[0]
    return step_fs(coef, view.step_ptr, view.step_knots, 0, last, 0, context, requests, context) // 1000


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
    source = _best_holder(view)
    best_tok = view.match[source]
    wait_ps = max(0, memory[_ROW * source + _SENDS_UNTIL_PS] - now)
    chosen = -1
    least_ps = 0
    prefill = 0
    match = -1
    transfer = 0
    own = 0
    for r in range(view.load.shape[0]):
        if view.match[r] != match:  # most replicas hold as much as the one before: nothing, or the start
            match = view.match[r]
            prefix = match
            transfer = 0
            if _fetches(view, r, best_tok):
                transfer = wait_ps + _transfer_ps(view, best_tok - prefix)
                prefix = best_tok
            own = prefill_ps(view, CLUSTER, max(1, prompt_tok - prefix), prompt_tok)
        ttft = memory[_ROW * r + _QUEUED_PS] + transfer + own
        view.score[r] = ttft
        if chosen < 0 or ttft < least_ps:
            chosen = r
            least_ps = ttft
            prefill = own
    if params[_TTFT] > 0.0 and least_ps > params[_TTFT] * _PS_PER_S:
        return REJECT
    if params[_TBT] > 0.0 and _tbt_ps(view, chosen) > params[_TBT] * _PS_PER_S:
        return REJECT
    if _fetches(view, chosen, best_tok):
        transfer = _transfer_ps(view, best_tok - view.match[chosen])
        memory[_ROW * source + _SENDS_UNTIL_PS] = now + wait_ps + transfer
        view.prompt[SOURCE] = source
        view.prompt[SEND_BLK] = best_tok // view.limits[BLOCK_TOK]
        view.prompt[SEND_PS] = wait_ps + transfer
    row = _ROW * chosen
    memory[row + _QUEUED_PS] += prefill
    memory[row + _ACTIVE] += 1
    memory[row + _CONTEXT_TOK] += prompt_tok
    mine = _of_request(view, request)
    memory[mine + _PREDICTED_PS] = prefill
    memory[mine + _PROMPT] = prompt_tok
    return chosen
