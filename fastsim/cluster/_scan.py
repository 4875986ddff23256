"""Kernels that look at a whole column of replicas, several numbers at a time.

LLVM can do so if a loop's index starts at 0, which numba knows not to be a place counted from the end: where
it does not, the loop gathers its numbers one by one. So loops over a part are over a slice.
"""

from __future__ import annotations

from fastsim._bits import key_of, value_of
from fastsim._jit import kernel

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
        found = times_in(part, value)
        if found > skip:
            for k in range(part.shape[0]):
                if part[k] == value:
                    if skip == 0:
                        return begin + k
                    skip -= 1
        skip -= found
    return 0


@kernel
def last_place_in(values, value):
    """Index of the last number of a column that equals a value; 0 if there is none."""
    begin = (values.shape[0] - 1) // _STRIDE * _STRIDE
    while begin >= 0:
        part = values[begin : begin + _STRIDE]
        if times_in(part, value) > 0:
            for k in range(part.shape[0] - 1, -1, -1):
                if part[k] == value:
                    return begin + k
        begin -= _STRIDE
    return 0


@kernel
def times_up_to(values, value):
    """How many numbers of a column are not above a value."""
    times = 0
    for k in range(values.shape[0]):
        times += 1 if values[k] <= value else 0
    return times
