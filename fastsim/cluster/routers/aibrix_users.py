"""AIBrix's vtc-basic: users that used many tokens of late go to pods of high numbers.

Source: vllm-project/aibrix, head of mid-2026. Users are sessions here.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from fastsim._jit import kernel
from fastsim.cluster.routers.registry import router
from fastsim.cluster.routers.view import NOW_PS, PROMPT_TOK, REQUESTS, session
from fastsim.rng import below, uniform

NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]
_PS_PER_S = 1e12


class Vtc(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `aibrix_vtc_basic`."""

    window_s: NotNegative = 300.0  # tokens count for so long
    input_weight: NotNegative = 1.0  # of a prompt token
    output_weight: NotNegative = 2.0  # of an answer's token
    outputs_per_input: NotNegative = 1.5  # tokens of the answer expected for one of the prompt
    least_bucket_tok: Annotated[float, msgspec.Meta(gt=0.0)] = (
        1000.0  # tokens that a pod stands for, at least
    )
    idle_min_tok: NotNegative = 1000.0  # of the users, while none is active
    idle_max_tok: NotNegative = 8000.0
    full_requests: Annotated[float, msgspec.Meta(gt=0.0)] = 100.0  # requests in flight that count as one pod


# view.memory: oldest and next row of the log, and whether it is laid out; the log; two tournaments over
# users, of the fewest and of the most tokens
_OLDEST, _NEXT, _READY = 0, 1, 2
_HEADER = 3
_WHEN, _WHO, _HOW_MANY = 0, 1, 2
_ROW = 3
_NOBODY = 1 << 62


def _room(params, size):
    return _HEADER + _ROW * size.requests + 4 * _leaves(size.requests)


@kernel
def _leaves(requests):
    leaves = 1
    while leaves < requests:
        leaves *= 2
    return leaves


@kernel(inline="always")
def _row(place):
    return _HEADER + _ROW * place


@kernel
def _fewest(view):
    """Place of the tournament of the fewest tokens; that of the most is behind it, twice the leaves on."""
    return _row(view.limits[REQUESTS])


@kernel
def _start(view):
    """At the first use nobody has any tokens."""
    if view.memory[_READY] == 0:
        view.memory[_READY] = 1
        for at in range(2 * _leaves(view.limits[REQUESTS])):
            view.memory[_fewest(view) + at] = _NOBODY


@kernel
def _tokens(view, user):
    leaves = _leaves(view.limits[REQUESTS])
    return view.memory[_fewest(view) + 2 * leaves + leaves + user]


@kernel
def _change_tokens(view, user, change):
    """Change a user's tokens and play its matches again; who has none does not take part."""
    memory = view.memory
    leaves = _leaves(view.limits[REQUESTS])
    fewest = _fewest(view)
    most = fewest + 2 * leaves
    at = leaves + user
    memory[most + at] += change
    memory[fewest + at] = memory[most + at] if memory[most + at] > 0 else _NOBODY
    while at > 1:
        at >>= 1
        memory[fewest + at] = min(memory[fewest + 2 * at], memory[fewest + 2 * at + 1])
        memory[most + at] = max(memory[most + 2 * at], memory[most + 2 * at + 1])


@kernel
def _let_go(view):
    """Let go of what users used before the window."""
    memory = view.memory
    window_ps = int(view.params[_WINDOW] * _PS_PER_S)
    while memory[_OLDEST] < memory[_NEXT]:
        row = _row(memory[_OLDEST])
        if memory[row + _WHEN] + window_ps > view.prompt[NOW_PS]:
            return
        _change_tokens(view, memory[row + _WHO], -memory[row + _HOW_MANY])
        memory[_OLDEST] += 1


@kernel
def _use(view, user):
    """Note what the request will use, as it is estimated on arrival."""
    memory = view.memory
    params = view.params
    prompt_tok = view.prompt[PROMPT_TOK]
    tokens = int(prompt_tok * (params[_INPUT] + params[_OUTPUT] * params[_OUTPUTS]))
    row = _row(memory[_NEXT])
    memory[row + _WHEN] = view.prompt[NOW_PS]
    memory[row + _WHO] = user
    memory[row + _HOW_MANY] = tokens
    memory[_NEXT] += 1
    _change_tokens(view, user, tokens)


@kernel
def _bucket_tok(view):
    """Tokens that a pod stands for: the middle between the active users of fewest and most, not too few."""
    params = view.params
    fewest = view.memory[_fewest(view) + 1]
    most = view.memory[_fewest(view) + 2 * _leaves(view.limits[REQUESTS]) + 1]
    if fewest == _NOBODY:
        return max(params[_LEAST], (params[_IDLE_MIN] + params[_IDLE_MAX]) / 2.0)
    return max(params[_LEAST], (fewest + most) / 2.0)


_WINDOW, _INPUT, _OUTPUT, _OUTPUTS, _LEAST, _IDLE_MIN, _IDLE_MAX, _REQUESTS = range(8)


@router("aibrix_vtc_basic", params=Vtc, source="vllm-project/aibrix, mid-2026", view="own", memory=_room)
def aibrix_vtc_basic(view, request):
    """The pod whose number is nearest to the user's tokens of late in buckets, with a little for load.

    Least |number - x| + requests / 100 (1 at most) + U(0, 0.1), x = tokens / bucket, the last pod at most. It
    sends heavy users to high numbers; there is no queue and no fairness. Any pod where the user is unknown.
    One draw a pod.
    """
    user = session(view)
    replicas = view.load.shape[0]
    if user < 0:
        return below(view.rng, replicas)
    _start(view)
    _let_go(view)
    x = min(_tokens(view, user) / _bucket_tok(view), replicas - 1.0)
    chosen = 0
    for r in range(replicas):
        busy = min(view.load[r] / view.params[_REQUESTS], 1.0)
        view.score[r] = abs(r - x) + busy + 0.1 * uniform(view.rng)
        if view.score[r] < view.score[chosen]:
            chosen = r
    _use(view, user)
    return chosen
