"""SGLang's `bucket`: ranges of prompt lengths, one a worker, cut anew as traffic changes; see `sglang`."""

from __future__ import annotations

import msgspec

from fastsim._jit import kernel
from fastsim.cluster._scan import place_in
from fastsim.cluster.routers.ranges import NotNegative, Positive, Seconds
from fastsim.cluster.routers.registry import router
from fastsim.cluster.routers.sglang import SOURCE
from fastsim.cluster.routers.sort import sort
from fastsim.cluster.routers.view import (
    NOW_PS,
    in_ps,
    most_replicas,
    prompt_tok,
    replica_room,
    smallest_and_largest,
    ticks,
)


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `sglang_bucket`."""

    balance_abs_threshold: NotNegative = 32.0  # characters between the most and the least loaded worker
    balance_rel_threshold: NotNegative = 1.0001  # their ratio
    adjust_interval_s: Seconds = 5.0  # of the cut points, and length of the window
    chars_per_tok: Positive = 4.0  # assumed


_LONGEST_CHARS = 4096  # by which ranges are cut at the start
_ENDLESS = 1 << 62
# Memory: workers the ranges are for, requests of the window (from, to), adjustments so far, a worker's share
# when the ranges were cut last, characters in the window. Then of all workers the longest prompt of their
# range, of all their characters in the window, and a row a request.
_CUT_FOR, _FROM, _TO, _ADJUSTED, _CUT_SHARE, _TOTAL, _LAST = 0, 1, 2, 3, 4, 5, 6
_SENT_PS, _CHARS, _WORKER = 0, 1, 2


@kernel(inline="always")
def _got(view):
    """Where the workers' characters begin."""
    return _LAST + most_replicas(view)


@kernel(inline="always")
def _row(view, place):
    return _LAST + 2 * most_replicas(view) + 3 * place


@kernel
def _cut_evenly(view):
    """Ranges of equal width; the last is open."""
    memory = view.memory
    workers = view.load.shape[0]
    width = _LONGEST_CHARS // workers
    for r in range(workers):
        memory[_LAST + r] = (r + 1) * width - 1 if r < workers - 1 else _ENDLESS
    memory[_CUT_FOR] = workers


@kernel
def _cut_by_window(view, share):
    """Ranges that each had `share` characters in the window, from the shortest prompts up."""
    memory = view.memory
    lengths = view.real
    count = memory[_TO] - memory[_FROM]
    for k in range(count):
        lengths[k] = memory[_row(view, memory[_FROM] + k) + _CHARS]
    sort(lengths, 0, count)
    begin = 0
    k = 0
    for r in range(view.load.shape[0] - 1):
        chars = 0
        end = begin + share
        while k < count:
            chars += int(lengths[k])
            k += 1
            if chars >= share:
                if lengths[k - 1] > begin:
                    end = int(lengths[k - 1])
                break
        memory[_LAST + r] = end
        begin = end + 1
    memory[_LAST + view.load.shape[0] - 1] = _ENDLESS


@kernel
def _adjust(view):
    """Cut the ranges anew if the window has more than twice or less than half as much as then."""
    memory = view.memory
    if memory[_CUT_FOR] != view.load.shape[0]:
        _cut_evenly(view)
    now = ticks(view, view.params[2])
    if now == memory[_ADJUSTED]:
        return
    memory[_ADJUSTED] = now
    share = memory[_TOTAL] // view.load.shape[0]
    before = memory[_CUT_SHARE]
    changed = before == 0 or share > 2 * before or before > 2 * share
    if changed and memory[_FROM] < memory[_TO]:
        memory[_CUT_SHARE] = share
        _cut_by_window(view, share)


@kernel
def _move_window(view, chars, r):
    """Forget what is older than the window, then note what worker r got now."""
    memory = view.memory
    now = view.prompt[NOW_PS]
    oldest = now - in_ps(view.params[2])
    while memory[_FROM] < memory[_TO]:
        row = _row(view, memory[_FROM])
        if memory[row + _SENT_PS] >= oldest:
            break
        memory[_got(view) + memory[row + _WORKER]] -= memory[row + _CHARS]
        memory[_TOTAL] -= memory[row + _CHARS]
        memory[_FROM] += 1
    row = _row(view, memory[_TO])
    memory[row + _SENT_PS] = now
    memory[row + _CHARS] = chars
    memory[row + _WORKER] = r
    memory[_TO] += 1
    memory[_TOTAL] += chars
    memory[_got(view) + r] += chars


@router(
    "sglang_bucket",
    params=Bucket,
    source=SOURCE,
    view="own",
    memory=lambda params, size: _LAST + 2 * replica_room(size.replicas) + 3 * size.requests,
    real=lambda params, size: size.requests,
)
def sglang_bucket(view, request):
    """Ranges of prompt lengths, one a worker, cut so that each gets as many characters.

    The window has the characters sent to each worker in the last `adjust_interval_s`; it moves on when a
    request is sent. While workers are out of balance by it, the one with the fewest characters gets the
    request. Every `adjust_interval_s` the ranges are cut anew if a worker's share has more than doubled or
    halved since they were cut last; at first they are 4,096 characters by the number of workers wide. There
    only prefill workers are chosen by it; here it chooses all. Ties go to the first worker. When workers
    join, the ranges are as at the start.
    """
    _adjust(view)
    memory = view.memory
    workers = view.load.shape[0]
    chars = int(prompt_tok(view) * view.params[3] + 0.5)
    got = memory[_got(view) : _got(view) + workers]
    low, most = smallest_and_largest(got)
    chosen = 0
    if most - low > view.params[0] and most > view.params[1] * low:
        chosen = place_in(got, low, 0)
    else:
        while chars > memory[_LAST + chosen]:
            chosen += 1
    _move_window(view, chars, chosen)
    return chosen
