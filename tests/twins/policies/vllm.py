"""Twins of vLLM's router and of the balancer inside vLLM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tests.twins.policies import Prompt, View, World, least, stateless, twin
from tests.twins.policies.sglang import Evicting, Ring, Sessions, out_of_balance, ps, session_key
from tests.twins.rng import mix64


@twin("vllm_cache_aware")
class CacheAware:
    """The session's worker, the least loaded with the match, or the least loaded."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.evicting = Evicting(params["eviction_interval_s"], params["max_tree_size"])
        self.sessions = Sessions()

    def choose(self, view: View, request: Prompt) -> int:
        """Choose, remember the session, insert."""
        self.evicting.catch_up(view.now_ps, len(view.in_flight))
        self.sessions.drop(view.now_ps - ps(self.params["session_idle_s"]))
        loads = view.in_flight if self.params["count_load"] else [0] * len(view.in_flight)
        chosen = self.find(loads, request)
        self.sessions.keep(request.session, chosen, view.now_ps)
        self.evicting.tree.insert(request.prompt, chosen)
        return chosen

    def find(self, loads: Sequence[int], request: Prompt) -> int:
        if out_of_balance(loads, self.params):
            return least(loads)
        known = self.sessions.replica(request.session)
        if known is not None:
            return known
        node = self.evicting.tree.deepest(request.prompt)
        if node.depth / request.prompt_tok > self.params["cache_threshold"]:
            return min(node.added, key=lambda r: (loads[r], r))
        return least(loads)


@twin("vllm_consistent_hash")
class ConsistentHash:
    """A ring of sessions."""

    def __init__(self, params: dict, world: World):
        self.ring = Ring(160)

    def choose(self, view: View, request: Prompt) -> int:
        """The ring's worker."""
        return self.ring.owner(session_key(request), len(view.in_flight))


def weight(key: int, r: int) -> int:
    """42 bits of a session and a worker."""
    z = (mix64(key) + r * 0x9E3779B97F4A7C15) % 2**64
    return (z ^ (z >> 32)) * 0xBF58476D1CE4E5B9 % 2**64 >> 22


@twin("vllm_sticky_least_loaded")
class StickyLeastLoaded:
    """Sessions stay; new ones go where there are fewest."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.sessions = Sessions()
        self.swept_ps = 0

    def choose(self, view: View, request: Prompt) -> int:
        """The session's worker, or one with fewest sessions."""
        if view.now_ps - self.swept_ps >= ps(self.params["sweep_s"]):
            self.swept_ps = view.now_ps
            self.sessions.drop(view.now_ps - ps(self.params["idle_s"]))
        chosen = self.sessions.replica(request.session)
        if chosen is None:
            counts = self.sessions.counts(len(view.in_flight))
            key = session_key(request)
            chosen = min(range(len(counts)), key=lambda r: (counts[r], -weight(key, r), -r))
        self.sessions.keep(request.session, chosen, view.now_ps)
        return chosen


@stateless("vllm_kv_aware")
def kv_aware(view: View, request: Prompt, params: dict, world: World) -> int:
    """Blocks to compute and blocks in use."""
    missing = [request.prompt_tok - view.matched_tok(r) for r in range(len(view.in_flight))]
    weight = params["overlap_weight"] / params["block_tok"]
    return least([weight * tok + view.kv_used[r] for r, tok in enumerate(missing)])


@twin("vllm_dp_balancer")
class DataParallel:
    """Requests by the larger of two counts, and a penalty for queues where memory is short."""

    def __init__(self, params: dict, world: World):
        self.params, self.world = params, world
        self.start = 0

    def choose(self, view: View, request: Prompt) -> int:
        """Least score, found from a place that moves on."""
        engines = len(view.in_flight)
        order = [(self.start + step) % engines for step in range(engines)]
        self.start += 1
        return min(order, key=lambda r: self.score(view, r))

    def score(self, view: View, r: int) -> float:
        waiting, running = view.waiting[r], view.running[r]
        over = max(0.0, view.kv_used[r] * (1.0 / view.kv_blocks) - self.params["kv_threshold"])
        requests = max(self.world.routers * view.in_flight[r], waiting + running)
        return requests + waiting * self.params["kv_weight"] * over


@twin("vllm_dp_balancer_before")
class DataParallelBefore:
    """Weighted counts of a snapshot, corrected by what was sent since."""

    def __init__(self, params: dict, world: World):
        self.params, self.world = params, world
        self.since: Counter[int] = Counter()
        self.snapshot = -1

    def choose(self, view: View, request: Prompt) -> int:
        """Least score."""
        number = view.now_ps // ps(self.params["scrape_s"])
        if number != self.snapshot:
            self.snapshot = number
            self.since.clear()
        waiting = [count + self.world.routers * self.since[r] for r, count in enumerate(view.waiting)]
        weight = self.params["waiting_weight"]
        chosen = least([weight * count + view.running[r] for r, count in enumerate(waiting)])
        self.since[chosen] += 1
        return chosen
