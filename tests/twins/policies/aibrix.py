"""AIBrix's policies from their tables: plain counts, an index of block keys, logs scanned from the start."""

from __future__ import annotations

import math
from collections import OrderedDict

from fastsim.cluster.routers._preble_times import A6000, regression_s
from tests.twins.policies import FINISHED, FIRST_TOKEN, Prompt, View, World, blocks_of, stateless, twin
from tests.twins.rng import mix64

S = 10**12


def any_of(world: World, equal: list[int]) -> int:
    """One of several at random; no draw for one."""
    return equal[world.draw.below(len(equal))] if len(equal) > 1 else equal[0]


def fewest(view: View, world: World) -> int:
    return any_of(world, [r for r, n in enumerate(view.in_flight) if n == min(view.in_flight)])


def last_least(values: list) -> int:
    return max(r for r, value in enumerate(values) if value == min(values))


@stateless("aibrix_least_request")
def least_request(view, request, params, world):
    return fewest(view, world)


@stateless("aibrix_least_kv_cache")
def least_kv_cache(view, request, params, world):
    return last_least(list(view.kv_used))


@stateless("aibrix_power_of_two")
def power_of_two(view, request, params, world):
    n = len(view.in_flight)
    if n == 1:
        return 0
    first = world.draw.below(n)
    second = [r for r in range(n) if r != first][world.draw.below(n - 1)]
    return second if view.in_flight[second] < view.in_flight[first] else first


@stateless("aibrix_session_affinity")
def session_affinity(view, request, params, world):
    n = len(view.in_flight)
    if request.session < 0:
        return world.draw.below(n)
    weights = [mix64(((request.session + 1) << 20) | r) >> 2 for r in range(n)]
    return weights.index(max(weights))


@twin("aibrix_least_latency")
class LeastLatency:
    """Every report is kept, means are taken over all of them."""

    def __init__(self, params: dict, world: World):
        self.sent: dict[int, tuple[int, Prompt]] = {}
        self.firsts: list[tuple[int, int, int, int]] = []  # replica, queued, prefill, prompt tokens
        self.ends: list[tuple[int, int, int]] = []  # replica, decode, output tokens
        self.first_ps: dict[int, int] = {}

    def choose(self, view: View, request: Prompt) -> int:
        prompts = [row[3] for row in self.firsts]
        outputs = [row[2] for row in self.ends]
        prompt_tok = sum(prompts) / len(prompts) if prompts else 10.0
        output_tok = sum(outputs) / len(outputs) if outputs else 100.0
        scores = []
        for r in range(len(view.in_flight)):
            mine = [row for row in self.firsts if row[0] == r]
            over = [row for row in self.ends if row[0] == r]
            queued = sum(row[1] for row in mine) / len(mine) if mine else 0.0
            prefill = sum(row[2] for row in mine) / sum(row[3] for row in mine) if mine else 0.0
            decode = sum(row[1] for row in over) / sum(row[2] for row in over) if over else 0.0
            scores.append(queued + prefill * prompt_tok + decode * output_tok)
        self.sent[request.index] = view.now_ps, request
        return last_least(scores)

    def heard(self, now_ps, kind, what, replica, value) -> None:
        if kind == FIRST_TOKEN:
            arrived, request = self.sent[what]
            self.first_ps[what] = now_ps
            self.firsts.append((replica, value, now_ps - arrived - value, request.prompt_tok))
        elif kind == FINISHED:
            output = self.sent[what][1].output_tok
            self.ends.append((replica, now_ps - self.first_ps[what], output))


def gated(view: View, limit: float) -> list[int]:
    """Pods that may be chosen: all, or the idlest while counts are too far apart."""
    low, high = min(view.in_flight), max(view.in_flight)
    return [r for r, n in enumerate(view.in_flight) if n == low or high - low <= limit]


@twin("aibrix_prefix_cache")
class PrefixCache:
    """One LRU index: a block key, the pods it was sent to, and when it was used last."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.world = world
        self.block_tok = max(1, round(params["block_bytes"] / params["chars_per_tok"]))
        self.index: OrderedDict[tuple, set[int]] = OrderedDict()
        self.used_ps: dict[tuple, int] = {}

    def choose(self, view: View, request: Prompt) -> int:
        self.forget(view.now_ps)
        keys = blocks_of(request, self.block_tok)
        candidates = gated(view, self.params["imbalance"])
        matched = {r: self.matched(keys, r) for r in candidates}
        counts = view.in_flight
        mean = sum(counts) / len(counts)
        most = mean
        if len(counts) > 1:
            squares = len(counts) * sum(n * n for n in counts) - sum(counts) ** 2
            most += self.params["deviations"] * math.sqrt(squares / (len(counts) * (len(counts) - 1)))
        known = {r: n * 100 // len(keys) for r, n in matched.items() if n and counts[r] <= most}
        if known:
            best = min((-percent, counts[r]) for r, percent in known.items())
            replica = any_of(self.world, [r for r, p in known.items() if (-p, counts[r]) == best])
        else:
            replica = fewest(view, self.world)
        self.add(keys, replica, view.now_ps)
        return replica

    def matched(self, keys: list, replica: int) -> int:
        n = 0
        while n < len(keys) and replica in self.index.get(keys[n], ()):
            n += 1
        return n

    def forget(self, now_ps: int) -> None:
        ttl = round(self.params["ttl_s"] * S)
        for key in [key for key in self.index if self.used_ps[key] + ttl <= now_ps]:
            del self.index[key]

    def add(self, keys: list, replica: int, now_ps: int) -> None:
        for key in keys:
            self.index.setdefault(key, set()).add(replica)
            self.index.move_to_end(key)
            self.used_ps[key] = now_ps
        while len(self.index) > self.params["index_blk"]:
            self.index.popitem(last=False)


@twin("aibrix_vtc_basic")
class Vtc:
    """A log of what each user used, scanned at every request."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.world = world
        self.log: list[tuple[int, int, int]] = []

    def choose(self, view: View, request: Prompt) -> int:
        p, user, n = self.params, request.session, len(view.in_flight)
        if user < 0:
            return self.world.draw.below(n)
        window = int(p["window_s"] * S)
        tokens: dict[int, int] = {}
        for at, who, how_many in self.log:
            if at + window > view.now_ps:
                tokens[who] = tokens.get(who, 0) + how_many
        active = [t for t in tokens.values() if t > 0]
        low, high = (min(active), max(active)) if active else (p["idle_min_tok"], p["idle_max_tok"])
        x = min(tokens.get(user, 0) / max(p["least_bucket_tok"], (low + high) / 2.0), n - 1.0)
        scores = [
            abs(r - x) + min(view.in_flight[r] / p["full_requests"], 1.0) + 0.1 * self.world.draw.uniform()
            for r in range(n)
        ]
        weight = p["input_weight"] + p["output_weight"] * p["outputs_per_input"]
        self.log.append((view.now_ps, user, int(request.prompt_tok * weight)))
        return scores.index(min(scores))


def shared_tok(one: Prompt, other: Prompt) -> int:
    """Tokens that two prompts begin with alike."""
    n = 0
    while n < min(len(one.prompt), len(other.prompt)) and one.prompt[n] == other.prompt[n]:
        n += 1
    return n


@twin("aibrix_preble")
class AibrixPreble:
    """Everything from the list of what was sent, scanned at every request."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.sent: list[tuple[int, int, Prompt, int]] = []  # when, where, what, cost

    def choose(self, view: View, request: Prompt) -> int:
        p, now = self.params, view.now_ps
        ttl, window = round(p["ttl_s"] * S), int(p["window_s"] * S)
        candidates = gated(view, p["imbalance"])
        alive = [row for row in self.sent if row[0] + ttl > now]
        alike = [(shared_tok(request, other), where) for _, where, other, _ in alive]
        matched = max((n for n, _ in alike), default=0)
        recent = [row for row in self.sent if row[0] + window > now]
        replica = None
        if matched > p["exploit_share"] * request.prompt_tok:
            able = [r for r in candidates if any(where == r and n == matched for n, where in alike)]
            if able:
                replica = min(able, key=lambda r: (sum(where == r for _, where, _, _ in recent), r))
        if replica is None:
            decode = int(p["output_tok"] * p["token_s"] * S)
            costs = {}
            for r in candidates:
                prompts = {tuple(other.prompt) for _, where, other, _ in alive if where == r}
                costs[r] = sum(cost for _, where, _, cost in recent if where == r) + decode * len(prompts)
            replica = min(costs, key=lambda r: (costs[r], r))
        n = request.prompt_tok
        cost = int((n - matched) / n * self.prefill_ps(n - matched, n))
        self.sent.append((now, replica, request, cost))
        return replica

    def prefill_ps(self, tokens: int, context_tok: int) -> int:
        seconds = float(regression_s(A6000, tokens, context_tok, context_tok >= 4096))
        return int(seconds * (2.5 if self.params["gpu"] == "v100" else 1.0) * S)
