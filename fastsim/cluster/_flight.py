"""Kernels of prompts in flight: what replicas were sent and have not ended, which they hold or will compute.

A router knows of a request that it sent itself at once, of another router's when the view tells of it, and
that either has ended when the view tells of that. Requests are counted by run and replica, so that a run
counts as long as any of them has it, whatever is evicted meanwhile. The view has the counts, as a router may
know of its own requests only.

A prompt ends with a run, or where the answer begins that is the rest of one. So of a run a prompt covers
either all blocks or as many as any other prompt does that covers a part.
"""

from __future__ import annotations

from fastsim._jit import kernel
from fastsim.cluster._state import BITS, BLOCK, PATH, PROMPT, SHARED

_PARTLY = 1 << 31  # one request of those that cover a part, in a count of either kind


@kernel(inline="always")
def knows_of_flights(view):
    """Whether a router takes prompts in flight for cached."""
    return view.flights.shape[0] > 0


@kernel
def count_flight(s, view, i, r, by):
    """Add request i, sent to replica r, to those in flight (`by` = 1), or take it off (-1)."""
    path = s.req[i, PATH]
    left = min(s.req[i, PROMPT] // s.cfg[BLOCK], s.req[i, SHARED])
    word = r // BITS
    bit = 1 << (r % BITS)
    partly = (view.flying.shape[1] >> 1) + word
    while left > 0:
        run = s.path[path]
        if left >= s.run_len[run]:
            view.flights[run, r] += by
        else:
            view.flights[run, r] += by * _PARTLY
            view.flown_blk[run] = left
        count = view.flights[run, r]
        view.flying[run, word] &= ~bit
        view.flying[run, partly] &= ~bit
        if count % _PARTLY > 0:
            view.flying[run, word] |= bit
        elif count > 0:
            view.flying[run, partly] |= bit
        left -= s.run_len[run]
        path += 1
