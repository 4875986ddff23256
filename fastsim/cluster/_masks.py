"""Kernels of sets of replicas, kept as bit masks in words of 62 bits, and of the loads told apart by them."""

from __future__ import annotations

from fastsim._bits import bit_count, lowest_bit
from fastsim._jit import kernel
from fastsim.cluster._state import BITS, LEVELS

_FEW = 16  # replicas whose loads are sooner compared than looked up, level by level


@kernel(inline="always")
def fill(mask, replicas):
    """Put replicas 0 to `replicas` - 1 into a mask, and no others."""
    for word in range(mask.shape[0]):
        left = replicas - word * BITS
        mask[word] = (1 << left) - 1 if left < BITS else (1 << BITS) - 1


@kernel(inline="always")
def change_load(load, level, r, change):
    """Change the load of replica r, and its place among the levels."""
    before = load[r]
    after = before + change
    load[r] = after
    word = r // BITS
    bit = 1 << (r - word * BITS)
    level[min(before, LEVELS - 1), word] ^= bit
    level[min(after, LEVELS - 1), word] ^= bit


@kernel
def count_of(mask):
    """Replicas in a mask."""
    count = 0
    for word in range(mask.shape[0]):
        count += bit_count(mask[word])
    return count


@kernel
def least_loaded_of(load, level, mask):
    """Least loaded replica of a mask that is not empty; ties to the lowest index."""
    if count_of(mask) > _FEW:
        for at in range(LEVELS - 1):
            for word in range(mask.shape[0]):
                found = level[at, word] & mask[word]
                if found:
                    return word * BITS + lowest_bit(found)
    chosen = -1
    for word in range(mask.shape[0]):
        left = mask[word]
        while left:
            k = word * BITS + lowest_bit(left)
            left &= left - 1
            if chosen < 0 or load[k] < load[chosen]:
                chosen = k
    return chosen


@kernel
def member_of(mask, k):
    """Replica number k of a mask, counted from 0 by index."""
    for word in range(mask.shape[0]):
        left = mask[word]
        members = bit_count(left)
        if k < members:
            for _ in range(k):
                left &= left - 1
            return word * BITS + lowest_bit(left)
        k -= members
    return -1
