"""Preble's policies without a cluster: the same requests and reports for a kernel and its twin."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from fastsim import Cluster
from fastsim.cluster._workspace import new_state, sizes
from fastsim.cluster.knowledge import new_views, owners, settle
from fastsim.cluster.prefix import compile_prompts
from fastsim.cluster.routers import get
from fastsim.cluster.routers import view as vw
from fastsim.cluster.step_time import StepTime
from fastsim.workloads.workload import Workload
from tests.twins import engine as slow
from tests.twins import policies as twins
from tests.twins.convert import from_workload
from tests.twins.policies.preble_forest import nodes_of

PS = 10**12
Engine = Literal["lecture", "vllm"]
ENGINES: list[Engine] = ["lecture", "vllm"]
STEP = StepTime.polynomial(base_s=5e-3, per_prefill_token_s=1e-4, per_pair_s=1e-8, per_context_token_s=1e-7)


class Stage:
    """A policy's kernel and its twin, in whose name requests come and replicas report.

    Parameters
    ----------
    workload : Workload
    router : str
    params : mapping
    replicas : int
    engine : "vllm" or "lecture".
    kv_tok : KV capacity of a replica.
    """

    def __init__(
        self,
        workload: Workload,
        router: str,
        params: Mapping[str, Any] | None = None,
        *,
        replicas: int = 4,
        engine: Engine = "lecture",
        kv_tok: int = 100_000,
        step: StepTime = STEP,
    ):
        block_tok = 1 if engine == "lecture" else 16
        cluster = Cluster(replicas, engine=engine, step_time=step, kv_tok=kv_tok, block_tok=block_tok)
        self.policy = get(router)
        spec = self.policy.spec(params or {})
        knowledge = settle(self.policy, spec, "native", 1, "native", "sent")
        prompts = compile_prompts(workload, cluster.block, segments=engine == "lecture")
        owner = owners(len(workload), 1, 0, 0)
        state = new_state(workload, prompts, cluster, knowledge, self.policy, owner, sizes(prompts, cluster))
        self.view = new_views(state, knowledge, self.policy, spec, workload, cluster, 0, 0)[0]
        settings = {"kind": engine, "block_size": block_tok}
        case = from_workload(workload, settings, step)
        self.requests = slow.build(case)[0]
        world = twins.World(
            replicas=replicas,
            routers=1,
            router=0,
            engine=engine,
            block_tok=block_tok,
            kv_blocks=kv_tok // block_tok,
            batch_tok=cluster.batch_tok,
            draw=None,  # pyright: ignore[reportArgumentType]
            prompts=self.requests,  # pyright: ignore[reportArgumentType]
            step=slow.StepTime(case["step_ms"]),
        )
        self.nodes = nodes_of(world)
        self.twin = twins.POLICIES[router](
            {name: getattr(spec, name) for name in spec.__struct_fields__}, world
        )
        self.now_ps = 0
        self.at: dict[int, int] = {}  # where each request was sent

    def send(self, request: int, now_s: float) -> int:
        """Let a request arrive; returns the choice of both.

        Raises
        ------
        AssertionError
            If kernel and twin differ, or the costs that they reckoned with do.
        """
        self.now_ps = round(now_s * PS)
        theirs = self.twin.choose(_View(self.now_ps, len(self.view.load)), self.requests[request])
        row = self.requests[request]
        columns = [vw.NOW_PS, vw.PROMPT_TOK, vw.OUTPUT_TOK]
        self.view.prompt[columns] = self.now_ps, row.prompt_tok, row.output_tok
        ours = int(self.policy.policy(self.view, request))
        assert ours == theirs, f"request {request}: {ours}, twin {theirs}"
        self.at[request] = ours
        return ours

    def first_token(self, request: int, now_s: float, wait_s: float = 0.0) -> None:
        """Report a request's first token."""
        self._hear(
            now_s, vw.FIRST_TOKEN, twins.FIRST_TOKEN, request, request, self.at[request], round(wait_s * PS)
        )

    def finish(self, request: int, now_s: float) -> None:
        """Report a request's end."""
        self._hear(now_s, vw.FINISHED, twins.FINISHED, request, request, self.at[request], 0)

    def finish_all(self, requests: list[int], now_s: float) -> None:
        """Report the first tokens and the ends of requests."""
        for request in requests:
            self.first_token(request, now_s)
            self.finish(request, now_s)

    def serve(self, request: int, now_s: float, wait_s: float = 0.0) -> int:
        """Let a request arrive and end at once."""
        choice = self.send(request, now_s)
        self.first_token(request, now_s, wait_s)
        self.finish(request, now_s)
        return choice

    def report(self, request: int, place: int, replica: int, blocks: int, now_s: float) -> None:
        """Report how many blocks a replica now holds of a node on a request's path."""
        run = int(self.view.path[self.view.path_ptr[request] + place])
        node = self.nodes[request][place][0]
        self._hear(now_s, vw.CACHE, twins.CACHE, run, node, replica, blocks)

    def _hear(
        self, now_s: float, kind: int, word: str, ours: int, theirs: Any, replica: int, value: int
    ) -> None:
        now_ps = round(now_s * PS)
        self.view.prompt[vw.NOW_PS] = now_ps
        self.policy.heard(self.view, kind, ours, replica, value)
        self.twin.heard(now_ps, word, theirs, replica, value)


class _View:
    def __init__(self, now_ps: int, replicas: int):
        self.now_ps = now_ps
        self.in_flight = [0] * replicas  # looked at for how many there are


def prompts(
    paths: list[list[int]], symbol_tok: list[int], own_tok: list[int], output_tok: list[int]
) -> Workload:
    """Requests of these symbols, and tokens of their own after them."""
    tokens = [sum(symbol_tok[s] for s in path) + own for path, own in zip(paths, own_tok, strict=True)]
    return Workload(
        name="scene",
        arrival_s=np.arange(len(paths)) * 1e-3,
        prompt_tok=np.array(tokens),
        output_tok=np.array(output_tok),
        symbol_ptr=np.cumsum([0] + [len(path) for path in paths]),
        symbols=np.array([s for path in paths for s in path], dtype=np.int64),
        symbol_tok=np.array(symbol_tok),
    )


def random_prompts(rng: random.Random, requests: int) -> Workload:
    """A system prompt, some documents, parts below them; questions that are often repeated."""
    symbol_tok = [rng.choice([3, 40]), *(rng.choice([20, 90, 300, 900]) for _ in range(14))]
    paths = []
    for _ in range(requests):
        system = [0] if rng.random() < 0.9 else []
        levels = rng.choice([0, 1, 1, 2, 3, 5])
        paths.append(system + [1 + rng.randrange(3 + level) for level in range(levels)])
    own = [rng.choice([0, 5, 30, 400]) or (0 if path else 7) for path in paths]
    return prompts(paths, symbol_tok, own, [rng.choice([1, 4, 40]) for _ in paths])


def play(stage: Stage, rng: random.Random) -> None:
    """All requests of a stage, with random reports between them."""
    now_s = 0.0
    for request in range(len(stage.requests)):
        now_s += rng.choice([0.0, 1e-12, rng.expovariate(30.0), rng.expovariate(30.0), rng.expovariate(2.0)])
        stage.send(request, now_s)
        for when, act in _reports(stage, rng, now_s):
            now_s = when
            act()


def _reports(stage: Stage, rng: random.Random, now_s: float) -> Iterator[tuple[float, Any]]:
    sent = stage.twin.sent
    for request in [i for i, row in sent.items() if row.done_ps is None]:
        if rng.random() < 0.3:
            now_s += rng.choice([0.0, 0.01])
            wait_s = rng.choice([0.0, 0.2, now_s**2])  # ever longer, or not
            if sent[request].first_ps is None:
                yield now_s, lambda i=request, t=now_s, w=wait_s: stage.first_token(i, t, w)
            else:
                yield now_s, lambda i=request, t=now_s: stage.finish(i, t)
    while rng.random() < 0.4:
        request = rng.choice(list(sent))
        if stage.nodes[request]:
            place = rng.randrange(len(stage.nodes[request]))
            run = stage.view.path[stage.view.path_ptr[request] + place]
            blocks = rng.choice(
                [0, rng.randint(0, int(stage.view.run_blk[run])), int(stage.view.run_blk[run])]
            )
            replica = rng.choice([stage.at[request], rng.randrange(stage.view.load.shape[0])])
            yield now_s, lambda i=request, p=place, r=replica, b=blocks, t=now_s: stage.report(i, p, r, b, t)
