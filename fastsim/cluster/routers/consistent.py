"""Policies by what stays the same: hash rings with bounded loads, sessions that stick, intervals of sizes."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fastsim._jit import kernel
from fastsim.cluster.routers.ranges import Count, Positive, Seconds
from fastsim.cluster.routers.registry import router
from fastsim.cluster.routers.ring import (
    next_node,
    node_after,
    node_owner,
    prefix_key,
    prefix_room,
    session_key,
    unkept_tree,
)
from fastsim.cluster.routers.sessions import drop_sessions, keep_session, replica_of, session_room
from fastsim.cluster.routers.view import NOW_PS, in_ps, least_loaded, prompt_tok, session
from fastsim.rng import uniform

# --- bounded loads ------------------------------------------------------------------------------------------

_RING_NODES = 100


class BoundedLoads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `consistent_hash_bounded`."""

    factor: Annotated[float, msgspec.Meta(ge=1.0)] = 1.25  # of the mean load, the request included
    key: Literal["session", "prefix"] = "session"
    prefix_tok: Count = 256


@router(
    "consistent_hash_bounded",
    params=BoundedLoads,
    source="Mirrokni et al., SODA 2018",
    memory=lambda params, size: prefix_room(size.replicas, _RING_NODES, size.runs),
    tree=unkept_tree,
)
def consistent_hash_bounded(view, request):
    """A hash ring on which a key goes on clockwise to the first replica below 1.25 times the mean load.

    Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads": no replica may have more than
    ceil(factor x (requests in flight + 1) / replicas). Keys are sessions (without one, a request's own) or
    the prompt's first tokens. 100 virtual nodes a replica.
    """
    load = view.load
    replicas = load.shape[0]
    total = 1
    for r in range(replicas):
        total += load[r]
    most = view.params[0] * total / replicas
    if view.params[1] == 0:
        key = session_key(view, request)
    else:
        key = prefix_key(view, request, int(view.params[2]), _RING_NODES)
    node = next_node(view, _RING_NODES, key)
    # The bound is rounded up: load + 1 <= ceil(most) is load < most.
    while load[node_owner(view, node)] >= most:
        node = node_after(view, _RING_NODES, node)
    return node_owner(view, node)


# --- sessions -----------------------------------------------------------------------------------------------


class Sticky(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `session_sticky`."""

    idle_s: Seconds = 3600.0  # after which a session is forgotten


@router("session_sticky", params=Sticky, memory=session_room)
def session_sticky(view, request):
    """A session stays with the replica that was least loaded at its first request, until idle for an hour.

    Requests of unknown session go to the least loaded replica; ties to the lowest index.
    """
    now = view.prompt[NOW_PS]
    drop_sessions(view, now - in_ps(view.params[0]))
    known = session(view)
    r = replica_of(view, known) if known >= 0 else -1
    if r < 0:
        r = least_loaded(view)
    if known >= 0:
        keep_session(view, known, r, now)
    return r


# --- intervals of sizes -------------------------------------------------------------------------------------


class SizeInterval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of `size_interval`."""

    cuts: Literal["equal_work", "geometric"] = "equal_work"
    first_cut_tok: Positive = 512.0  # geometric: longest prompt of the first replica,
    ratio: Annotated[float, msgspec.Meta(ge=1.0)] = 2.0  # and of each next, by the one before


_FINE = 4  # bits: an octave has 2^4 bins
_BINS = 1024  # enough for 2^63 tokens


@kernel
def _bin_of(tokens):
    """Bin of a length: exact up to 31 tokens, then 16 bins an octave."""
    octave = 0
    while tokens >> octave >= 2 << _FINE:
        octave += 1
    return (octave << _FINE) + (tokens >> octave)


@kernel
def _add_to(memory, place, tokens):
    """Add to a bin of a Fenwick tree whose places count from 1."""
    while place <= _BINS:
        memory[place] += tokens
        place += place & -place


@kernel
def _sum_to(memory, place):
    """Sum of the first bins."""
    total = 0
    while place > 0:
        total += memory[place]
        place -= place & -place
    return total


@router(
    "size_interval",
    params=SizeInterval,
    blind=True,
    source="Harchol-Balter, Crovella and Murta 1999",
    memory=lambda params, size: _BINS + 1,
)
def size_interval(view, request):
    """Short prompts to the first replica, longer ones to the next, so that each gets as many tokens.

    SITA-E, from "On choosing a task assignment policy for a distributed server system" (JPDC 59), with the
    prompt's tokens as size: the lengths seen so far say how much of all work is in shorter prompts; lengths
    of one bin (exact up to 31 tokens, then 16 an octave) are shared out at random. "geometric": prompts up to
    first_cut_tok x ratio^k tokens belong to replica k, longer ones to the last.
    """
    replicas = view.load.shape[0]
    tokens = prompt_tok(view)
    if view.params[0] == 1:
        r = 0
        cut = view.params[1]
        while r < replicas - 1 and tokens > cut:
            r += 1
            cut *= view.params[2]
        return r
    place = 1 + _bin_of(tokens)
    _add_to(view.memory, place, tokens)
    shorter = _sum_to(view.memory, place - 1)
    same = _sum_to(view.memory, place) - shorter
    share = (shorter + uniform(view.rng) * same) / _sum_to(view.memory, _BINS)
    return min(int(share * replicas), replicas - 1)
