"""A policy's kernel and its twin without a cluster: the same requests, loads and metrics at each decision."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastsim import Cluster
from fastsim.cluster._masks import change_load
from fastsim.cluster._state import BITS
from fastsim.cluster._workspace import new_state, sizes
from fastsim.cluster.knowledge import new_views, owners, settle, views_with_larger_trees
from fastsim.cluster.prefix import compile_prompts
from fastsim.cluster.routers import get
from fastsim.cluster.routers.tree import tree_has_room
from fastsim.cluster.routers.view import NOW_PS, PROMPT_TOK, SESSION
from fastsim.rng import below, stream, uniform
from fastsim.workloads import Workload
from tests.twins.policies import POLICIES, World

METRICS = ("waiting", "running", "kv_used", "match")


class Replay:
    """A policy's kernel, with a view that whoever replays fills in.

    ``decide(request, now_ps)`` asks it, ``change(replica, by)`` changes a load; ``view`` has the rest.
    """

    def __init__(self, workload: Workload, replicas: int, router: str, params: Mapping[str, Any]):
        policy, cluster = get(router), Cluster(replicas)
        spec = policy.spec(params)
        knowledge = settle(policy, spec, "own", 1, "native", "sent")
        prompts = compile_prompts(workload, cluster.block)
        owner = owners(len(workload), 1, 0, 0)
        state = new_state(workload, prompts, cluster, knowledge, policy, owner, sizes(prompts, cluster))
        self.views = new_views(state, knowledge, policy, spec, workload, cluster, 0, 0)
        self.policy, self.workload = policy.policy, workload

    @property
    def view(self) -> Any:
        """The router's view."""
        return self.views[0]

    def decide(self, request: int, now_ps: int = 0) -> int:
        """What the policy chooses for a request, as the view is now."""
        while not tree_has_room(self.view, request):
            self.views = views_with_larger_trees(self.views)
        known = self.workload.prompt_tok[request], self.workload.session[request], now_ps
        self.view.prompt[[PROMPT_TOK, SESSION, NOW_PS]] = known
        note_changes(self.view)
        return int(self.policy(self.view, request))

    def change(self, replica: int, by: int) -> None:
        """Change a load."""
        change_load(self.view.load, self.view.level, replica, by)


def note_changes(view: Any) -> None:
    """Let a view whose metrics and matches were filled in by hand tell of it."""
    view.changes[0] += 1
    view.found[:] = 0
    for replica in np.flatnonzero(view.match):
        view.found[replica // BITS] |= 1 << replica % BITS


def draw(seed: int, values: Mapping[str, list]) -> dict[str, Any]:
    """One of the values of each parameter."""
    rng = random.Random(seed)
    return {name: rng.choice(choice) for name, choice in values.items()}


def by_hand(*symbols: list[int], symbol_tok: int = 10, session: list[int] | None = None) -> Workload:
    """Requests whose prompts are the symbols given, each of so many tokens."""
    n = len(symbols)
    flat = [symbol for row in symbols for symbol in row]
    return Workload(
        name="by hand",
        arrival_s=np.arange(n) * 1.0,
        prompt_tok=np.array([symbol_tok * len(row) for row in symbols]),
        output_tok=np.ones(n, np.int64),
        symbol_ptr=np.concatenate(([0], np.cumsum([len(row) for row in symbols]))),
        symbols=np.array(flat),
        symbol_tok=np.full(max(flat) + 1, symbol_tok),
        session=np.array(session or [-1] * n),
    )


# --- random scenes ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """One arrival and what is known then, a value a replica; ``finished`` requests have ended before it."""

    now_ps: int
    finished: list[int]
    metrics: dict[str, list[int]]


@dataclass(frozen=True)
class Scene:
    """Requests, and the moments at which they arrive."""

    workload: Workload
    replicas: int
    moments: list[Moment]


def make_scene(seed: int, requests: int = 60, mean_gap_s: float = 0.05) -> Scene:
    """A few documents, questions that repeat, sessions; prompts of 1 to some 100 tokens."""
    rng = random.Random(f"scene {seed}")
    symbol_tok = [rng.choice([1, 3, 8, 20, 40]) for _ in range(rng.choice([3, 8, 30]))]
    paths: list[list[int]] = []
    for _ in range(requests):
        path: list[int] = []
        if paths and rng.random() < 0.3:
            path = list(rng.choice(paths))
            path = path[: rng.randint(0, len(path))] if rng.random() < 0.5 else path
        paths.append(path + [rng.randrange(len(symbol_tok)) for _ in range(rng.choice([0, 1, 1, 3]))])
    private = [rng.randint(1, 30) if not path or rng.random() < 0.4 else 0 for path in paths]
    return _scene(rng, symbol_tok, paths, private, rng.choice([1, 2, 3, 5, 8, 63]), mean_gap_s)


def make_bushy_scene(seed: int, requests: int = 150) -> Scene:
    """Short prompts that part and end within each other, for few replicas: trees with many small nodes."""
    rng = random.Random(f"bushy {seed}")
    symbol_tok = [rng.choice([1, 1, 2, 5]) for _ in range(3)]
    paths = [[rng.randrange(3) for _ in range(rng.choice([1, 2, 4, 6]))] for _ in range(requests)]
    private = [rng.choice([0, 0, 0, 1, 3]) for _ in paths]
    return _scene(rng, symbol_tok, paths, private, rng.choice([1, 2, 3]), 0.05)


def _scene(
    rng: random.Random,
    symbol_tok: list[int],
    paths: list[list[int]],
    private: list[int],
    replicas: int,
    mean_gap_s: float,
) -> Scene:
    requests = len(paths)
    workload = Workload(
        name="scene",
        arrival_s=np.arange(requests) * 1e-3,
        prompt_tok=np.array(
            [sum(symbol_tok[s] for s in p) + own for p, own in zip(paths, private, strict=True)]
        ),
        output_tok=np.ones(requests, np.int64),
        symbol_ptr=np.concatenate(([0], np.cumsum([len(path) for path in paths]))),
        symbols=np.array([s for path in paths for s in path], np.int64),
        symbol_tok=np.array(symbol_tok),
        session=np.array([rng.choice([-1, *range(rng.choice([3, 12]))]) for _ in range(requests)]),
    )
    moments = list(_moments(rng, workload, replicas, mean_gap_s))
    return Scene(workload, replicas, moments)


def _moments(rng: random.Random, workload: Workload, replicas: int, mean_gap_s: float) -> Iterator[Moment]:
    now_ps, running = 0, []
    capacity = Cluster(1).kv_blocks
    for i in range(len(workload)):
        now_ps += rng.choice([0, 1, round(rng.expovariate(1 / mean_gap_s) * 1e12)])
        finished = [request for request in running if rng.random() < 0.2]
        running = [request for request in running if request not in finished] + [i]
        prompt_tok = int(workload.prompt_tok[i])
        yield Moment(
            now_ps,
            finished,
            {
                "waiting": [rng.choice([0, 0, rng.randint(0, 9)]) for _ in range(replicas)],
                "running": [rng.randint(0, 9) for _ in range(replicas)],
                "kv_used": [rng.choice([0, capacity, rng.randint(0, capacity)]) for _ in range(replicas)],
                "match": [rng.choice([0, 0, rng.randint(0, prompt_tok)]) for _ in range(replicas)],
            },
        )


@dataclass
class _Prompt:
    """A request as a twin sees it."""

    index: int
    session: int
    prompt_tok: int
    output_tok: int
    prompt: list[tuple]
    units: list[tuple[int, int]]


def twin_prompts(workload: Workload) -> list[Any]:
    """All requests, with a key for each token."""
    made = []
    for i in range(len(workload)):
        symbols = workload.symbols[workload.symbol_ptr[i] : workload.symbol_ptr[i + 1]].tolist()
        keys = [(s, j) for s in symbols for j in range(workload.symbol_tok[s])]
        tokens = int(workload.prompt_tok[i])
        keys += [("own", i, j) for j in range(tokens - len(keys))]
        made.append(_Prompt(i, int(workload.session[i]), tokens, int(workload.output_tok[i]), keys, []))
    return made


@dataclass
class _View:
    now_ps: int
    in_flight: list[int]
    waiting: list[int]
    running: list[int]
    kv_used: list[int]
    match: list[int]
    kv_blocks: int

    def matched_tok(self, replica: int) -> int:
        return self.match[replica]


class _Draw:
    """The routing stream."""

    def __init__(self) -> None:
        self.state = stream(0, 0, "routing")

    def below(self, n: int) -> int:
        return int(below(self.state, n))

    def uniform(self) -> float:
        return float(uniform(self.state))


def choices(scene: Scene, router: str, params: Mapping[str, Any]) -> list[tuple[int, int]]:
    """What twin and kernel choose for each request; loads follow the kernel."""
    replay = Replay(scene.workload, scene.replicas, router, params)
    prompts = twin_prompts(scene.workload)
    block, blocks = 16, int(replay.view.kv_blocks[0])
    world = World(scene.replicas, 1, 0, "vllm", block, blocks, 2048, _Draw(), prompts)  # pyright: ignore[reportArgumentType]
    spec = get(router).spec(params)
    slow = POLICIES[router]({name: getattr(spec, name) for name in spec.__struct_fields__}, world)
    sent: list[int] = []
    found = []
    for i, moment in enumerate(scene.moments):
        for request in moment.finished:
            replay.change(sent[request], -1)
        for name in METRICS:
            getattr(replay.view, name)[:] = moment.metrics[name]
        view = _View(moment.now_ps, replay.view.load.tolist(), kv_blocks=blocks, **moment.metrics)
        theirs = slow.choose(view, prompts[i])
        ours = replay.decide(i, moment.now_ps)
        found.append((theirs, ours))
        sent.append(ours)
        replay.change(ours, 1)
    return found


def disagreements(scene: Scene, router: str, params: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """(request, twin's choice, ours) where they differ."""
    pairs = choices(scene, router, params)
    return [(i, theirs, ours) for i, (theirs, ours) in enumerate(pairs) if theirs != ours]
