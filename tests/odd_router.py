"""A policy that takes everything it may know into account, and its twin: whatever differs shows in a choice.

It mixes all figures into one number and lets that decide: a replica, blocks to be sent along, now and then
to refuse or to hold a request. What it hears goes into a number that it remembers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

import fastsim
from fastsim.cluster.routers import ROUTERS
from fastsim.cluster.routers.view import (
    HOLD,
    MATCH_TOK,
    NEAREST,
    NOW_PS,
    OUTPUT_TOK,
    PROMPT_TOK,
    REJECT,
    SEND_BLK,
    SEND_PS,
    SESSION,
    most_replicas,
    replica_room,
)
from fastsim.rng import below
from tests.twins import policies as twins

MODULUS = 1_000_003
CACHE = 3


class Odd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often, in a thousand, it refuses, holds and sends along; which figures it takes into account."""

    rejects: int = 0
    holds: int = 0
    sends: int = 0
    work: bool = False
    match: bool = False
    matches: bool = False
    metrics: bool = False


def odd(view, request):
    """Something odd."""
    params = view.params
    mixed = view.memory[0]
    for r in range(view.load.shape[0]):
        mixed = (31 * mixed + 7 * view.load[r] + view.memory[2 + r]) % MODULUS
        if params[3]:
            mixed += 3 * view.work[r]
        if params[5]:
            mixed += 17 * view.match[r]
        if params[6]:
            mixed += 5 * view.waiting[r] + 11 * view.running[r] + 13 * view.kv_used[r]
    if params[4]:
        mixed += 19 * view.prompt[MATCH_TOK] + 23 * view.prompt[NEAREST]
    mixed += view.prompt[NOW_PS] % 1009 + 29 * view.prompt[SESSION] + 37 * view.prompt[PROMPT_TOK]
    mixed += 41 * view.prompt[OUTPUT_TOK] + below(view.rng, 7) + int(view.real[0]) % 1021
    view.memory[1] += 1
    mixed = (101 * mixed + 43 * view.memory[1] + request) % MODULUS
    if mixed % 1000 < params[1]:
        return HOLD
    mixed //= 3
    if mixed % 1000 < params[0]:
        return REJECT
    mixed //= 3
    if mixed % 1000 < params[2]:
        view.prompt[SEND_BLK] = mixed % 7 * (1 + mixed % 3)
        view.prompt[SEND_PS] = mixed % 5 * (mixed % 1009) * (mixed % 100_003)
    return mixed % view.load.shape[0]


def heard(view, kind, what, replica, value):
    """Remember everything; of a cache how much of each run it holds now, and of all together."""
    memory = view.memory
    if kind == CACHE:
        last = 2 + (what + 1) * most_replicas(view) + replica
        if value != memory[last]:
            view.real[0] = view.prompt[NOW_PS]
        memory[2 + replica] += value - memory[last]
        memory[last] = value
    else:
        mixed = 31 * memory[0] + kind + 3 * what + 5 * replica + value % 1013
        memory[0] = (mixed + view.prompt[NOW_PS] % 1009) % MODULUS
    return 0


class OddTwin:
    """The same, of a twin's view."""

    def __init__(self, params: dict, world: twins.World):
        self.params = params
        self.world = world
        self.memory = 0
        self.turn = 0
        self.changed_ps = 0
        self.held: dict[int, dict[twins.Run, int]] = {r: {} for r in range(world.replicas)}

    def choose(self, view: twins.View, request: twins.Prompt) -> int | str:
        """Mix everything, and decide by that."""
        params = self.params
        mixed = self.memory
        for r in range(len(view.in_flight)):
            mixed = (31 * mixed + 7 * view.in_flight[r] + sum(self.held[r].values())) % MODULUS
            if params["work"]:
                mixed += 3 * view.work[r]
            if params["matches"]:
                mixed += 17 * view.matched_tok(r)
            if params["metrics"]:
                mixed += 5 * view.waiting[r] + 11 * view.running[r] + 13 * view.kv_used[r]
        if params["match"]:
            nearest = twins.nearest(view)
            mixed += 19 * view.matched_tok(nearest) + 23 * nearest
        mixed += view.now_ps % 1009 + 29 * request.session + 37 * request.prompt_tok
        mixed += 41 * request.output_tok + self.world.draw.below(7) + self.changed_ps % 1021
        self.turn += 1
        mixed = (101 * mixed + 43 * self.turn + request.index) % MODULUS
        if mixed % 1000 < params["holds"]:
            return twins.HOLD
        mixed //= 3
        if mixed % 1000 < params["rejects"]:
            return twins.REJECT
        mixed //= 3
        if mixed % 1000 < params["sends"]:
            view.send(0, mixed % 7 * (1 + mixed % 3), mixed % 5 * (mixed % 1009) * (mixed % 100_003))
        return mixed % len(view.in_flight)

    def heard(self, now_ps: int, kind: str, what, replica: int, value: int) -> None:
        """Remember."""
        if kind == twins.CACHE:
            self.changed_ps = now_ps
            self.held[replica][what] = value
        else:
            number = {twins.FIRST_TOKEN: 1, twins.FINISHED: 2}[kind]
            mixed = 31 * self.memory + number + 3 * what + 5 * replica + value % 1013
            self.memory = (mixed + now_ps % 1009) % MODULUS


class DeafTwin(OddTwin):
    """The same without ears."""

    heard = None  # pyright: ignore[reportAssignmentType]


VARIANTS = {  # what each needs, and whether it listens
    "odd": (("work", "match", "matches", "metrics", "evictions"), True),
    "odd_deaf": (("work", "match", "metrics"), False),
    "odd_plain": ((), True),
}


def odd_params(name: str, **often: int) -> dict:
    """Parameters of a variant: it takes into account what it needs."""
    needs = VARIANTS[name][0]
    return {**often, **{need: True for need in needs if need != "evictions"}}


@contextmanager
def odd_routers() -> Iterator[None]:
    """Register the variants and their twins, and forget them afterwards."""
    for name, (needs, listens) in VARIANTS.items():
        fastsim.router(
            name,
            needs=needs,
            params=Odd,
            heard=heard if listens else None,
            real=1,
            memory=lambda params, size: replica_room(size.replicas) * (2 + 12 * size.requests) + 2,
        )(odd)
        twins.POLICIES[name] = OddTwin if listens else DeafTwin
    yield
    for name in VARIANTS:
        del ROUTERS[name], twins.POLICIES[name]
