"""Small random cases that look for trouble: the shape of a golden file, plus replicas, router and view.

``make_case(seed)`` is a pure function of its seed. Everything nasty is likely: memory for little more than
one request, budgets just above the number of sequences, arrivals that coincide with step ends and with each
other, prompts that end on block borders, answers that others generate or read at the same time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.twins.orders import ORDERS

PLAIN_ROUTERS = (
    "random",
    "round_robin",
    "least_loaded",
    "power_of_two",
    "least_work",
    "prefix_affinity",
    "affinity_threshold",
    "cache_aware_guard",
)
FS_PER_MS = 10**12
BLOCK_SIZES = [1, 2, 3, 4, 5, 8, 16, 32, 64]


def cases(first_seed: int, count: int, engine: str = "vllm") -> Iterator[dict]:
    """Cases of consecutive seeds."""
    for seed in range(first_seed, first_seed + count):
        yield make_case(seed, engine)


def make_case(seed: int, engine: str = "vllm") -> dict:
    """One case.

    Returns
    -------
    dict with ``seed``, ``segments`` (name -> tokens), ``requests`` (``arrival_s``, ``path``,
    ``output_tokens``, and now and then ``answer_segment``; ``prompt_tokens`` when part of the prompt is the
    request's own; ``shared`` leading path entries in lecture mode), ``engine``, ``step_ms`` (kind "pieces":
    integer fs), ``replicas``, ``router``, ``router_params`` and ``view``. Most have a local order other than
    fcfs, as ``order`` and ``order_params`` of the engine, and requests with a ``priority`` where it counts.
    """
    rng = random.Random(f"{engine}-{seed}")
    block_tok = 1 if engine == "lecture" else rng.choice(BLOCK_SIZES)
    prompts = Prompts(rng, block_tok)
    requests = prompts.requests(rng.choice([1, 3, 10, 25, 25, 60]))
    if engine == "lecture":
        _share_a_part(rng, requests)
    time = rng.choice([_coarse_time, _coarse_time, _picosecond_time, _odd_time])(rng)
    _set_arrivals(rng, requests, time)
    case = {
        "seed": seed,
        "segments": prompts.segments,
        "requests": requests,
        "engine": _engine(rng, engine, block_tok, requests, prompts.segments),
        "step_ms": {"kind": "pieces", "pieces": time["pieces"]},
        **_routing(rng, time),
    }
    _set_order(rng, case)
    return case


class Prompts:
    """Grows a dictionary of segments, and prompts made of them."""

    def __init__(self, rng: random.Random, block_tok: int):
        self.rng = rng
        self.block_tok = block_tok
        self.aligned = rng.random() < 0.3
        self.longest = rng.choice([2, 8, 30]) * rng.choice([1, 1, block_tok])
        self.longest_output = rng.choice([1, 2, 10, 40, 40, 150])
        self.segments: dict[str, int] = {}
        self.system = self.segment()
        self.documents = [self.segment() for _ in range(rng.randint(1, 5))]

    def segment(self, tokens: int | None = None) -> int:
        """A new segment; its name is the next integer."""
        name = len(self.segments) + 1
        if tokens is None:
            tokens = self.rng.randint(1, self.longest)
            if self.aligned:
                tokens = -(-tokens // self.block_tok) * self.block_tok
        self.segments[str(name)] = tokens
        return name

    def requests(self, count: int) -> list[dict]:
        """Requests of mixed styles, in no particular order."""
        styles = [self.unique, self.about_document, self.identical, self.conversation, self.same_answer]
        styles = self.rng.sample(styles, self.rng.randint(1, len(styles)))
        found: list[dict] = []
        while len(found) < count:
            found += self.rng.choice(styles)()
        if self.rng.random() < 0.5:
            self.rng.shuffle(found)
        return found[:count]

    def output(self) -> int:
        """Tokens of an answer; one token is likely."""
        return 1 if self.rng.random() < 0.15 else self.rng.randint(1, self.longest_output)

    def row(self, path: list[int], answer: int | None = None) -> dict:
        """One request; without an answer segment its output is its own."""
        output = self.output() if answer is None else self.segments[str(answer)]
        row: dict = {"path": path, "output_tokens": output}
        if answer is not None:
            row["answer_segment"] = answer
        if self.rng.random() < 0.1:
            row["prompt_tokens"] = _prompt_tok(row, self.segments) + self.rng.randint(1, self.longest)
        return row

    def unique(self) -> list[dict]:
        """A prompt that nobody shares, all named or all the request's own."""
        if self.rng.random() < 0.3:
            own_tok = self.rng.randint(1, self.longest)
            return [{"path": [], "output_tokens": self.output(), "prompt_tokens": own_tok}]
        return [self.row([self.segment()])]

    def about_document(self) -> list[dict]:
        """System prompt, a document, a question; the question may be missing."""
        path = [self.system, self.rng.choice(self.documents)]
        return [self.row(path + [self.segment()] * self.rng.randint(0, 1))]

    def identical(self) -> list[dict]:
        """The same prompt several times."""
        path = [self.rng.choice(self.documents), self.segment()]
        return [self.row(list(path)) for _ in range(self.rng.randint(2, 4))]

    def conversation(self) -> list[dict]:
        """Turns that contain the answers before them, also those that may not be finished yet."""
        path, turns = [self.system], []
        for _ in range(self.rng.randint(2, 4)):
            path = [*path, self.segment()]
            answer = self.segment(self.output())
            turns.append(self.row(path, answer))
            if "prompt_tokens" in turns[-1]:
                del turns[-1]["prompt_tokens"]
            path = [*path, answer]
        return turns

    def same_answer(self) -> list[dict]:
        """The same prompt and the same answer several times, then a prompt that contains both."""
        path = [self.rng.choice(self.documents)] * self.rng.randint(0, 1) + [self.segment()]
        answer = self.segment(self.output())
        rows = [{**self.row(path, answer)} for _ in range(self.rng.randint(2, 3))]
        for row in rows:
            row.pop("prompt_tokens", None)
        return [*rows, self.row([*path, answer, self.segment()])]


def _share_a_part(rng: random.Random, requests: list[dict]) -> None:
    """Lecture: the last entries of a path may be private."""
    for row in requests:
        row["shared"] = rng.randint(max(0, len(row["path"]) - 2), len(row["path"]))


def _prompt_tok(row: dict, segments: dict[str, int]) -> int:
    return row.get("prompt_tokens", sum(segments[str(name)] for name in row["path"]))


def _engine(rng: random.Random, kind: str, block_tok: int, requests: list[dict], segments: dict) -> dict:
    """Memory for the largest request and a little more, or for nearly all, or for everything."""
    unneeded = 0 if kind == "lecture" else 1
    needs = [_prompt_tok(row, segments) + row["output_tokens"] - unneeded for row in requests]
    blocks = [-(-need // block_tok) for need in needs]
    spare = rng.choice(
        [0, 1, 2, max(blocks) // 4, max(blocks) // 2, max(blocks), 3 * max(blocks), sum(blocks)]
    )
    max_seqs = rng.choice([1, 2, 3, 5, 8, 8, 8])
    budget = max_seqs + rng.choice([0, 1, 2, 7, block_tok, 3 * block_tok, 200])
    watermark = rng.choice([0.0, 0.0, 0.01, 0.05, 0.2]) if kind == "vllm" else 0.0
    return {
        "kind": kind,
        "block_size": block_tok,
        "num_blocks": max(blocks) + spare + 1,
        "max_num_seqs": max_seqs,
        "max_num_batched_tokens": budget,
        "watermark": watermark,
    }


def _coarse_time(rng: random.Random) -> dict:
    """Steps of whole milliseconds and arrivals on the same grid: nearly every arrival meets a boundary."""
    coef = [rng.randint(1, 3), rng.randint(0, 2), rng.randint(0, 2), 0, 0, 0, rng.randint(0, 1), 0, 0]
    return {"grid_fs": FS_PER_MS, "step_fs": 3 * FS_PER_MS, "pieces": [[[c * FS_PER_MS for c in coef], []]]}


def _picosecond_time(rng: random.Random) -> dict:
    """Steps of a few thousand femtoseconds: the residual below the picosecond decides who sees whom."""
    const, prefill, token, pair = (rng.randint(*ends) for ends in [(1000, 3000), (0, 900), (0, 300), (0, 9)])
    coef = [const, prefill, 0, token, 0, pair, 333, 1, 0]
    return {"grid_fs": 1000, "step_fs": 4000, "pieces": [[coef, []]]}


def _odd_time(rng: random.Random) -> dict:
    """A maximum of several pieces with every term, values that divide nothing, arrivals anywhere."""
    pieces = []
    for _ in range(rng.randint(1, 3)):
        scale = [10**12, 10**11, 10**10, 10**10, 10**8, 10**7, 10**10, 10**9]
        coef = [rng.randint(0, top) if rng.random() < 0.7 else 0 for top in scale] + [0]
        coef[0] += 1000
        pieces.append([coef, _knots(rng) if rng.random() < 0.5 else []])
    return {"grid_fs": 1000, "step_fs": 10**12, "pieces": pieces}


def _knots(rng: random.Random) -> list[list[int]]:
    """A continuous, rising, piecewise-linear function from 0 or 1 token on; its last line goes on."""
    knots = [[rng.randint(0, 1), rng.randint(0, 10**12), 0]]
    for _ in range(rng.randint(0, 3)):
        tokens, value, _ = knots[-1]
        slope, further = rng.randint(0, 10**10), rng.randint(1, 20)
        knots[-1][2] = slope
        knots.append([tokens + further, value + slope * further, slope])
    return knots


def _set_arrivals(rng: random.Random, requests: list[dict], time: dict) -> None:
    """Arrivals on the grid: bursts, ties, and gaps from none to many steps; in file order."""
    mean_gap = rng.choice([0, 1, 2, 4, 20, 100]) * time["step_fs"]
    at_fs = rng.randint(0, 5) * time["grid_fs"]
    for row in requests:
        row["arrival_s"] = at_fs / 1e15
        if mean_gap and rng.random() < 0.7:
            at_fs += round(rng.expovariate(1 / mean_gap) / time["grid_fs"]) * time["grid_fs"]


def _routing(rng: random.Random, time: dict) -> dict:
    router = rng.choice(PLAIN_ROUTERS)
    params = {}
    if router in ("affinity_threshold", "cache_aware_guard") and rng.random() < 0.5:
        params["theta"] = rng.choice([0.0, 0.1, 0.25, 0.5, 0.75, 0.9])
    if router == "cache_aware_guard" and rng.random() < 0.7:
        params["abs_threshold"] = rng.choice([0, 1, 2, 8])
        params["rel_threshold"] = rng.choice([1.0, 1.5])
    view = "live"
    if rng.random() < 0.4:
        period_fs = rng.choice([1, 2, 5, 20]) * time["step_fs"] // rng.choice([1, 2])
        view = f"periodic({period_fs / 1e15!r})"
    replicas = rng.choice([1, 1, 2, 3, 4, 8])
    return {"replicas": replicas, "router": router, "router_params": params, "view": view}


def _set_order(rng: random.Random, case: dict) -> None:
    """A local order, its thresholds where the case can cross them."""
    name = rng.choice([*ORDERS, "fcfs", "fcfs"])
    params: dict[str, int] = {}
    if name == "longest_prefix" and rng.random() < 0.9:
        params["most_waiting"] = rng.choice([1, 3, 10, 128])
        params["check_tok"] = rng.choice([-1, 0, 3, 20, 100])
        params["share_tok"] = rng.choice([1, 2, 5, 20, 64])
    if name.startswith("priority_groups") and rng.random() < 0.7:
        params["groups"] = rng.choice([1, 2, 3, 7, 10, 60])
    if name == "priority_groups_cycling" and rng.random() < 0.7:
        params["per_group"] = rng.randint(1, 3)
    if name == "priority":
        classes = rng.choice([1, 2, 3, 100])
        for row in case["requests"]:
            row["priority"] = rng.randint(-classes, classes)
    case["engine"] |= {"order": name, "order_params": params}
    case["engine"]["preempt_ties"] = rng.choice(["running_list", "file"])
