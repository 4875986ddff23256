"""Kernels of the median time per output token of each replica, as Preble's released scheduler keeps it.

It is that of the last 200 requests, the first of which is an assumed one. Only the two times in the middle
are kept in order. Where a time comes in on the other side of them than the one that goes, the next in order
is looked for among all. Places not filled yet have infinite times, in turn below and above all others.
"""

from __future__ import annotations

import math

from fastsim._bits import key_of, value_of
from fastsim._jit import kernel
from fastsim.cluster.routers import _preble_rows as rw
from fastsim.cluster.routers.tree import replicas_of

KEPT = 200
FIRST_S = 0.15

# View.real: loads, medians, the best hit ratio polled, and a row a replica: the two middle times, and all
LOWER, UPPER, TIMES = 0, 1, 2
N_ROW = TIMES + KEPT


def real_length(params, size) -> int:
    """Floats that `preble_code` keeps."""
    return size.replicas * (2 + N_ROW) + 1


@kernel
def tpot_s(view, r):
    """Median of the last times per output token seen of replica r."""
    return view.real[replicas_of(view) + r] if view.memory[rw.replica_row(r) + rw.N_TPOT] else FIRST_S


@kernel
def note_tpot(view, r, seconds):
    """Put a time per output token among replica r's last ones."""
    memory = view.memory
    seen = rw.replica_row(r) + rw.N_TPOT
    row = 2 * replicas_of(view) + 1 + r * N_ROW
    middle = view.real[row : row + TIMES]
    times = view.real[row + TIMES : row + N_ROW]
    if memory[seen] == 0:
        for k in range(KEPT):
            times[k] = math.inf if k % 2 else -math.inf
        middle[LOWER] = -math.inf
        middle[UPPER] = math.inf
        _replace(times, middle, 0, FIRST_S)
        memory[seen] = 1
    _replace(times, middle, memory[seen] % KEPT, seconds)
    memory[seen] += 1
    odd = memory[seen] < KEPT and memory[seen] % 2 == 1
    upper = middle[LOWER] if odd else middle[UPPER]
    view.real[replicas_of(view) + r] = (middle[LOWER] + upper) / 2


@kernel
def _replace(times, middle, place, seconds):
    """Write a time over another, and find those in the middle."""
    gone = times[place]
    times[place] = seconds
    lower = middle[LOWER]
    upper = middle[UPPER]
    if gone <= lower:
        if seconds >= upper:
            middle[LOWER] = upper
            middle[UPPER] = _from_above(times, upper)
        elif seconds > lower:
            middle[LOWER] = seconds
        elif gone == lower:
            middle[LOWER] = _from_below(times, lower)
    elif seconds <= lower:
        middle[LOWER] = _from_below(times, lower)
        middle[UPPER] = lower
    elif seconds < upper:
        middle[UPPER] = seconds
    elif gone == upper:
        middle[UPPER] = _from_above(times, upper)


@kernel
def _from_above(times, value):
    """First time of the upper half: `value` if more than half are not above it, else the next one above."""
    upto = 0
    following = key_of(math.inf)
    most = following
    for k in range(KEPT):
        key = key_of(times[k])
        above = times[k] > value
        upto += 0 if above else 1
        following = min(following, key if above else most)
    return value if upto > KEPT // 2 else value_of(following, value)


@kernel
def _from_below(times, value):
    """Last time of the lower half: `value` if more than half are not below it, else the next one below."""
    upto = 0
    before = key_of(-math.inf)
    least = before
    for k in range(KEPT):
        key = key_of(times[k])
        below = times[k] < value
        upto += 0 if below else 1
        before = max(before, key if below else least)
    return value if upto > KEPT // 2 else value_of(before, value)
