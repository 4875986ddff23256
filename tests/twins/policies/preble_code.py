"""Preble's released scheduler, in lists of all that ever happened, looked through each time."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from tests.twins.policies import CACHE, FINISHED, FIRST_TOKEN, Prompt, Run, View, World, least, twin
from tests.twins.policies.preble_forest import Node, lost_nodes, nodes_of, prefill_ps

INFINITY = float("inf")


@dataclass
class Sent:
    """A request that was sent."""

    request: Prompt
    path: list[Node]
    replica: int
    at_ps: int
    hit_tok: int
    important: Node | None
    missed: bool
    own_ps: int
    first_ps: int | None = None
    done_ps: int | None = None


@twin("preble_code")
class PrebleCode:
    """The exploit test by leaves, important nodes, polled hits, nodes that move."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.world = world
        self.joined = world.replicas  # by now: those that have not are not seen
        self.paths = nodes_of(world)
        self.horizon_ps = int(params["horizon_s"] * 1e12)
        self.sent: dict[int, Sent] = {}
        self.on: dict[Node, set[int]] = {}
        self.told: dict[tuple[Run, int], int] = {}
        self.used: dict[tuple[Node, int], int] = {}  # number of the last use
        self.uses = 0
        self.up: dict[Node, Node | None] = {}
        self.down: dict[Node | None, list[Node]] = {}  # the youngest first
        self.size: dict[Node, int] = {}
        self.depth: dict[Node, int] = {}
        self.tpots: dict[int, list[float]] = {r: [0.15] for r in range(world.replicas)}
        self.polled: tuple[int, float, int] = (-1, 0.0, 0)
        self.costs: list[float] = []
        self.moves = 0
        self.added = 0

    # --- what is known --------------------------------------------------------------------------------------

    def window(self) -> list[Sent]:
        return [row for row in self.sent.values() if row.at_ps + self.horizon_ps > self.now]

    def asked(self, node: Node) -> list[Sent]:
        """Requests of the window for which a node is the important one."""
        return [row for row in self.window() if row.important == node]

    def node_ps(self, node: Node) -> int:
        return prefill_ps(self.world, self.params["times"], self.size[node], self.depth[node])

    def large(self, node: Node) -> bool:
        return self.size[node] > self.depth[node] - self.size[node]

    def miss_ps(self, node: Node) -> int:
        return sum(row.missed for row in self.asked(node)) * self.node_ps(node)

    def node_load_ps(self, node: Node) -> int:
        return self.miss_ps(node) // max(1, len(self.on.get(node, ())))

    def running(self, replica: int) -> list[Sent]:
        return [row for row in self.sent.values() if row.replica == replica and row.done_ps is None]

    def load(self, replica: int) -> float:
        """L."""
        important = {row.important for row in self.window() if row.important is not None}
        load_ps = sum(self.node_load_ps(node) for node in important if replica in self.on.get(node, ()))
        load_ps += sum(row.own_ps for row in self.window() if row.replica == replica)
        tpot = median(self.tpots[replica][-200:])
        return load_ps * 1e-12 + len(self.running(replica)) * self.params["output_tok"] * tpot

    def eviction(self, replica: int, room: int) -> float:
        """M."""
        busy = {node for row in self.running(replica) for node in row.path}
        nodes = [node for node, replicas in self.on.items() if replica in replicas]
        cost_ps = 0
        for node in sorted(nodes, key=lambda node: (node in busy, self.used[node, replica])):
            if room <= 0:
                break
            cost_ps += self.miss_ps(node) if self.large(node) else 0
            room -= self.size[node]
        return cost_ps * 1e-12

    def cheapest(self, among: set[int], leaf_tok: int) -> int:
        self.costs = [INFINITY] * self.joined
        for r in sorted(among):
            self.costs[r] = self.load(r)
            if self.params["eviction_cost"]:
                self.costs[r] += self.eviction(r, leaf_tok)
        chosen = least(self.costs)
        return sorted(among).index(chosen) if self.params["argmin_bug"] else chosen

    # --- the decision ---------------------------------------------------------------------------------------

    def choose(self, view: View, request: Prompt) -> int:
        self.now, self.request = view.now_ps, request
        self.joined = len(view.in_flight)
        alive = {node for row in self.window() for node in row.path}
        for node in self.on:
            if node not in alive:
                self.on[node] = set()
        path = self.path = [node for node, _ in self.paths[request.index]]
        known = [node for node in path if node in self.size]
        block = self.world.block_tok
        whole = request.prompt_tok if self.world.engine == "lecture" else request.prompt_tok // block * block
        seen_tok = sum(self.size[node] for node in known)
        if known and known == path and seen_tok == whole:
            leaf_tok = self.size[known[-1]]
        else:
            leaf_tok = request.prompt_tok - seen_tok
        self.link()
        replica = self.place(known, leaf_tok)
        important = self.send(replica)
        if self.params["rebalance"] and len(self.sent) >= self.params["warm_requests"] * self.joined:
            levels = len(path) + (sum(self.size[node] for node in path) < whole)
            if important is None or levels - 1 - path.index(important) < 3:
                self.rebalance(list(range(self.joined)))
        return replica

    def link(self) -> None:
        depth, above = 0, None
        for node, tokens in self.paths[self.request.index]:
            depth += tokens
            if node not in self.size:
                self.size[node], self.depth[node], self.up[node] = tokens, depth, above
                self.down.setdefault(above, []).insert(0, node)
            above = node

    def place(self, known: list[Node], leaf_tok: int) -> int:
        if leaf_tok < self.request.prompt_tok - leaf_tok:
            for node in reversed(known):
                if self.on.get(node):
                    return self.cheapest(self.on[node], leaf_tok)
        if self.params["decode_first"]:
            ratio, replica = self.poll()
            if ratio >= self.params["hit_ratio"]:
                return replica
        return self.cheapest(set(range(self.joined)), leaf_tok)

    def poll(self) -> tuple[float, int]:
        every = int(self.params["poll_s"] * 1e12)
        number = self.now // every
        if number != self.polled[0]:
            until = number * every
            ratios = []
            for r in range(self.joined):
                rows = [
                    row
                    for row in self.sent.values()
                    if row.replica == r
                    and row.first_ps is not None
                    and until - int(self.params["hit_window_s"] * 1e12) < row.first_ps <= until
                ]
                prompt_tok = sum(row.request.prompt_tok for row in rows)
                ratios.append(sum(row.hit_tok for row in rows) / prompt_tok if prompt_tok else 0.0)
            self.polled = number, max(ratios), ratios.index(max(ratios))
        return self.polled[1:]

    def send(self, replica: int) -> Node | None:
        path, request = self.path, self.request
        hit = []
        for node in path:
            if replica not in self.on.get(node, ()):
                break
            hit.append(node)
        own_tok = request.prompt_tok - sum(self.size[node] for node in path)
        important = None
        if own_tok <= request.prompt_tok - own_tok:
            important = [node for node in path if self.large(node)][-1]
        own_ps = prefill_ps(self.world, self.params["times"], own_tok, request.prompt_tok)
        self.sent[request.index] = Sent(
            request,
            path,
            replica,
            self.now,
            min(request.prompt_tok, sum(self.size[node] for node in hit)),
            important,
            important is not None and important not in hit,
            own_ps if important is None else 0,
        )
        for node in reversed(path):
            self.allocate(node, replica)
            self.touch(node, replica)
        return important

    def touch(self, node: Node, replica: int) -> None:
        self.uses += 1
        self.used[node, replica] = self.uses

    # --- rebalancing ----------------------------------------------------------------------------------------

    def rebalance(self, replicas: list[int]) -> None:
        loads = {r: self.load(r) for r in replicas}
        if not replicas:
            return
        heavy = min(replicas, key=lambda r: (-loads[r], r))
        light = min(replicas, key=lambda r: (loads[r], r))
        if heavy == light or loads[heavy] < self.params["high_load_threshold"] * loads[light]:
            return
        self.relieve(heavy, light)
        self.rebalance([r for r in replicas if r != heavy])

    def movable(self, heavy: int) -> list[tuple[int, Node]]:
        nodes = [node for node, replicas in self.on.items() if heavy in replicas and self.large(node)]
        costs = [(self.node_load_ps(node), node) for node in nodes if len(self.asked(node)) > 1]
        return [(cost, node) for cost, node in costs if cost > 0]

    def relieve(self, heavy: int, light: int) -> None:
        movable = self.movable(heavy)
        if len(movable) == 1:
            node = movable[0][1]
            if self.params["autoscale"] and self.doubled(node):
                self.allocate(node, light)
                self.added += 1
            return
        while movable and self.load(heavy) >= self.params["high_load_threshold"] * self.load(light):
            cost_ps = min(cost for cost, _ in movable)
            if self.load(heavy) - cost_ps * 1e-12 < self.load(light) + cost_ps * 1e-12:
                return
            equal = {node for cost, node in movable if cost == cost_ps}
            self.move(next(node for node in self.size if node in equal), heavy, light)  # the one seen first
            self.moves += 1
            movable = self.movable(heavy)

    def doubled(self, node: Node) -> bool:
        older, newer = [], []
        for row in self.sent.values():
            if row.important != node or row.first_ps is None or row.first_ps + self.horizon_ps <= self.now:
                continue
            half = newer if row.first_ps + self.horizon_ps // 2 > self.now else older
            half.append(row.first_ps - row.at_ps)
        if not older or not newer:
            return False
        return sum(newer) * 1e-12 / len(newer) >= 2.0 * (sum(older) * 1e-12 / len(older))

    def allocate(self, node: Node, replica: int) -> None:
        if replica not in self.on.setdefault(node, set()):
            self.on[node].add(replica)
            self.touch(node, replica)

    def move(self, node: Node, heavy: int, light: int) -> None:
        self.allocate(node, light)
        self.on[node].discard(heavy)
        for below in self.down.get(node, []):
            if heavy in self.on.get(below, ()):
                self.move(below, heavy, light)

    # --- reports --------------------------------------------------------------------------------------------

    def heard(self, now_ps, kind, what, replica, value) -> None:
        if kind == FIRST_TOKEN and self.sent[what].first_ps is None:
            self.sent[what].first_ps = now_ps
        elif kind == FINISHED:
            row = self.sent[what]
            row.done_ps = now_ps
            if row.request.output_tok > 1:
                assert row.first_ps is not None
                self.tpots[replica].append((now_ps - row.first_ps) * 1e-12 / (row.request.output_tok - 1))
            for node in reversed(row.path):
                if replica in self.on.get(node, ()):
                    self.touch(node, replica)
        elif kind == CACHE and self.params["notices"]:
            for node in lost_nodes(self.on, what, self.told.get((what, replica), 0), value):
                self.on[node].discard(replica)
            self.told[what, replica] = value
