"""Preble's policies as the paper has them, in lists of all that ever happened, looked through each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from tests.twins.policies import CACHE, FINISHED, FIRST_TOKEN, Prompt, Run, View, World, least, twin
from tests.twins.policies.preble_forest import Node, decode_ps, lost_nodes, nodes_of, prefill_ps

INFINITY = float("inf")


@dataclass
class Sent:
    """A request that was sent."""

    request: Prompt
    path: list[Node]
    replica: int
    at_ps: int
    prefill_ps: int
    decode_ps: int
    hit_tok: int
    key: Node | None
    first_ps: int | None = None
    wait_ps: int = 0
    done_ps: int | None = None


@dataclass
class Split:
    """A prefix that was given more replicas."""

    at_ps: int
    replicas: set[int]
    share_ps: dict[int, int]
    homes: dict[Node, int] = field(default_factory=dict)


@twin("preble")
@twin("e2")
class Preble:
    """Algorithms 1 and 2, rebalancing, pairing and autoscaling."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.world = world
        self.joined = world.replicas  # by now: those that have not are not seen
        self.paths = nodes_of(world)
        self.horizon_ps = int(params["horizon_s"] * 1e12)
        self.sent: dict[int, Sent] = {}
        self.on: dict[Node, set[int]] = {}
        self.told: dict[tuple[Run, int], int] = {}
        self.used: list[list[Node]] = [[] for _ in range(world.replicas)]  # by each, the oldest first
        self.size: dict[Node, int] = {}
        self.depth: dict[Node, int] = {}
        self.splits: dict[Node, Split] = {}
        self.costs: list[float] = []

    # --- what is known --------------------------------------------------------------------------------------

    def window(self, replica: int | None = None) -> list[Sent]:
        """Requests sent in the last H."""
        rows = (row for row in self.sent.values() if row.at_ps + self.horizon_ps > self.now)
        return [row for row in rows if replica is None or row.replica == replica]

    def mean_output(self, replica: int) -> float:
        ended = [
            row.request.output_tok
            for row in self.sent.values()
            if (row.replica == replica or self.params["output_mean"] == "all")
            and row.done_ps is not None
            and row.done_ps + self.horizon_ps > self.now
        ]
        return sum(ended) / len(ended) if ended else self.params["output_tok"]

    def load(self, replica: int) -> float:
        """L."""
        rows = self.window(replica)
        decode_s = sum(row.decode_ps for row in rows) * 1e-12
        return sum(row.prefill_ps for row in rows) * 1e-12 + self.mean_output(replica) * decode_s

    def held(self, replica: int, path: list[Node]) -> int:
        """Tokens of the path that a replica caches from its start."""
        tokens = 0
        for node in path:
            if replica not in self.on.get(node, ()):
                break
            tokens += self.size[node]
        return tokens

    def price(self, tokens: int, context: int) -> int:
        context = context if self.params["attend_cached"] else tokens
        return prefill_ps(self.world, self.params["times"], tokens, context)

    def prefill(self, replica: int) -> int:
        """P in picoseconds."""
        hit = min(self.held(replica, self.path), self.request.prompt_tok)
        return self.price(self.request.prompt_tok - hit, self.request.prompt_tok)

    def eviction(self, replica: int) -> float:
        """M."""
        rows = self.window(replica)
        if not rows:
            return 0.0
        room = self.request.prompt_tok - min(self.held(replica, self.path), self.request.prompt_tok)
        if not self.params["always_full"]:
            room -= self.capacity() - sum(self.size[node] for node in self.used[replica])
        cost_ps = 0
        for node in self.used[replica]:
            if room <= 0:
                break
            if node not in self.path:
                sharing = sum(node in row.path for row in rows)
                cost_ps += self.price(self.size[node], self.depth[node]) * sharing
                room -= self.size[node]
        return cost_ps * 1e-12 / len(rows)

    def capacity(self) -> int:
        return self.world.kv_blocks * self.world.block_tok

    def cost(self, replica: int) -> float:
        params = self.params
        cost = self.load(replica) if params["load_cost"] else 0.0
        cost += self.prefill(replica) * 1e-12 if params["prefill_cost"] else 0.0
        return cost + (self.eviction(replica) if params["eviction_cost"] else 0.0)

    def cheapest(self, among: set[int]) -> int:
        self.costs = [self.cost(r) if r in among else INFINITY for r in range(self.joined)]
        return least(self.costs)

    # --- the decision ---------------------------------------------------------------------------------------

    def choose(self, view: View, request: Prompt) -> int:
        self.now, self.request = view.now_ps, request
        self.joined = len(view.in_flight)
        nodes = self.paths[request.index]
        self.path = [node for node, _ in nodes]
        self.costs = []
        depth, key, key_depth = 0, None, 0
        for node, tokens in nodes:
            if tokens > depth:
                key, key_depth = node, depth + tokens
            depth += tokens
            self.size[node], self.depth[node] = tokens, depth
        for node in list(self.splits):
            if not any(row.key == node for row in self.window()):
                del self.splits[node]
        having, cached, matched = set(range(self.joined)), 0, []
        for node in self.path:
            if not having & self.on.get(node, set()):
                break
            having &= self.on[node]
            cached += self.size[node]
            matched.append(node)
        cached_tok = min(cached, request.prompt_tok)
        if self.params["exploit"] and request.prompt_tok - cached_tok < cached_tok:
            if self.params["longest"] == "largest":
                largest = matched.index(max(matched, key=self.size.__getitem__))
                having = set.intersection(*(self.on[node] for node in matched[: largest + 1]))
            replica = self.exploit(having, key, key_depth <= cached)
        else:
            replica = self.explore()
        self.send(replica, key)
        return replica

    def exploit(self, having: set[int], key: Node | None, key_matched: bool) -> int:
        assert key is not None
        scales = self.params["autoscale"] and key_matched
        replica = self.part(key) if scales and key in self.splits else self.cheapest(having)
        if self.params["rebalance"]:
            loads = [self.load(r) for r in range(self.joined)]
            if loads[replica] == max(loads) and max(loads) > self.params["th_bal"] * min(loads):
                replica = least(loads)
        if scales and self.doubled(key) and self.grow(key):
            replica = self.part(key)
        return replica

    def explore(self) -> int:
        if self.params["pairing"]:
            ratios = [self.decode_ratio(r) for r in range(self.joined)]
            if float(max(ratios)) > self.params["imbal_r"]:
                return ratios.index(max(ratios))
        return self.cheapest(set(range(self.joined)))

    def decode_ratio(self, replica: int) -> Fraction:
        if self.params["decode_ratio"] == "hits":
            rows = self.window(replica)
            whole, part = sum(row.request.prompt_tok for row in rows), sum(row.hit_tok for row in rows)
        else:
            out = [row for row in self.sent.values() if row.replica == replica and row.done_ps is None]
            whole, part = len(out), sum(row.first_ps is not None for row in out)
        return Fraction(part, whole) if whole else Fraction(0)

    # --- autoscaling ----------------------------------------------------------------------------------------

    def doubled(self, key: Node) -> bool:
        split = self.splits.get(key)
        if split and split.at_ps + self.horizon_ps > self.now:
            return False
        older, newer = [], []
        for row in self.sent.values():
            if row.key != key or row.first_ps is None or row.first_ps + self.horizon_ps <= self.now:
                continue
            half = newer if row.first_ps + self.horizon_ps // 2 > self.now else older
            half.append(row.wait_ps)
        if len(older) < 5 or len(newer) < 5:
            return False
        mean = sum(newer) * 1e-12 / len(newer)
        return mean >= self.params["least_wait_s"] and mean >= 2.0 * (sum(older) * 1e-12 / len(older))

    def grow(self, key: Node) -> bool:
        before = self.splits[key].replicas if key in self.splits else set(self.on.get(key, ()))
        others = [r for r in range(self.joined) if r not in before]
        if not others:
            return False
        lightest = min(others, key=lambda r: (self.load(r), r))
        self.splits[key] = Split(self.now, before | {lightest}, dict.fromkeys(range(self.world.replicas), 0))
        return True

    def part(self, key: Node) -> int:
        """Replica of the part of a split prefix that the request belongs to."""
        split = self.splits[key]
        below = self.path[self.path.index(key) + 1 :]
        if below and below[0] in split.homes:
            return split.homes[below[0]]
        replica = min(split.replicas, key=lambda r: (split.share_ps[r], r))
        if below:
            split.homes[below[0]] = replica
        return replica

    # --- what follows ---------------------------------------------------------------------------------------

    def send(self, replica: int, key: Node | None) -> None:
        request = self.request
        row = Sent(
            request,
            self.path,
            replica,
            self.now,
            self.prefill(replica),
            decode_ps(self.world, self.params["times"], request.prompt_tok),
            min(self.held(replica, self.path), request.prompt_tok),
            key,
        )
        if key in self.splits:
            work_ps = row.prefill_ps + int(self.mean_output(replica) * row.decode_ps)
            self.splits[key].share_ps[replica] += work_ps
        self.sent[request.index] = row
        self.insert(row)

    def insert(self, row: Sent) -> None:
        used = self.used[row.replica]
        for node in reversed(row.path):
            self.on.setdefault(node, set()).add(row.replica)
            if node in used:
                used.remove(node)
            used.append(node)
        while sum(self.size[node] for node in used) > self.capacity():
            used.pop(0)

    def heard(self, now_ps, kind, what, replica, value) -> None:
        if kind == FIRST_TOKEN and self.sent[what].first_ps is None:
            self.sent[what].first_ps, self.sent[what].wait_ps = now_ps, value
        elif kind == FINISHED:
            self.sent[what].done_ps = now_ps
            self.insert(self.sent[what])
        elif kind == CACHE and self.params["notices"]:
            out = [row for row in self.sent.values() if row.replica == replica and row.done_ps is None]
            for node in lost_nodes(self.on, what, self.told.get((what, replica), 0), value):
                if any(node in row.path for row in out):
                    continue  # it will be computed again
                if replica in self.on[node]:
                    self.on[node].discard(replica)
                    if node in self.used[replica]:
                        self.used[replica].remove(node)
            self.told[what, replica] = value
