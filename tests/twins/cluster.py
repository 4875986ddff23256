"""Several replicas on one clock, and the first eight routers, in plain Python.

At one instant (an integer picosecond) all step ends come first, then arrivals in file order, each routed with
those ends seen, then step starts. A router sees a view: loads and caches as they are (live) or as they were
at the last multiple of a period.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass

from tests.twins.engine import FS_PER_PS, Replica, Request, StepTime, build, to_ps

Below = Callable[[int], int]


@dataclass
class View:
    """What a router may know, one entry a replica."""

    in_flight: list[int]
    unfinished_tok: list[int]
    held: list[Container[int]]


def live_view(replicas: list[Replica]) -> View:
    """The truth of now; its caches are the replicas' own tables, so use it at once."""
    return View(
        [replica.in_flight() for replica in replicas],
        [replica.unfinished_tok() for replica in replicas],
        [replica.memory.held() for replica in replicas],
    )


def frozen_view(replicas: list[Replica]) -> View:
    """The truth of now, kept."""
    view = live_view(replicas)
    view.held = [frozenset(replica.memory.held()) for replica in replicas]
    return view


def parse_view(view: str) -> int | None:
    """Period in picoseconds of ``"periodic(T)"``, T in seconds; None for ``"live"``."""
    if view == "live":
        return None
    if view.startswith("periodic(") and view.endswith(")"):
        period_ps = to_ps(float(view[len("periodic(") : -1]))
        if period_ps > 0:
            return period_ps
    raise ValueError(f"unknown view {view!r}")


# Routers: (view, request, turn, below, params) -> replica; turn counts the requests routed before.


def matched_tok(view: View, replica: int, request: Request) -> int:
    """Tokens of the prompt's leading units that the replica holds, without a gap."""
    tokens = 0
    for key, unit_tok in request.units:
        if key not in view.held[replica]:
            break
        tokens += unit_tok
    return tokens


def random_replica(view, request, turn, below: Below, params) -> int:
    """Any replica, all equally likely."""
    return below(len(view.in_flight))


def round_robin(view, request, turn, below, params) -> int:
    """One after the other, from replica 0."""
    return turn % len(view.in_flight)


def least_loaded(view: View, request, turn, below, params) -> int:
    """Fewest requests in flight; ties to the lowest index."""
    return view.in_flight.index(min(view.in_flight))


def power_of_two(view: View, request, turn, below: Below, params) -> int:
    """The less loaded of two distinct random replicas; a tie keeps the first drawn.

    The second is drawn from the others: ``below(n - 1)``, moved up by one from the first on. A single replica
    draws nothing.
    """
    replicas = len(view.in_flight)
    if replicas == 1:
        return 0
    first = below(replicas)
    second = below(replicas - 1)
    if second >= first:
        second += 1
    return second if view.in_flight[second] < view.in_flight[first] else first


def least_work(view: View, request, turn, below, params) -> int:
    """Fewest unfinished tokens; ties to the lowest index."""
    return view.unfinished_tok.index(min(view.unfinished_tok))


def prefix_affinity(view: View, request: Request, turn, below, params) -> int:
    """Longest match; ties to the fewest requests in flight, then to the lowest index."""
    replicas = range(len(view.in_flight))
    return min(replicas, key=lambda i: (-matched_tok(view, i, request), view.in_flight[i], i))


def affinity_threshold(view: View, request: Request, turn, below, params) -> int:
    """Longest match if its share of the prompt is above ``theta`` (default 0.5), else the least loaded."""
    best = prefix_affinity(view, request, turn, below, params)
    if matched_tok(view, best, request) / request.prompt_tok > params.get("theta", 0.5):
        return best
    return least_loaded(view, request, turn, below, params)


def cache_aware_guard(view: View, request: Request, turn, below, params) -> int:
    """``affinity_threshold``, but the least loaded while the loads are out of balance."""
    most, fewest = max(view.in_flight), min(view.in_flight)
    if most - fewest > params.get("abs_threshold", 8) and most > params.get("rel_threshold", 1.5) * fewest:
        return least_loaded(view, request, turn, below, params)
    return affinity_threshold(view, request, turn, below, params)


ROUTERS = {
    "random": random_replica,
    "round_robin": round_robin,
    "least_loaded": least_loaded,
    "power_of_two": power_of_two,
    "least_work": least_work,
    "prefix_affinity": prefix_affinity,
    "affinity_threshold": affinity_threshold,
    "cache_aware_guard": cache_aware_guard,
}


# The clock.


class Router:
    """A policy with its view: sees the replicas at ``tick`` and is asked at arrivals."""

    def __init__(
        self, policy: str, params: dict, period_ps: int | None, below: Below, replicas: list[Replica]
    ):
        self.policy = ROUTERS[policy]
        self.params = params
        self.period_ps = period_ps
        self.below = below
        self.replicas = replicas
        self.turn = 0
        self.taken_ps = -1
        self.snapshot = frozen_view(replicas)

    def before(self, now_ps: int) -> None:
        """Nothing changes between two instants: a tick there sees the state after the earlier one."""
        if self.period_ps and self.taken_ps < (tick := now_ps // self.period_ps * self.period_ps) < now_ps:
            self.snapshot, self.taken_ps = frozen_view(self.replicas), tick

    def after_step_ends(self, now_ps: int) -> None:
        """A tick at this very instant sees its step ends, not its arrivals and starts."""
        if self.period_ps and now_ps % self.period_ps == 0:
            self.snapshot, self.taken_ps = frozen_view(self.replicas), now_ps

    def choose(self, request: Request) -> int:
        """Replica for a request that arrives now."""
        view = self.snapshot if self.period_ps else live_view(self.replicas)
        choice = self.policy(view, request, self.turn, self.below, self.params)
        self.turn += 1
        return choice


@dataclass
class Outcome:
    """What a run left behind: requests in file order, each with its ``replica``, and the replicas."""

    requests: list[Request]
    replicas: list[Replica]

    def totals(self) -> list[dict[str, int]]:
        """One row a replica."""
        return [
            {
                "busy_fs": replica.busy_fs,
                "steps": replica.steps,
                "scheduled_tok": replica.scheduled_tok,
                "hit_tok": replica.hit_tok,
                "preemptions": replica.preemptions,
                "evicted": replica.memory.evicted,
                "cached_tok": sum(replica.memory.cached_tok().values()),
                "cached_copies_tok": replica.memory.cached_copies_tok(),
            }
            for replica in self.replicas
        ]

    def distinct_tok(self) -> int:
        """Tokens cached at the end somewhere, each prefix counted once."""
        union: dict[int, int] = {}
        for replica in self.replicas:
            union.update(replica.memory.cached_tok())
        return sum(union.values())


def run_cluster(case: dict, below: Below | None = None) -> Outcome:
    """Serve a case on ``case["replicas"]`` replicas.

    Parameters
    ----------
    case : the shape of a golden file, plus ``replicas`` (1), ``router`` ("round_robin"), ``router_params``
        ({}) and ``view`` ("live").
    below : ``below(n)`` draws an integer in [0, n) for the random routers; default
        ``random.Random(0).randrange``.
    """
    requests, _ = build(case)
    replicas = [Replica(case["engine"], StepTime(case["step_ms"])) for _ in range(case.get("replicas", 1))]
    router = Router(
        case.get("router", "round_robin"),
        case.get("router_params", {}),
        parse_view(case.get("view", "live")),
        below or random.Random(0).randrange,
        replicas,
    )
    pending = deque(requests)
    while pending or any(replica.in_flight() for replica in replicas):
        events = [replica.end_fs // FS_PER_PS for replica in replicas if replica.in_step]
        events += [pending[0].arrival_ps] if pending else []
        _instant(min(events), pending, replicas, router)
    return Outcome(sorted(requests, key=lambda request: request.index), replicas)


def _instant(now_ps: int, pending: deque[Request], replicas: list[Replica], router: Router) -> None:
    router.before(now_ps)
    for replica in replicas:
        if replica.in_step and replica.end_fs // FS_PER_PS == now_ps:
            replica.finish_step()
    router.after_step_ends(now_ps)
    while pending and pending[0].arrival_ps == now_ps:
        request = pending.popleft()
        request.replica = router.choose(request)
        replicas[request.replica].arrive(request)
    for replica in replicas:
        replica.start_step(now_ps)
