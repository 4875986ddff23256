"""A tree of minima that counts ties, so that one of the tied can be chosen uniformly in logarithmic time.

Several trees of equal size may lie in one pair of arrays, the one with number k from k times 2w on, w leaves
being a power of two: leaf w + j is entry j, and node n combines 2n and 2n + 1. ``low`` holds minima, ``ties``
how many leaves attain them. Absent leaves are infinite with no ties.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fastsim._jit import kernel


@kernel(inline="always")
def combine(low, ties, base, node):
    """Recompute an inner node from the two below it."""
    left = base + 2 * node
    first, second = low[left], low[left + 1]
    least = min(first, second)
    low[base + node] = least
    # no branch to foresee
    ties[base + node] = (first == least) * ties[left] + (second == least) * ties[left + 1]


@kernel
def put(low, ties, base, leaves, j, score):
    """Set entry j and all that depends on it."""
    node = leaves + j
    low[base + node] = score
    node >>= 1
    while node > 0:
        combine(low, ties, base, node)
        node >>= 1


@kernel
def build(low, ties, base, leaves):
    """Recompute all inner nodes."""
    for node in range(leaves - 1, 0, -1):
        combine(low, ties, base, node)


@kernel
def tied(low, ties, base, leaves, rank):
    """Return the entry with the given rank, counted from 0, among those that attain the minimum."""
    node = 1
    least = low[base + 1]
    while node < leaves:
        node *= 2
        if low[base + node] != least:
            node += 1
        elif rank >= ties[base + node]:
            rank -= ties[base + node]
            node += 1
    return node - leaves


def leaves_for(count: int) -> int:
    """Leaves of a tree over `count` entries: the power of two that holds them, at least 2."""
    return 1 << max(1, (count - 1).bit_length())


def make_trees(trees: int, count: int, score: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Trees whose entries all have the same score."""
    leaves = leaves_for(count)
    low = np.full((trees, 2 * leaves), math.inf)
    ties = np.zeros((trees, 2 * leaves), dtype=np.int64)
    low[:, leaves : leaves + count] = score
    ties[:, leaves : leaves + count] = 1
    low, ties = low.ravel(), ties.ravel()
    for tree in range(trees):
        build(low, ties, tree * 2 * leaves, leaves)
    return low, ties
