"""A policy and its twin asked side by side, without a cluster: any loads, caches and metrics, any past.

A scene is a router's view at one arrival after the other. What a cluster would put into it is drawn anew each
time, so that loads and matches are seen that no cluster could produce so easily.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np

from fastsim._jit import kernel
from fastsim.cluster._state import BITS, LEVELS
from fastsim.cluster._workspace import new_state, sizes
from fastsim.cluster.knowledge import new_views, settle
from fastsim.cluster.prefix import compile_prompts
from fastsim.cluster.routers import ROUTERS
from fastsim.cluster.routers import view as rv
from tests.cluster_runs import cluster_of
from tests.router_cases import routed_case
from tests.router_replay import note_changes
from tests.twins import policies as twins
from tests.twins.cluster import Stream
from tests.twins.convert import to_workload
from tests.twins.engine import StepTime, build
from tests.twins.views import Seen

ANSWERS = {rv.REJECT: twins.REJECT, rv.HOLD: twins.HOLD}
GIVEN = (  # what a policy must leave as it is
    *("load", "level", "work", "waiting", "running", "kv_used", "kv_blocks", "params", "limits"),
    *("path_ptr", "path", "run_blk", "tail_blk", "step_coef", "step_ptr", "step_knots"),
)
ASKED = [rv.SOURCE, rv.SEND_BLK, rv.SEND_PS, rv.PRIORITY]  # and of the prompt all but these
FAR = 2**40  # a figure like no other


@kernel(signature="int64(Heard, RouterView, int64, int64, int64, int64)")
def _hear(heard, view, kind, what, replica, value):
    """Tell a policy something by a pointer, as the event loop does."""
    return heard(view, kind, what, replica, value)


def level_of(load: list[int]) -> np.ndarray:
    """Loads as masks."""
    level = np.zeros((LEVELS, -(-len(load) // BITS)), np.int64)
    for k, requests in enumerate(load):
        level[min(requests, LEVELS - 1), k // BITS] |= 1 << k % BITS
    return level


class Scenes:
    """One router of a policy and its twin; `ask` takes them through the requests of a random case."""

    def __init__(self, router: str, seed: int, poisoned: bool = False):
        self.rng = random.Random(f"scenes-{router}-{seed}")
        self.case = routed_case(router, seed, view="live", routers=1, caches="native")
        self.entry = ROUTERS[router]
        self.poisoned = poisoned
        self.requests, _ = build(self.case)
        self.replicas = self.case["replicas"]
        self.now_ps = 0
        self.open: list[tuple[Any, int, bool]] = []  # requests sent: which, where, whether begun
        spec = self.entry.spec(self.case["router_params"])
        self._make_kernel(spec)
        world = twins.World(
            replicas=self.replicas,
            routers=1,
            router=0,
            engine=self.case["engine"]["kind"],
            block_tok=self.case["engine"]["block_size"],
            kv_blocks=self.case["engine"]["num_blocks"] - 1,
            batch_tok=self.case["engine"]["max_num_batched_tokens"],
            draw=Stream(0, 0, 0),
            prompts=self.requests,
            step=StepTime(self.case["step_ms"]),
        )
        self.twin = twins.POLICIES[router](
            {name: getattr(spec, name) for name in spec.__struct_fields__}, world
        )

    def _make_kernel(self, spec: Any) -> None:
        workload, cluster = to_workload(self.case), cluster_of(self.case)
        known = settle(self.entry, spec, "live", 1, "native", "sent")
        prompts = compile_prompts(workload, cluster.block, segments=cluster.engine == "lecture")
        owner = np.zeros(len(workload), np.int64)
        state = new_state(workload, prompts, cluster, known, self.entry, owner, sizes(prompts, cluster))
        (self.view,) = new_views(state, known, self.entry, spec, workload, cluster, 0, 0)

    def _draw(self, request: Any) -> Any:
        """Draw what is known at an arrival."""
        rng, replicas = self.rng, range(self.replicas)
        most = rng.choice([0, 1, 3, 12, 200])
        load = [rng.randint(0, most) for _ in replicas]
        ends = [0]
        for _, tok in request.units:
            ends.append(ends[-1] + tok)
        match = [rng.choice(ends) if rng.random() < 0.5 else 0 for _ in replicas]
        kv_blocks = self.case["engine"]["num_blocks"] - 1
        waiting = [rng.randint(0, most) for _ in replicas]
        running = [rng.randint(0, most) for _ in replicas]
        kv_used = [rng.randint(0, kv_blocks) for _ in replicas]
        work = [rng.randint(0, 100 * most) for _ in replicas]
        return Seen(self.now_ps, load, work, waiting, running, kv_used, kv_blocks, match.__getitem__)

    def _show(self, seen: Any, request: Any) -> None:
        """Put what was drawn into the kernel's view; nonsense in place of what the policy does not need."""
        view, needs = self.view, self.entry.needs
        match = [seen.matched_tok(r) for r in range(self.replicas)]
        view.load[:] = seen.in_flight
        view.level[:] = level_of(seen.in_flight)
        figures = {"work": ("work",), "metrics": ("waiting", "running", "kv_used"), "matches": ("match",)}
        values = {name: getattr(seen, name) for name in ("work", "waiting", "running", "kv_used")}
        values["match"] = match
        for need, names in figures.items():
            for name in names:
                hidden = self.poisoned and need not in needs
                getattr(view, name)[:] = FAR if hidden else values[name]
        note_changes(view)
        prompt = view.prompt
        prompt[[rv.PROMPT_TOK, rv.OUTPUT_TOK, rv.SESSION]] = (
            request.prompt_tok,
            request.output_tok,
            request.session,
        )
        prompt[[rv.NOW_PS, rv.SEND_BLK]] = self.now_ps, 0
        nearest = twins.nearest(seen)
        prompt[[rv.MATCH_TOK, rv.NEAREST]] = match[nearest], nearest
        if self.poisoned and "match" not in needs:
            prompt[[rv.MATCH_TOK, rv.NEAREST]] = FAR, -FAR
        if self.poisoned and self.entry.blind:
            load = [7 * k % 5 for k in range(self.replicas)]
            view.load[:], view.level[:] = load, level_of(load)

    def kept(self) -> SimpleNamespace:
        """Copies of what the policy must not change."""
        prompt = np.delete(self.view.prompt, ASKED)
        return SimpleNamespace(**{name: getattr(self.view, name).copy() for name in GIVEN}, prompt=prompt)

    def ask(self) -> list[tuple[Any, Any]]:
        """What kernel and twin answer, and ask to be sent along, request by request."""
        answers = []
        for request in self.requests:
            self.now_ps = request.arrival_ps
            self._report()
            seen = self._draw(request)
            self._show(seen, request)
            before = self.kept()
            chosen = int(self.entry.policy(self.view, request.index))
            for name, array in vars(self.kept()).items():
                np.testing.assert_array_equal(array, getattr(before, name), err_msg=name)
            answer = ANSWERS.get(chosen, chosen)
            expected = self.twin.choose(seen, request)
            answers.append(((answer, self._sent_along()), (expected, seen.sending)))
            if isinstance(answer, int):
                self.open.append((request, answer, False))
        return answers

    def _sent_along(self) -> tuple[int, int] | None:
        blocks = int(self.view.prompt[rv.SEND_BLK])
        return (blocks, int(self.view.prompt[rv.SEND_PS])) if blocks > 0 else None

    def _report(self) -> None:
        """Let both hear of first tokens and ends of some requests sent before."""
        still = []
        for request, replica, begun in self.open:
            if self.rng.random() < 0.5:
                still.append((request, replica, begun))
                continue
            if not begun:
                self._tell(rv.FIRST_TOKEN, twins.FIRST_TOKEN, request, replica, self.rng.randint(0, 10**9))
            if not begun and self.rng.random() < 0.5:
                still.append((request, replica, True))
            else:
                self._tell(rv.FINISHED, twins.FINISHED, request, replica, 0)
        self.open = still

    def _tell(self, number: int, kind: str, request: Any, replica: int, value: int) -> None:
        if self.entry.heard is not None:
            self.view.prompt[rv.NOW_PS] = self.now_ps
            _hear(self.entry.heard, self.view, number, request.index, replica, value)
        if getattr(self.twin, "heard", None):
            self.twin.heard(self.now_ps, kind, request.index, replica, value)
