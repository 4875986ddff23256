"""What a router sees when a request arrives, and the choices policies are made of.

A policy is ``policy(view, request) -> replica``. It reads only the view: how fresh the view is, and whether it knows
of caches at all, is not the policy's business. `prompt_tok` and its kin make positions in ``view.prompt`` readable.
"""

from __future__ import annotations

from fastsim._jit import define, kernel, struct
from fastsim.cluster._index import lowest_bit
from fastsim.cluster._state import BITS

View = struct(
    "RouterView",
    {
        "load": "int64[::1]",  # [replicas], requests in flight
        "work": "int64[::1]",  # [replicas], tokens still to compute; only if the policy needs "work"
        "best": "int64[::1]",  # [words], mask of the replicas with the longest match; only if it needs "match"
        "prompt": "int64[::1]",  # matched tokens, prompt tokens
        "params": "float64[::1]",  # the policy's parameters, in the order of its spec
        "memory": "int64[::1]",  # [8], the policy's own, all 0 at the start
        "rng": "uint64[::1]",  # [4], the routing stream
    },
)
SIGNATURE = "int64(RouterView, int64)"
define("Route", f"FunctionType({SIGNATURE})")


@kernel
def least(values):
    """Index of the smallest value, the lowest index among equals."""
    smallest = values[0]
    for k in range(1, values.shape[0]):
        smallest = min(smallest, values[k])
    k = 0
    while values[k] != smallest:
        k += 1
    return k


@kernel
def least_of(values, mask):
    """As `least`, among the replicas in a mask."""
    chosen = -1
    for word in range(mask.shape[0]):
        left = mask[word]
        while left:
            k = word * BITS + lowest_bit(left)
            left &= left - 1
            if chosen < 0 or values[k] < values[chosen]:
                chosen = k
    return chosen


@kernel
def smallest_and_largest(values):
    """Smallest and largest value."""
    low = values[0]
    high = values[0]
    for k in range(1, values.shape[0]):
        low = min(low, values[k])
        high = max(high, values[k])
    return low, high


@kernel(inline="always")
def match_share(prompt):
    """Share of the prompt that the best replicas hold, from ``view.prompt``."""
    return prompt[0] / prompt[1]
