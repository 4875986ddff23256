"""Kernels that look at a whole column of replicas, several numbers at a time.

LLVM can do so if a loop's index starts at 0, which numba knows not to be a place counted from the end: where
it does not, the loop gathers its numbers one by one. So loops over a part are over a slice.
"""

from __future__ import annotations

import math

from fastsim._bits import bit_count, key_of, lowest_bit, value_of
from fastsim._jit import kernel
from fastsim.cluster._state import BITS, NONE

_STRIDE = 64


@kernel
def lowest(values):
    """Smallest value of a column; none may be NaN."""
    low = key_of(values[0])
    for k in range(values.shape[0]):
        low = min(low, key_of(values[k]))
    return value_of(low, values[0])


@kernel
def highest(values):
    """Largest value of a column; none may be NaN."""
    high = key_of(values[0])
    for k in range(values.shape[0]):
        high = max(high, key_of(values[k]))
    return value_of(high, values[0])


@kernel
def times_in(values, value):
    """How often a value stands in a column."""
    times = 0
    for k in range(values.shape[0]):
        times += 1 if values[k] == value else 0
    return times


@kernel
def place_in(values, value, skip):
    """Index of a value in a column, after `skip` others of the same; 0 if there are not so many."""
    for begin in range(0, values.shape[0], _STRIDE):
        part = values[begin : begin + _STRIDE]
        found = bits_at(part, value)
        times = bit_count(found)
        if times > skip:
            for _ in range(skip):
                found &= found - 1
            return begin + lowest_bit(found)
        skip -= times
    return 0


@kernel
def last_place_in(values, value):
    """Index of the last number of a column that equals a value; 0 if there is none."""
    begin = (values.shape[0] - 1) // _STRIDE * _STRIDE
    while begin >= 0:
        found = bits_at(values[begin : begin + _STRIDE], value)
        if found:
            while found & (found - 1):
                found &= found - 1
            return begin + lowest_bit(found)
        begin -= _STRIDE
    return 0


@kernel
def times_up_to(values, value):
    """How many numbers of a column are not above a value."""
    times = 0
    for k in range(values.shape[0]):
        times += 1 if values[k] <= value else 0
    return times


# --- a column and a mask of replicas ------------------------------------------------------------------------


@kernel
def lowest_of(values, mask):
    """Index of the smallest float that a mask has, the lowest among equals; -1 if it has none."""
    chosen = NONE
    least = math.inf
    for word in range(mask.shape[0]):
        bits = mask[word]
        if bits == 0:
            continue
        part = values[word * BITS : (word + 1) * BITS]
        nothing = key_of(math.inf)
        low = nothing
        for k in range(part.shape[0]):
            key = key_of(part[k])
            low = min(low, key if bits >> k & 1 else nothing)
        value = value_of(low, least)
        if chosen == NONE or value < least:
            least = value
            chosen = word * BITS + lowest_bit(bits_at(part, value) & bits)
    return chosen


@kernel
def bits_at(part, value):
    """Mask of the numbers of a column, 64 at most, that equal a value."""
    bits = 0
    for k in range(part.shape[0]):
        bits |= (1 if part[k] == value else 0) << k
    return bits


@kernel
def bits_below(part, value):
    """Mask of the numbers of a column, 64 at most, that are below a value."""
    bits = 0
    for k in range(part.shape[0]):
        bits |= (1 if part[k] < value else 0) << k
    return bits
