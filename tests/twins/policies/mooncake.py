"""Mooncake's conductor: its algorithm over lists of what was sent and not yet answered."""

from __future__ import annotations

from tests.twins.policies import FINISHED, FIRST_TOKEN, REJECT, Prompt, View, World, twin

S = 10**12


@twin("mooncake")
class Mooncake:
    """Every replica's time to first token, from the requests in flight there."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.world = world
        self.queued: dict[int, tuple[int, int]] = {}  # request -> replica, predicted prefill
        self.active: dict[int, tuple[int, int]] = {}  # request -> replica, prompt tokens
        self.sends_until_ps = [0] * world.replicas

    def choose(self, view: View, request: Prompt) -> int | str:
        p, n = self.params, request.prompt_tok
        matched = [view.matched_tok(r) for r in range(len(view.in_flight))]
        best = max(matched)
        source = matched.index(best)
        wait = max(0, self.sends_until_ps[source] - view.now_ps)
        plans = []
        for r, own in enumerate(matched):
            fetch = p["fetch"] and best > p["balancing_threshold"] * own
            transfer = self.transfer_ps(best - own) if fetch else 0
            prefill = self.prefill_ps(max(1, n - (best if fetch else own)), n)
            queue = sum(ps for where, ps in self.queued.values() if where == r)
            plans.append((queue + prefill + (wait + transfer if fetch else 0), r, fetch, transfer, prefill))
        ttft, replica, fetch, transfer, prefill = min(plans, key=lambda plan: plan[:2])
        if p["ttft_slo_s"] > 0 and ttft > p["ttft_slo_s"] * 1e12:
            return REJECT
        if p["tbt_slo_s"] > 0 and self.tbt_ps(replica, n) > p["tbt_slo_s"] * 1e12:
            return REJECT
        if fetch:
            self.sends_until_ps[source] = view.now_ps + wait + transfer
            view.send(source, best // self.world.block_tok, wait + transfer)
        self.queued[request.index] = replica, prefill
        self.active[request.index] = replica, n
        return replica

    def transfer_ps(self, tokens: int) -> int:
        return int(tokens * self.params["kv_bytes_per_tok"] / self.params["bandwidth"] * 1e12)

    def prefill_ps(self, tokens: int, context: int) -> int:
        assert self.world.step is not None
        cached = context - tokens
        pairs = sum(range(cached + 1, context + 1))
        return self.world.step.duration_fs(tokens, pairs, 0, cached) // 1000

    def tbt_ps(self, replica: int, prompt_tok: int) -> int:
        assert self.world.step is not None
        there = [tok for where, tok in self.active.values() if where == replica] + [prompt_tok]
        return self.world.step.duration_fs(0, sum(there), len(there), sum(there)) // 1000

    def heard(self, now_ps, kind, what, replica, value) -> None:
        if kind == FIRST_TOKEN:
            del self.queued[what]
        elif kind == FINISHED:
            del self.active[what]
