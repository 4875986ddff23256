"""Twins of hash rings with bounded loads, of sessions that stick and of intervals of sizes."""

from __future__ import annotations

import math

from tests.twins.policies import Prompt, View, World, least, twin
from tests.twins.policies.sglang import Ring, Sessions, prefix_key, ps, session_key


@twin("consistent_hash_bounded")
class Bounded:
    """Walk on while a replica is full."""

    def __init__(self, params: dict, world: World):
        self.params, self.world = params, world
        self.ring = Ring(100)

    def choose(self, view: View, request: Prompt) -> int:
        """The first on the way that may have one more."""
        replicas = len(view.in_flight)
        most = math.ceil(self.params["factor"] * (sum(view.in_flight) + 1) / replicas)
        if self.params["key"] == "session":
            key = session_key(request)
        else:
            key = prefix_key(request, self.world, self.params["prefix_tok"])
        return next(r for r in self.ring.walk(key, replicas) if view.in_flight[r] + 1 <= most)


@twin("session_sticky")
class Sticky:
    """Sessions stay; new ones go to the least loaded."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.sessions = Sessions()

    def choose(self, view: View, request: Prompt) -> int:
        """The session's replica, or the least loaded."""
        self.sessions.drop(view.now_ps - ps(self.params["idle_s"]))
        chosen = self.sessions.replica(request.session)
        if chosen is None:
            chosen = least(view.in_flight)
        self.sessions.keep(request.session, chosen, view.now_ps)
        return chosen


@twin("size_interval")
class SizeInterval:
    """By the share of all work so far that is in shorter prompts."""

    def __init__(self, params: dict, world: World):
        self.params, self.draw = params, world.draw
        self.seen: list[int] = []

    def choose(self, view: View, request: Prompt) -> int:
        """Find the interval."""
        replicas, size = len(view.in_flight), request.prompt_tok
        if self.params["cuts"] == "geometric":
            cut, cuts = self.params["first_cut_tok"], []
            for _ in range(replicas - 1):
                cuts.append(cut)
                cut *= self.params["ratio"]
            return sum(size > cut for cut in cuts)
        self.seen.append(size)
        mine = self.interval(size)
        shorter = sum(tok for tok in self.seen if tok < mine[0])
        same = sum(tok for tok in self.seen if mine[0] <= tok < mine[1])
        share = (shorter + self.draw.uniform() * same) / sum(self.seen)
        return min(int(share * replicas), replicas - 1)

    def interval(self, size: int) -> tuple[int, int]:
        """Lengths that are told apart no further: sixteen intervals to a doubling, single ones below 32."""
        width = max(1, 2 ** (size.bit_length() - 5))
        low = size // width * width
        return low, low + width
