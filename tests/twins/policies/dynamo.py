"""Dynamo's KV router, with sets of block keys for each replica and costs from the formulas as published."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.twins.kv import ceil_div
from tests.twins.policies import FINISHED, FIRST_TOKEN, HOLD, Prompt, View, World, blocks_of, twin

PS = 10**12


@dataclass
class Active:
    """A request in flight, or taken to be."""

    replica: int
    uncached_tok: int
    since_ps: int
    keys: list
    prefilling: bool = True


class Ledger:
    """What a router counts of its own requests: active prefill, blocks, requests."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.world = world
        self.active: dict[int, Active] = {}
        self.batch_tok = world.batch_tok

    def keys(self, request: Prompt) -> list:
        """Keys of a prompt's full blocks: an incomplete last one has no hash."""
        return blocks_of(request, None if self.world.engine == "lecture" else self.world.block_tok)

    def prefill_tok(self, replica: int) -> int:
        return sum(a.uncached_tok for a in self.active.values() if a.replica == replica and a.prefilling)

    def requests(self, replica: int) -> int:
        return sum(a.replica == replica for a in self.active.values())

    def blocks_with(self, replica: int, keys: list) -> int:
        distinct = set(keys)
        for a in self.active.values():
            if a.replica == replica:
                distinct |= set(a.keys)
        return len(distinct)

    def start(self, view: View, request: Prompt, replica: int, matched_tok: int) -> None:
        uncached = request.prompt_tok - matched_tok
        self.active[request.index] = Active(replica, uncached, view.now_ps, self.keys(request))

    def heard(self, now_ps, kind, what, replica, value) -> None:
        if kind == FIRST_TOKEN and what in self.active:
            self.active[what].prefilling = False
        elif kind == FINISHED:
            self.active.pop(what, None)

    def pick(self, costs: list[float], temperature: float) -> int:
        low, high = min(costs), max(costs)
        if temperature > 0 and high > low:
            scale = 1.0 / ((high - low) * temperature)
            weights = [math.exp((low - cost) * scale) for cost in costs]
            total = 0.0
            for weight in weights:
                total += weight
            left = self.world.draw.uniform() * total
            for r, weight in enumerate(weights):
                left -= weight
                if left < 0:
                    return r
            return len(costs) - 1
        equal = [r for r, cost in enumerate(costs) if cost == low]
        return equal[self.world.draw.below(len(equal))] if len(equal) > 1 else equal[0]


class Today(Ledger):
    """Credits, decay, expiry and the queue."""

    swept = 0

    def choose(self, view: View, request: Prompt) -> int | str:
        p = self.params
        period = int(p["sweep_s"] * 1e12)
        if period > 0 and view.now_ps // period > self.swept:
            self.swept = view.now_ps // period
            self.expire(view.now_ps, None)
        replicas = range(len(view.in_flight))
        prefill = [self.prefill_tok(r) for r in replicas]
        if p["queue_threshold"] > 0 and min(prefill) > p["queue_threshold"] * self.batch_tok:
            return HOLD
        keys = self.keys(request)
        matched = [self.matched_tok(view, request, r) for r in replicas]
        block = self.world.block_tok
        costs = []
        for r in replicas:
            lead = (prefill[r] - min(prefill)) / block / ceil_div(request.prompt_tok, block)
            credit = p["overlap_credit"] * (matched[r] * (1 / block)) / (1.0 + p["credit_decay"] * lead)
            scale = p["prefill_load_scale"]
            load = scale * (1 / block) * (prefill[r] + request.prompt_tok)
            left = max(0.0, load - scale * credit)
            costs.append(self.blocks_with(r, keys) + (left + p["request_weight"] * self.requests(r)))
        replica = self.pick(costs, p["temperature"])
        if p["sweep_s"] == 0:
            self.expire(view.now_ps, replica)
        self.start(view, request, replica, matched[replica])
        self.sent(view, request, replica)
        return replica

    def expire(self, now_ps: int, only: int | None) -> None:
        age = int(self.params["expiry_s"] * 1e12)
        for index, a in list(self.active.items()):
            if a.since_ps + age <= now_ps and only in (None, a.replica):
                del self.active[index]

    def matched_tok(self, view: View, request: Prompt, replica: int) -> int:
        return view.matched_tok(replica)

    def sent(self, view: View, request: Prompt, replica: int) -> None:
        pass


class Believed(Today):
    """What was sent is believed to be cached until it has not been used for so long."""

    def __init__(self, params: dict, world: World):
        super().__init__(params, world)
        self.used: dict[tuple, int] = {}

    def ttl_ps(self) -> int:
        return round(self.params["ttl_s"] * 1e12)

    def believed_tok(self, view: View, request: Prompt, replica: int) -> int:
        tokens = 0
        for key, unit_tok in self.shareable(request):
            at = self.used.get((replica, key))
            if at is None or at + self.ttl_ps() <= view.now_ps:
                break
            tokens += unit_tok
        return tokens

    def shareable(self, request: Prompt) -> list:
        if self.world.engine == "lecture":
            return [(("segment", key), tok) for key, tok in request.units]
        return [(key, self.world.block_tok) for key in blocks_of(request, self.world.block_tok)]

    def matched_tok(self, view: View, request: Prompt, replica: int) -> int:
        return self.believed_tok(view, request, replica)

    def sent(self, view: View, request: Prompt, replica: int) -> None:
        for key, _ in self.shareable(request):
            self.used[replica, key] = view.now_ps


class Events(Believed):
    """Events, and what is believed beside them if there is a time for it."""

    def ttl_ps(self) -> int:
        return round(self.params["predicted_ttl_s"] * 1e12)

    def matched_tok(self, view: View, request: Prompt, replica: int) -> int:
        known = view.matched_tok(replica)
        return max(known, self.believed_tok(view, request, replica)) if self.ttl_ps() else known


twin("dynamo_kv")(Events)
twin("dynamo_kv_ttl")(Believed)


@twin("dynamo_2025")
class First(Ledger):
    """The cost of 2025."""

    def choose(self, view: View, request: Prompt) -> int:
        keys = self.keys(request)
        costs = []
        for r in range(len(view.in_flight)):
            tokens = request.prompt_tok - view.matched_tok(r) + self.prefill_tok(r)
            weighted = self.params["overlap_weight"] * (1 / self.world.block_tok) * tokens
            costs.append(self.blocks_with(r, keys) + weighted)
        replica = self.pick(costs, self.params["temperature"])
        self.start(view, request, replica, view.matched_tok(replica))
        return replica


@twin("dynamo_v01")
class Polled(Ledger):
    """The first form, by metrics."""

    def choose(self, view: View, request: Prompt) -> int:
        longest = max(1, *view.waiting)
        costs = [
            view.kv_used[r] / view.kv_blocks
            + view.waiting[r] / longest
            - 2.0 * (view.matched_tok(r) / request.prompt_tok)
            for r in range(len(view.in_flight))
        ]
        return self.pick(costs, 0.0)
