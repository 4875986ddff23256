"""Twins of the production stack's router: a trie of chunks, and lists of what was sent when."""

from __future__ import annotations

from collections.abc import Sequence

from tests.twins.policies import Prompt, View, World, twin
from tests.twins.policies.sglang import Ring, session_key

MINUTE_PS = 60 * 10**12


class Rates:
    """Who was sent a request when."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, int]] = []

    def lowest(self, now_ps: int, engines: int) -> int:
        """The first that never was, else the first with fewest in the last minute."""
        ever = {r for _, r in self.sent}
        recent = [r for ps, r in self.sent if ps >= now_ps - MINUTE_PS]
        return min(range(engines), key=lambda r: (r in ever, recent.count(r) if r in ever else 0, r))

    def note(self, now_ps: int, engine: int) -> None:
        """One more."""
        self.sent.append((now_ps, engine))


class BySession:
    """A ring of sessions; rates for requests without one."""

    def __init__(self, params: dict, world: World):
        self.params = params
        self.ring = Ring(160)
        self.rates = Rates()

    def choose(self, view: View, request: Prompt) -> int:
        """Choose and note it."""
        chosen = self.find(view, request)
        self.rates.note(view.now_ps, chosen)
        return chosen

    def find(self, view: View, request: Prompt) -> int:
        engines = len(view.in_flight)
        if request.session >= 0:
            return self.ring.owner(session_key(request), engines)
        return self.rates.lowest(view.now_ps, engines)

    def whole_chunks(self, view: View) -> list[int]:
        """Matched tokens of each engine, in whole chunks."""
        size = self.params["chunk_tok"]
        return [view.matched_tok(r) // size * size for r in range(len(view.in_flight))]


twin("production_stack_session")(BySession)


@twin("production_stack_kvaware")
class KvAware(BySession):
    """The first holder of anything, if it holds enough."""

    def find(self, view: View, request: Prompt) -> int:
        holders = [(r, matched) for r, matched in enumerate(self.whole_chunks(view)) if matched]
        if holders and holders[0][1] >= max(0, request.prompt_tok - self.params["threshold_tok"]):
            return holders[0][0]
        return super().find(view, request)


@twin("production_stack_loadaware")
class LoadAware(BySession):
    """Match against relative load."""

    def find(self, view: View, request: Prompt) -> int:
        matched, loads = self.whole_chunks(view), view.in_flight
        if not any(matched):
            return super().find(view, request)
        mean = sum(loads) / len(loads)
        weight = self.params["beta"] / max(1.0, mean)
        scores = [
            -weight * (load - mean) + m / request.prompt_tok for m, load in zip(matched, loads, strict=True)
        ]
        return scores.index(max(scores))


class Trie:
    """Chunks after chunks, and who was sent them."""

    def __init__(self) -> None:
        self.engines: set[int] = set()
        self.below: dict[tuple, Trie] = {}


@twin("production_stack_prefixaware")
class PrefixAware:
    """Descend while anyone is left."""

    def __init__(self, params: dict, world: World):
        self.params, self.draw = params, world.draw
        self.chunk_tok = max(1, int(params["chunk_chars"] / params["chars_per_tok"] + 0.5))
        self.trie = Trie()
        self.rates = Rates()

    def choose(self, view: View, request: Prompt) -> int:
        """Any of the survivors, or by rates."""
        engines = len(view.in_flight)
        chunks = self.chunks(request.prompt)
        left, node, matched = set(range(engines)), self.trie, 0
        for chunk in chunks:
            node = node.below.get(chunk)
            if node is None or not left & node.engines:
                break
            left &= node.engines
            matched += 1
        short = matched * self.params["chunk_chars"] < self.params["min_match_length"]
        if short:
            chosen = self.rates.lowest(view.now_ps, engines)
        else:
            chosen = sorted(left)[self.draw.below(len(left))]
        if not short or self.params["insert_on_fallback"]:
            self.insert(chunks, chosen)
        self.rates.note(view.now_ps, chosen)
        return chosen

    def chunks(self, prompt: Sequence[tuple]) -> list[tuple]:
        return [tuple(prompt[k : k + self.chunk_tok]) for k in range(0, len(prompt), self.chunk_tok)]

    def insert(self, chunks: list[tuple], engine: int) -> None:
        node = self.trie
        for chunk in chunks:
            node = node.below.setdefault(chunk, Trie())
            node.engines.add(engine)
