"""What a router sees when a request arrives, and the choices policies are made of.

A policy is ``policy(view, request) -> replica``. It reads only the view; how fresh that is, and whether it
knows of caches at all, is not the policy's business.
"""

from __future__ import annotations

from fastsim._jit import define, kernel, struct

View = struct(
    "RouterView",
    {
        "load": "int64[::1]",  # [replicas], requests in flight
        "level": "int64[:, ::1]",  # [LEVELS, words], the same as masks, see _masks.py
        "work": "int64[::1]",  # [replicas], tokens still to compute; only if the policy needs "work"
        "prompt": "int64[::1]",  # what `match_tok`, `prompt_tok` and `nearest` give
        "best": "int64[::1]",  # [words], scratch of the match
        "params": "float64[::1]",  # the policy's parameters, in the order of its spec
        "memory": "int64[::1]",  # [8], the policy's own, all 0 at the start
        "rng": "uint64[::1]",  # [4], the routing stream
    },
)
SIGNATURE = "int64(RouterView, int64)"
define("Route", f"FunctionType({SIGNATURE})")


@kernel(inline="always")
def match_tok(view):
    """Tokens of the longest cached prefix of the prompt on any replica; needs "match"."""
    return view.prompt[0]


@kernel(inline="always")
def prompt_tok(view):
    """Tokens of the prompt."""
    return view.prompt[1]


@kernel(inline="always")
def match_share(view):
    """Share of the prompt that the longest match covers; needs "match"."""
    return view.prompt[0] / view.prompt[1]


@kernel(inline="always")
def nearest(view):
    """Replica with the longest match, by fewest requests in flight, then lowest index; needs "match"."""
    return view.prompt[2]


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
def smallest_and_largest(values):
    """Smallest and largest value."""
    low = values[0]
    high = values[0]
    for k in range(1, values.shape[0]):
        low = min(low, values[k])
        high = max(high, values[k])
    return low, high
