"""Twins of SGLang's router: a tree of tokens with dictionaries, a ring as a sorted list, windows as lists."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.twins.policies import Prompt, View, World, least, twin
from tests.twins.rng import mix64


def ps(seconds: float) -> int:
    """Picoseconds, rounded half up."""
    return int(seconds * 1e12 + 0.5)


# --- the approximate tree -----------------------------------------------------------------------------------


class Node:
    """A token after all before it: who was sent it, and when (counted in insertions)."""

    def __init__(self, parent: Node | None, token: tuple, depth: int):
        self.parent = parent
        self.token = token
        self.depth = depth
        self.children: dict[tuple, Node] = {}
        self.added: dict[int, int] = {}  # tenant -> insertion that brought it here
        self.ended: dict[int, int] = {}  # tenant -> last insertion that ended here
        self.first: int | None = None
        self.is_end = False  # prompts end or part here: the end of a node of the real tree


class ApproximateTree:
    """What each tenant was sent, token by token; a node of the real tree is a stretch up to an `is_end`."""

    def __init__(self) -> None:
        self.root = Node(None, (), 0)
        self.insertions = 0
        self.size: Counter[int] = Counter()

    def insert(self, prompt: Sequence[tuple], tenant: int) -> None:
        """Add a prompt that a tenant is sent."""
        self.insertions += 1
        node = self.root
        for token in prompt:
            if token not in node.children:
                node.is_end |= bool(node.children)
                node.children[token] = Node(node, token, node.depth + 1)
            node = node.children[token]
            node.first = tenant if node.first is None else node.first
            if tenant not in node.added:
                node.added[tenant] = self.insertions
                self.size[tenant] += 1
        node.is_end = True
        node.ended[tenant] = self.insertions

    def deepest(self, prompt: Sequence[tuple]) -> Node:
        """The last token of the longest match with anything any tenant was sent."""
        node = self.root
        for token in prompt:
            if token not in node.children:
                break
            node = node.children[token]
        return node

    def matched_tok(self, prompt: Sequence[tuple], tenant: int) -> int:
        """Tokens of the prompt, from its start, that a tenant was sent and has not lost."""
        node, matched = self.root, 0
        for token in prompt:
            if token not in node.children or tenant not in node.children[token].added:
                break
            node, matched = node.children[token], matched + 1
        return matched

    def cut(self, tenant: int, most: int) -> None:
        """Drop a tenant's leaves, the one used longest ago first, until it has at most so many tokens."""
        while self.size[tenant] > most:
            self._drop(min(self._leaves(tenant), key=lambda node: self._age(node, tenant)), tenant)

    def _age(self, node: Node, tenant: int) -> tuple[int, int, int]:
        """Where no prompt ended goes first, of these the newest, deepest first."""
        return node.ended.get(tenant, 0), -node.added[tenant], -node.depth

    def _leaves(self, tenant: int) -> Iterator[Node]:
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            below = [child for child in node.children.values() if tenant in child.added]
            waiting += below
            if not below and tenant in node.added:
                yield node

    def _drop(self, node: Node, tenant: int) -> None:
        """Take a tenant off a node of the real tree, from its last token up."""
        while True:
            del node.added[tenant]
            node.ended.pop(tenant, None)
            self.size[tenant] -= 1
            above = node.parent
            assert above is not None
            if not node.added:
                above.children = {
                    token: child for token, child in above.children.items() if child is not node
                }
            if above is self.root or above.is_end:
                return
            node = above


class Evicting:
    """A tree that is cut down when its timer has gone off since the last request."""

    def __init__(self, interval_s: float, most: int):
        self.interval_ps = ps(interval_s)
        self.most = most
        self.evictions = 0
        self.tree = ApproximateTree()

    def catch_up(self, now_ps: int, replicas: int) -> None:
        """Evict if it is time."""
        if now_ps // self.interval_ps > self.evictions:
            self.evictions = now_ps // self.interval_ps
            for r in range(replicas):
                self.tree.cut(r, self.most)


def out_of_balance(loads: Sequence[int], params: dict) -> bool:
    """Too many requests more, and too many times as many."""
    apart = max(loads) - min(loads) > params["balance_abs_threshold"]
    return apart and max(loads) > params["balance_rel_threshold"] * min(loads)


class CacheAware:
    """The tree's worker, or a fallback's."""

    def __init__(self, params: dict, world: World):
        self.params = params
        most = int(params["max_tree_size"] / params["chars_per_tok"])
        self.evicting = Evicting(params["eviction_interval_s"], most)
        self.processed: Counter[int] = Counter()

    def choose(self, view: View, request: Prompt) -> int:
        """Match, or fall back; then insert."""
        replicas = len(view.in_flight)
        self.evicting.catch_up(view.now_ps, replicas)
        tree = self.evicting.tree
        loads = view.in_flight if self.params["count_load"] else [0] * replicas
        if out_of_balance(loads, self.params):
            chosen = self.longest_of_idle(loads, request) if self.params["keep_locality"] else None
            if chosen is None:
                chosen = self.least_loaded(loads)
        else:
            node = tree.deepest(request.prompt)
            if node.depth / request.prompt_tok > self.params["cache_threshold"]:
                chosen = node.first if node.first in node.added else min(node.added)
            else:
                chosen = self.fallback(loads)
        assert chosen is not None
        tree.insert(request.prompt, chosen)
        self.processed[chosen] += 1
        return chosen

    def longest_of_idle(self, loads: Sequence[int], request: Prompt) -> int | None:
        """The longest match of those close to the idlest, if any has one."""
        most = min(loads) + self.params["balance_abs_threshold"]
        found = [
            (-self.evicting.tree.matched_tok(request.prompt, r), load, r)
            for r, load in enumerate(loads)
            if load <= most
        ]
        longest = min(found)
        return longest[-1] if longest[0] < 0 else None

    def least_loaded(self, loads: Sequence[int]) -> int:
        return least(loads)

    def fallback(self, loads: Sequence[int]) -> int:
        return self.least_loaded(loads)


twin("sglang_cache_aware_lowest_load")(CacheAware)


@twin("sglang_cache_aware_smallest_tree")
class SmallestTree(CacheAware):
    """The fallback is the worker with the fewest tokens in the tree."""

    def fallback(self, loads: Sequence[int]) -> int:
        return least([self.evicting.tree.size[r] for r in range(len(loads))])


@twin("sglang_cache_aware_processed")
class ByProcessed(CacheAware):
    """Equal loads go by what was sent so far."""

    def least_loaded(self, loads: Sequence[int]) -> int:
        return least([(load, self.processed[r]) for r, load in enumerate(loads)])


# --- rings --------------------------------------------------------------------------------------------------


class Ring:
    """Virtual nodes on a circle of 2^43 places."""

    def __init__(self, nodes: int):
        self.nodes = nodes
        self.points: list[tuple[int, int]] = []

    def walk(self, key: int, replicas: int) -> Iterator[int]:
        """Owners of the nodes from a key on, clockwise, once around."""
        if len(self.points) != replicas * self.nodes:
            every = ((r, k) for r in range(replicas) for k in range(self.nodes))
            self.points = sorted((mix64((r << 32) + k) >> 21, r) for r, k in every)
        start = bisect_left(self.points, (mix64(-1 - key) >> 21, 0))
        for step in range(len(self.points)):
            yield self.points[(start + step) % len(self.points)][1]

    def owner(self, key: int, replicas: int) -> int:
        """Who a key belongs to."""
        return next(self.walk(key, replicas))


def session_key(request: Prompt) -> int:
    """Odd for sessions, even for requests without one."""
    return 2 * request.session + 1 if request.session >= 0 else 2 * request.index


def prefix_key(request: Prompt, world: World, tokens: int) -> int:
    """The first of all requests whose prompt begins as this one does."""
    start = list(request.prompt[:tokens])
    return next(other.index for other in world.prompts if list(other.prompt[:tokens]) == start)


@twin("sglang_prefix_hash")
class PrefixHash:
    """A ring of prefixes, as long as its worker is not too far above the mean."""

    def __init__(self, params: dict, world: World):
        self.params, self.world = params, world
        self.ring = Ring(150)

    def choose(self, view: View, request: Prompt) -> int:
        """The ring's worker, or the least loaded that passes."""
        replicas, total = len(view.in_flight), sum(view.in_flight)
        first = self.ring.owner(prefix_key(request, self.world, self.params["prefix_tok"]), replicas)
        most = self.params["load_factor"] * ((total + 1) / replicas)
        passing = [r for r in range(replicas) if total == 0 or view.in_flight[r] <= most]
        if first in passing or not passing:
            return first
        return min(passing, key=lambda r: (view.in_flight[r], r))


# --- power_of_two -------------------------------------------------------------------------------------------


@twin("sglang_power_of_two")
class PowerOfTwo:
    """Two distinct workers, the second drawn from the others; by KV use, or by requests."""

    def __init__(self, params: dict, world: World):
        self.params, self.draw = params, world.draw

    def choose(self, view: View, request: Prompt) -> int:
        """The better of the two."""
        replicas = list(range(len(view.in_flight)))
        if len(replicas) == 1:
            return 0
        measure = view.kv_used if self.params["reports"] else view.in_flight
        first = replicas.pop(self.draw.below(len(replicas)))
        second = replicas[self.draw.below(len(replicas))]
        return first if measure[first] <= measure[second] else second


# --- bucket -------------------------------------------------------------------------------------------------


@twin("sglang_bucket")
class Bucket:
    """Ranges of lengths, (longest prompt of each, the last open); a window of (time, chars, worker)."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.period_ps = ps(params["adjust_interval_s"])
        self.window: list[tuple[int, int, int]] = []
        self.longest: list[float] = []
        self.share = 0
        self.adjustments = 0

    def choose(self, view: View, request: Prompt) -> int:
        """Adjust if it is time, choose, move the window."""
        replicas = len(view.in_flight)
        if len(self.longest) != replicas:
            width = 4096 // replicas
            self.longest = [*((r + 1) * width - 1 for r in range(replicas - 1)), float("inf")]
        if view.now_ps // self.period_ps > self.adjustments:
            self.adjustments = view.now_ps // self.period_ps
            self.adjust(replicas)
        chars = int(request.prompt_tok * self.params["chars_per_tok"] + 0.5)
        got = [sum(c for _, c, worker in self.window if worker == r) for r in range(replicas)]
        most, fewest = max(got), min(got)
        too_far = most - fewest > self.params["balance_abs_threshold"]
        if too_far and most > self.params["balance_rel_threshold"] * fewest:
            chosen = least(got)
        else:
            chosen = next(r for r in range(replicas) if chars <= self.longest[r])
        self.window = [row for row in self.window if row[0] >= view.now_ps - self.period_ps]
        self.window.append((view.now_ps, chars, chosen))
        return chosen

    def adjust(self, replicas: int) -> None:
        """Cut the ranges anew if a worker's share has changed by more than a factor of two."""
        share = sum(chars for _, chars, _ in self.window) // replicas
        steady = self.share > 0 and share <= 2 * self.share and self.share <= 2 * share
        if steady or not self.window:
            return
        self.share = share
        lengths = sorted(chars for _, chars, _ in self.window)
        begin, self.longest = 0, []
        for _ in range(replicas - 1):
            taken: list[int] = []
            while lengths and (not taken or sum(taken) < share):
                taken.append(lengths.pop(0))
            reached = bool(taken) and sum(taken) >= share
            end = taken[-1] if reached and taken[-1] > begin else begin + share
            self.longest.append(end)
            begin = end + 1
        self.longest.append(float("inf"))


# --- manual -------------------------------------------------------------------------------------------------


class Sessions:
    """Where sessions are, and when each was used last."""

    def __init__(self) -> None:
        self.where: dict[int, tuple[int, int]] = {}

    def replica(self, session: int) -> int | None:
        """The replica of a session that is known."""
        return self.where[session][0] if session in self.where else None

    def keep(self, session: int, replica: int, now_ps: int) -> None:
        """Remember one, unless it is no session."""
        if session >= 0:
            self.where[session] = replica, now_ps

    def drop(self, until_ps: int) -> None:
        """Forget those not used after an instant."""
        self.where = {key: place for key, place in self.where.items() if place[1] > until_ps}

    def counts(self, replicas: int) -> list[int]:
        """Sessions of each replica."""
        found = Counter(replica for replica, _ in self.where.values())
        return [found[r] for r in range(replicas)]


@twin("sglang_manual")
class Manual:
    """Sessions stay; new ones by the assignment."""

    def __init__(self, params: dict, world: World):
        self.params, self.draw = params, world.draw
        self.sessions = Sessions()
        self.sweeps = 0

    def choose(self, view: View, request: Prompt) -> int:
        """The session's worker, or a new one's."""
        sweep_ps = ps(self.params["sweep_s"])
        if view.now_ps // sweep_ps > self.sweeps:
            self.sweeps = view.now_ps // sweep_ps
            self.sessions.drop(self.sweeps * sweep_ps - ps(self.params["idle_s"]))
        chosen = self.sessions.replica(request.session)
        if chosen is None:
            chosen = self.assign(view)
        self.sessions.keep(request.session, chosen, view.now_ps)
        return chosen

    def assign(self, view: View) -> int:
        """Any worker, or any of the best."""
        replicas = len(view.in_flight)
        if self.params["assignment"] == "random":
            return self.draw.below(replicas)
        by_load = self.params["assignment"] == "min_load"
        measure = view.in_flight if by_load else self.sessions.counts(replicas)
        best = [r for r in range(replicas) if measure[r] == min(measure)]
        return best[self.draw.below(len(best))] if len(best) > 1 else best[0]


# --- least_load ---------------------------------------------------------------------------------------------


@twin("sglang_least_load")
class LeastLoad:
    """Time to drain, with a barrier by KV use."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.sent: Counter[int] = Counter()
        self.polls = -1

    def choose(self, view: View, request: Prompt) -> int:
        """Least score; what is sent counts until the next poll."""
        p = self.params
        if view.now_ps // ps(p["scrape_s"]) != self.polls:
            self.polls = view.now_ps // ps(p["scrape_s"])
            self.sent.clear()
        scores = []
        for r in range(len(view.in_flight)):
            k = min(view.kv_used[r] * (1.0 / view.kv_blocks), 0.999)
            queued = view.waiting[r] * p["mean_prefill_tok"] + self.sent[r]
            scores.append(queued * (1.0 / p["throughput_tok_s"]) + p["kv_pressure_s"] * k / (1.0 - k))
        chosen = least(scores)
        self.sent[chosen] += request.prompt_tok
        return chosen
