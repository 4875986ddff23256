"""The endpoint picker: a score for each scorer and replica, and an index of block keys in LRU order."""

from __future__ import annotations

from collections import OrderedDict

from tests.twins.policies import Prompt, View, World, blocks_of, twin


def by_fewest(values: list[int]) -> list[float]:
    """1 for the fewest, 0 for the most; all 1 if they are equal."""
    most, fewest = max(values), min(values)
    return [(most - value) / (most - fewest) if most > fewest else 1.0 for value in values]


class Picker:
    """Scorers, filter and pickers; a subclass says what is matched."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.world = world
        self.cold: list[int] = []  # replicas by their last use for a cold prompt

    def matched(self, view: View, request: Prompt) -> tuple[list[int], int]:
        raise NotImplementedError

    def sent(self, request: Prompt, replica: int) -> None:
        pass

    def scores(self, view: View, tokens: list[int], total: int) -> list[float]:
        p = self.params
        most_active = max(1, *view.in_flight)
        longest = [min(1.0, t / 8192.0) for t in tokens]
        shares = [t / total if total else 0.0 for t in tokens]
        w = p["length_weight"]
        terms = [
            (p["queue"], by_fewest(list(view.waiting))),
            (p["kv_use"], [1.0 - used / view.kv_blocks for used in view.kv_used]),
            (p["running"], by_fewest(list(view.running))),
            (0.5 * p["load_aware"], [max(0.0, 1.0 - n / 128.0) for n in view.waiting]),
            (p["active"], [(most_active - n) / most_active if n else 1.0 for n in view.in_flight]),
            (p["token_load"], [1.0 - min(1.0, n / 4_194_304.0) for n in view.work]),
        ]
        total_score = [0.0] * len(tokens)
        for weight, values in terms:
            if weight > 0:
                total_score = [have + weight * value for have, value in zip(total_score, values, strict=True)]
        for r, (share, long) in enumerate(zip(shares, longest, strict=True)):
            total_score[r] += p["prefix"] * (w * long * long + (1.0 - w) * share)
        if p["no_hit_lru"] > 0:
            for r, value in enumerate(self.coldness(tokens)):
                total_score[r] += value
        return total_score

    def coldness(self, tokens: list[int]) -> list[float]:
        n, weight = len(tokens), self.params["no_hit_lru"]
        if any(tokens):
            return [weight * 0.5] * n
        if n == 1:
            return [weight]
        order = [r for r in range(n) if r not in self.cold] + self.cold
        return [weight * (n - 1 - order.index(r)) / (n - 1) for r in range(n)]

    def kept(self, view: View, tokens: list[int], total: int) -> list[bool]:
        share = self.params["sticky_share"]
        everyone = [True] * len(tokens)
        if share == 0 or total == 0:
            return everyone
        sticky = [t >= share * total for t in tokens]
        seconds = [n / self.params["prefill_rate"] for n in view.work]
        best = min((s for s, yes in zip(seconds, sticky, strict=True) if yes), default=None)
        other = min((s for s, yes in zip(seconds, sticky, strict=True) if not yes), default=None)
        if best is None or (other is not None and best - other > self.params["sticky_limit_s"]):
            return everyone
        return sticky

    def choose(self, view: View, request: Prompt) -> int:
        tokens, total = self.matched(view, request)
        scores = self.scores(view, tokens, total)
        kept = self.kept(view, tokens, total)
        scores = [score if keep else -1.0 for score, keep in zip(scores, kept, strict=True)]
        draw = self.world.draw
        if self.params["picker"] == "weighted_random":
            keys = [draw.uniform() for _ in scores]
            keys = [
                key ** (1.0 / score) if score > 0 else 0.0 for key, score in zip(keys, scores, strict=True)
            ]
            replica = keys.index(max(keys))
        else:
            best = [r for r, score in enumerate(scores) if score == max(scores)]
            replica = best[draw.below(len(best))] if len(best) > 1 else best[0]
        if self.params["no_hit_lru"] > 0 and not any(tokens):
            self.cold = [r for r in self.cold if r != replica] + [replica]
        self.sent(request, replica)
        return replica


class Indexed(Picker):
    """By what was sent: block keys in LRU order, one list a replica."""

    def __init__(self, params: dict, world: World):
        super().__init__(params, world)
        self.block_tok, self.capacity = self.sizes()
        self.index: list[OrderedDict] = [OrderedDict() for _ in range(world.replicas)]

    def sizes(self) -> tuple[int, int]:
        block = max(self.params["min_block_tok"], self.world.block_tok)
        own = max(1, self.world.kv_blocks * self.world.block_tok // block)
        return block, min(self.params["index_blk"], own)

    def keys(self, request: Prompt) -> list:
        full = blocks_of(request, self.block_tok)
        return full + [("open", request.index)] * (request.prompt_tok % self.block_tok > 0)

    def matched(self, view: View, request: Prompt) -> tuple[list[int], int]:
        keys = self.keys(request)
        replicas = range(len(view.in_flight))
        blocks = [0] * len(replicas)
        going = set(replicas)
        for key in keys:
            holders = {r for r in replicas if key in self.index[r]}
            if not self.params["gaps_count"]:
                holders &= going
                going = holders
            if not holders:
                break
            for r in holders:
                blocks[r] += 1
        return [n * self.block_tok for n in blocks], len(keys) * self.block_tok

    def sent(self, request: Prompt, replica: int) -> None:
        index = self.index[replica]
        for key in self.keys(request):
            index[key] = None
            index.move_to_end(key)
        while len(index) > self.capacity:
            index.popitem(last=False)


twin("epp")(Indexed)


@twin("epp_2025")
class Indexed2025(Indexed):
    """Blocks of characters, and only the first of a prompt."""

    def sizes(self) -> tuple[int, int]:
        block = max(1, round(self.params["block_chars"] / self.params["chars_per_tok"]))
        return block, self.params["index_blk"]

    def keys(self, request: Prompt) -> list:
        return blocks_of(request, self.block_tok)[: self.params["most_blk"]]


@twin("epp_precise")
class Precise(Picker):
    """By the engines' events."""

    def matched(self, view: View, request: Prompt) -> tuple[list[int], int]:
        block = self.world.block_tok
        tokens = [view.matched_tok(r) for r in range(len(view.in_flight))]
        return tokens, request.prompt_tok // block * block
