"""Kernels of the index a router matches prompts against: which replicas hold which run, as bit masks.

For every shared run a mask of the replicas that hold all of it and one of those that hold a part from its
start, so that one walk down a prompt's runs matches all replicas at once. The masks follow the caches at
once (live view), and how large a part is, the caches tell; or both are taken from the caches at every
refresh (periodic view).
"""

from __future__ import annotations

from fastsim._bits import bit_count, lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._masks import fill
from fastsim.cluster._state import (
    ACTIVE,
    BITS,
    BLOCK,
    COPY_NEXT,
    END,
    NONE,
    REPLICAS,
    RUNS,
    START,
    TRACK,
    TRACK_LIVE,
)
from fastsim.cluster._table import get, put

_MANY = 16  # replicas of a word, from which on all of them are written


@kernel
def coverage(s, first):
    """Blocks held without a gap from a run's start, by the copies listed from extent `first` on."""
    ext = s.ext
    if first == NONE:
        return 0
    if ext[first, COPY_NEXT] == NONE:
        return ext[first, END] if ext[first, START] == 0 else 0
    covered = 0
    grown = True
    while grown:
        grown = False
        e = first
        while e != NONE:
            if ext[e, START] <= covered < ext[e, END]:
                covered = ext[e, END]
                grown = True
            e = ext[e, COPY_NEXT]
    return covered


@kernel
def note(s, key, covered):
    """Write into the masks that the replica of `key` holds `covered` blocks of the run of `key`."""
    mask = s.mask
    run = key // s.cfg[REPLICAS]
    if run >= s.cfg[RUNS]:
        return  # a preempted request's own blocks: nobody else can match them
    replica = key - run * s.cfg[REPLICAS]
    word = replica // BITS
    partly = (mask.shape[1] >> 1) + word
    bit = 1 << (replica - word * BITS)
    if covered >= s.run_len[run]:
        mask[run, word] |= bit
        mask[run, partly] &= ~bit
    elif covered > 0:
        mask[run, word] &= ~bit
        mask[run, partly] |= bit
    else:
        mask[run, word] &= ~bit
        mask[run, partly] &= ~bit


@kernel
def _held(s, key):
    """Blocks of the run of `key` that the router takes the replica of `key` to hold."""
    if s.cfg[TRACK] != TRACK_LIVE:
        return get(s.seen, key, 0)
    covered = coverage(s, get(s.table, key, NONE))
    if covered == 0 and s.lost.shape[0] > 0:
        run = key // s.cfg[REPLICAS]
        return s.lost[run, key - run * s.cfg[REPLICAS]]
    return covered


@kernel
def rebuild(s):
    """Take the index afresh from all caches."""
    mask = s.mask
    for run in range(mask.shape[0]):
        for word in range(mask.shape[1]):
            mask[run, word] = 0
    for slot in range(s.seen.shape[0]):
        s.seen[slot, 0] = 0
    for slot in range(s.table.shape[0]):
        if s.table[slot, 0] != 0:
            key = s.table[slot, 0] - 1
            covered = coverage(s, s.table[slot, 1])
            note(s, key, covered)
            put(s.seen, key, covered)


@kernel
def longest_match(s, path, limit, best):
    """Longest prefix of a prompt that some replica holds.

    Parameters
    ----------
    s : State
    path : int
        First entry of the prompt in ``s.path``.
    limit : int
        Blocks of the prompt that may be matched, all of them on shared runs.
    best : int64[words]
        Out: mask of the replicas that hold that much; all of them if nobody holds anything.

    Returns
    -------
    int
        Blocks matched.
    """
    mask = s.mask
    words = mask.shape[1] >> 1
    fill(best, s.cfg[ACTIVE])
    depth = 0
    while depth < limit:
        run = s.path[path]
        length = min(s.run_len[run], limit - depth)
        holders = 0
        for word in range(words):
            holders |= best[word] & mask[run, word]
        if holders == 0 or length < s.run_len[run]:
            return depth + _longest_part(s, run, length, best)
        for word in range(words):
            best[word] &= mask[run, word]
        depth += length
        path += 1
    return depth


@kernel
def _longest_part(s, run, length, best):
    """Narrow `best` to the replicas that hold most of the first `length` blocks of a run; returns how many.

    If none of them holds any, `best` stays as it is.
    """
    mask = s.mask
    words = mask.shape[1] >> 1
    replicas = s.cfg[REPLICAS]
    most = 0
    for word in range(words):
        if best[word] & mask[run, word]:
            most = length
        left = best[word] & mask[run, words + word]
        while left and most < length:
            replica = word * BITS + lowest_bit(left)
            left &= left - 1
            most = max(most, min(length, _held(s, run * replicas + replica)))
    if most == 0:
        return 0
    for word in range(words):
        keep = best[word] & mask[run, word] if most == length else 0
        left = best[word] & mask[run, words + word]
        while left:
            low = left & -left
            if _held(s, run * replicas + word * BITS + lowest_bit(left)) >= most:
                keep |= low
            left ^= low
        best[word] = keep
    return most


@kernel
def every_match(s, path, limit, best, match, found):
    """Tokens of a prompt's prefix that each replica holds.

    Parameters
    ----------
    s : State
    path, limit : int
        As for `longest_match`.
    best : int64[words]
        Scratch.
    match : int64[replicas]
        Out: tokens.
    found : int64[words]
        Out: mask of the replicas with a match.
    """
    mask = s.mask
    words = mask.shape[1] >> 1
    block = s.cfg[BLOCK]
    replicas = s.cfg[REPLICAS]
    clear_matches(match, found)
    fill(best, match.shape[0])
    depth = 0
    some = 1
    while depth < limit and some:
        run = s.path[path]
        length = min(s.run_len[run], limit - depth)
        some = 0
        for word in range(words):
            whole = best[word] & mask[run, word]
            part = best[word] & mask[run, words + word]
            gone = best[word] & ~whole & ~part
            if depth > 0 and gone:
                set_all(match, word, gone, depth * block)
            found[word] |= part | whole
            while part:
                low = part & -part
                r = word * BITS + lowest_bit(part)
                part ^= low
                held = min(length, _held(s, run * replicas + r))
                match[r] = (depth + held) * block
            best[word] = whole
            some |= whole
        depth += length
        path += 1
    for word in range(words):
        if best[word] and depth > 0:
            set_all(match, word, best[word], depth * block)


@kernel(inline="always")
def clear_matches(match, found):
    """Forget the last matches: none are left in `match`, nobody in the mask `found`."""
    for r in range(match.shape[0]):
        match[r] = 0
    for word in range(found.shape[0]):
        found[word] = 0


@kernel(inline="always")
def set_all(match, word, mask, tokens):
    """Give all replicas of a mask's word the same match."""
    begin = word * BITS
    if bit_count(mask) > _MANY:  # several at a time
        part = match[begin : begin + BITS]
        for k in range(part.shape[0]):
            part[k] = tokens if mask >> k & 1 else part[k]
        return
    while mask:
        match[begin + lowest_bit(mask)] = tokens
        mask &= mask - 1
