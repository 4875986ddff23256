"""A kernel that sorts in place: NumPy's makes arrays of its own, which policies cannot."""

from __future__ import annotations

from fastsim._jit import kernel


@kernel
def sort(values, begin, end):
    """Sort values[begin:end], smallest first, by heapsort (Williams 1964)."""
    length = end - begin
    for root in range(length // 2 - 1, -1, -1):
        _sink(values, begin, root, length)
    for last in range(length - 1, 0, -1):
        top = values[begin]
        values[begin] = values[begin + last]
        values[begin + last] = top
        _sink(values, begin, 0, last)


@kernel
def _sink(values, begin, place, length):
    """Let the value at a place of the heap sink below all that are larger."""
    value = values[begin + place]
    child = 2 * place + 1
    while child < length:
        if child + 1 < length and values[begin + child + 1] > values[begin + child]:
            child += 1
        if values[begin + child] <= value:
            break
        values[begin + place] = values[begin + child]
        place = child
        child = 2 * place + 1
    values[begin + place] = value
