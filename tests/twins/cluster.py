"""Several replicas on one clock behind one or more routers, in plain Python.

At one instant (an integer picosecond) all step ends come first, then replicas join, restart and are known to
have restarted, in this order, then the routers' refresh if it is due, then the reports that reach the routers
now. If first tokens or ends are among them, or a refresh was waited for, the routers are asked again for the
requests they hold back. Then come requests whose blocks were sent along, then arrivals in file order, each
with all that seen. Steps start last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import asdict

from fastsim.cluster.routers import ROUTERS
from fastsim.rng import below, generator, stream, uniform
from tests.twins.engine import FS_PER_PS, Replica, Request, StepTime, build, to_ps
from tests.twins.policies import CACHE, FINISHED, FIRST_TOKEN, HOLD, POLICIES, REJECT, Run, World
from tests.twins.views import (
    Past,
    Rules,
    Seen,
    SentBlocks,
    State,
    covered,
    held_tok,
    keys_of,
    reckoned_state,
    runs_of,
    seen,
    settle,
    true_state,
)

SENT = "sent"
JOIN, RESTART, RESTART_SILENTLY, TOLD = range(4)  # at one instant in this order


class Stream:
    """The package's own random stream of a router."""

    def __init__(self, seed: int, replicate: int, router: int):
        self.state = stream(seed, replicate, "routing" if router == 0 else f"routing {router}")

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        return int(below(self.state, n))

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return float(uniform(self.state))


class HeldForEver(Exception):
    """Routers hold requests back, and nothing can happen any more that makes them let go."""


class Report(NamedTuple):
    """Something that happened, and who is told."""

    ps: int
    kind: str
    what: Any
    replica: int
    value: int


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


class Router:
    """One router: its policy, what it has sent where, and what it remembers of that."""

    def __init__(self, number: int, policy: Any, sent_blocks: SentBlocks):
        self.number = number
        self.policy = policy
        self.sent_blocks = sent_blocks

    def hear(self, report: Report) -> None:
        """Let the policy know."""
        if getattr(self.policy, "heard", None):
            what = report.what if report.kind == CACHE else report.what.index
            self.policy.heard(*report._replace(what=what))


class Cluster:
    """A run under way; `run_cluster` makes one of a case."""

    def __init__(self, case: dict, draws: Callable[[int], Any]):
        name = case.get("router", "round_robin")
        self.entry = ROUTERS[name]
        params = asdict(self.entry.spec(case.get("router_params", {})))
        engine = case["engine"]
        self.engine = engine.get("kind", "vllm")
        self.kv_blocks = engine["num_blocks"] - 1
        requests, _ = build(case)
        self.requests = requests
        self.pending = [request for request in requests if request.follows is None]
        self.replicas = [Replica(engine, step_time) for step_time in _step_times(case)]
        self.outages = _outages(case)
        self.active = len(self.replicas) - len(case.get("joins_s") or ())
        self.published: list[set[int]] = [
            set() for _ in self.replicas
        ]  # keys held, as of the last step's end
        self.events: list[list[tuple[int, bool, int]]] = [[] for _ in self.replicas]  # not published yet
        self.lost: list[set[int]] = [set() for _ in self.replicas]  # keys gone that routers think are there
        self.sent: list[list[Request]] = [[] for _ in self.replicas]  # and not finished
        self.now_ps = -1
        self.told: dict[tuple[int, Run], int] = {}  # what was last reported of each replica's caches
        self._set_rules(case, params)
        self._make_routers(case, params, name, draws)
        self._listen_to_caches()
        self.held: list[Request] = []
        self.on_way: list[tuple[int, Request, int]] = []  # instant, request, blocks
        self.unread: list[Report] = []
        self.due = 0  # periodic: how many of them the routers get at the refresh made last
        self.wake_ps: int | None = None
        self.snapshot = self._states()
        self.pasts = [Past(state) for state in self.snapshot]

    def _set_rules(self, case: dict, params: dict) -> None:
        entry = self.entry
        matches = bool(entry.needs & {"match", "matches"})
        caches = case.get("caches", "native")
        known_by = entry.caches if caches == "native" else caches
        self.rules: Rules = settle(
            case.get("view", "native"),
            entry.view,
            params.get("scrape_s", 0.0),
            known_by if matches else "events",
            case.get("counted_from", "sent"),
        )
        rules = self.rules
        by_reports = rules.loads in ("own", "delayed") or rules.at_first_token
        heard = entry.heard is not None
        self.reports_requests = by_reports or rules.metrics == "own" or heard or rules.in_flight
        follows = matches and rules.caches == "delayed"
        self.reports_caches = follows or (heard and "evictions" in entry.needs)

    def _make_routers(self, case: dict, params: dict, name: str, draws: Callable[[int], Any]) -> None:
        count = case.get("routers", 1)
        owners = [0] * len(self.requests)
        if count > 1:
            stream_ = generator(case.get("seed_routing", 0), case.get("replicate", 0), "routers")
            owners = stream_.integers(count, size=len(self.requests)).tolist()
        self.owner = dict(zip((request.index for request in self.requests), owners, strict=True))
        block_tok = case["engine"]["block_size"]
        tree_tok = None if self.engine == "lecture" else block_tok
        self.routers = []
        for k in range(count):
            world = World(
                replicas=len(self.replicas),
                routers=count,
                router=k,
                engine=self.engine,
                block_tok=block_tok,
                kv_blocks=self.kv_blocks,
                batch_tok=case["engine"]["max_num_batched_tokens"],
                draw=draws(k),
                prompts=self.requests,
                step=StepTime(case["step_ms"]),
            )
            blocks = SentBlocks(len(self.replicas), self.kv_blocks, tree_tok)
            self.routers.append(Router(k, POLICIES[name](params, world), blocks))

    @cached_property
    def runs(self) -> dict[int, Run]:
        """The run of each key that has one."""
        return runs_of(self.requests, self.engine)

    @cached_property
    def key_tok(self) -> dict[int, int]:
        """Tokens of each key, where keys have lengths."""
        if self.engine != "lecture":
            return {}
        return dict(unit for request in self.requests for unit in request.units)

    def _listen_to_caches(self) -> None:
        """Note what a step changes, in order; blocks that come from elsewhere go with it or the next one."""

        def listener(r: int, held) -> Callable[[int], None]:
            def changed(key: int) -> None:
                run = self.runs.get(key, ())
                self.events[r].append((key, key in held, covered(run, held, self.key_tok)))

            return changed

        for r, replica in enumerate(self.replicas):
            replica.memory.changed = listener(r, replica.memory.held())

    def _publish(self, r: int) -> None:
        """Let it be known what the step that has ended changed in its replica's cache."""
        events, self.events[r] = self.events[r], []
        for key, held, value in events:
            (self.published[r].add if held else self.published[r].discard)(key)
            run = self.runs.get(key)
            if run is None:
                continue
            self.lost[r].difference_update(run)
            if self.reports_caches and value != self.told.get((r, run), 0):
                self.told[r, run] = value
                self._tell(CACHE, run, r, value)

    # --- what is known ---

    def _states(self, keep: bool = True, *, lost: bool = True) -> list[State]:
        """The replicas as they are, but for what they lost unnoticed, if that is to count as held."""
        known = zip(self.replicas, self.sent, self.published, strict=True)
        states = [true_state(*each, keep) for each in known]
        if not lost:
            return states
        return [
            replace(state, held=gone | published) if gone else state
            for state, gone, published in zip(states, self.lost, self.published, strict=True)
        ]

    def _known(self, kind: str, router: Router) -> list[State]:
        """States of all replicas by a kind of view."""
        if kind == "periodic":
            return self.snapshot
        if kind == "delayed":
            return [past.at(self.now_ps - self.rules.delay_ps) for past in self.pasts]
        if kind == "own":
            mine = [[q for q in sent if self.owner[q.index] == router.number] for sent in self.sent]
            return [reckoned_state(sent) for sent in mine]
        return self._states(keep=False)

    def _view(self, router: Router, request: Request) -> Seen:
        rules = self.rules
        known = {
            kind: self._known(kind, router) for kind in {rules.loads, rules.metrics, rules.caches} - {SENT}
        }

        def match(replica: int) -> int:
            if rules.caches == SENT:
                return router.sent_blocks.matched_tok(request, replica)
            held = known[rules.caches][replica].held
            return held_tok(request, held, *self._flying(router, replica))

        loads, metrics = (known[kind][: self.active] for kind in (rules.loads, rules.metrics))
        return seen(self.now_ps, rules, loads, metrics, self.kv_blocks, match)

    def _flying(self, router: Router, replica: int) -> list[frozenset[int]]:
        """Keys that a replica is about to compute, of the requests that a router knows to be in flight there.

        Its own it knows of at once, the others' and that any has ended as fresh as its view.
        """
        rules = self.rules
        if not rules.in_flight:
            return []
        until_ps = self.now_ps - rules.delay_ps
        if rules.loads == "periodic":
            until_ps = self.now_ps // rules.period_ps * rules.period_ps
        own = [
            request
            for request in self.requests
            if request.replica == replica
            and self.owner[request.index] == router.number
            and (request.done_fs < 0 or request.done_fs // FS_PER_PS > until_ps)
        ]
        others = [] if rules.loads == "own" else [self._known(rules.loads, router)[replica].prompts]
        return [keys_of(own), *others]

    # --- reports ---

    def _tell(self, kind: str, what: Any, replica: int, value: int = 0) -> None:
        self.unread.append(Report(self.now_ps, kind, what, replica, value))

    def _reached(self) -> int:
        """How many of the unread reports have reached the routers."""
        if self.rules.loads == "periodic":
            return self.due
        latest_ps = self.now_ps - self.rules.delay_ps
        return sum(report.ps <= latest_ps for report in self.unread)

    def _read(self) -> bool:
        """Give the routers what has reached them; returns whether a request has begun or ended by that."""
        count = self._reached()
        reports, self.unread, self.due = self.unread[:count], self.unread[count:], 0
        for report in reports:
            if report.kind == CACHE:
                for router in self.routers:
                    router.hear(report)
            elif report.kind != SENT:
                self.routers[self.owner[report.what.index]].hear(report)
        return any(report.kind in (FIRST_TOKEN, FINISHED) for report in reports)

    # --- what routers do ---

    def _ask(self, request: Request) -> bool:
        """Ask a request's router; returns whether the request is gone."""
        router = self.routers[self.owner[request.index]]
        view = self._view(router, request)
        choice = router.policy.choose(view, request)
        if choice == HOLD:
            return False
        if choice == REJECT:
            self._answered(request)
        else:
            self._send(router, request, choice, view.sending)
        return True

    def _send(self, router: Router, request: Request, r: int, sending: tuple[int, int] | None) -> None:
        request.replica = r
        self.sent[r].append(request)
        if self.rules.loads == "delayed":
            self._tell(SENT, request, r)
        router.sent_blocks.remember(request, r)
        if sending is None:
            self.replicas[r].arrive(request)
        else:
            blocks, ps = sending
            self.on_way.append((self.now_ps + ps, request, blocks))
            self.on_way.sort(key=lambda item: item[0])  # stable: first sent, first there

    def _route(self) -> None:
        """Do what there is to do for routers at this instant, each time with what they have heard by then."""
        while True:
            self._ask_again(self._read())
            if self.on_way and self.on_way[0][0] <= self.now_ps:
                _, request, blocks = self.on_way.pop(0)
                replica = self.replicas[request.replica or 0]
                if replica.up_ps <= self.now_ps:  # what is sent to one that is down is lost
                    self._install(replica, request, blocks)
                replica.arrive(request)
            elif self.pending and self.pending[0].arrival_ps == self.now_ps:
                request = self.pending.pop(0)
                if not self._ask(request):
                    self._hold(request)
            else:
                return

    def _answered(self, request: Request) -> None:
        """Let those that wait for this one come when they have thought."""
        for later in self.requests:
            if later.follows == request.index:
                later.arrival_ps = self.now_ps + later.think_ps
                self.pending.append(later)
        self.pending.sort(key=lambda each: (each.arrival_ps, each.index))

    def _install(self, replica: Replica, request: Request, blocks: int) -> None:
        """Copy the prompt's first blocks, run by run, as far as others share them and there is room."""
        units = request.units
        if self.engine == "lecture":
            for key, tokens in units:
                blocks -= tokens
                if blocks < 0 or not replica.memory.install(key, tokens):
                    return
            return
        shared = [key for key, _ in units[:blocks] if key in self.runs]
        for _, keys in groupby(shared, key=self.runs.__getitem__):
            if not replica.memory.install(list(keys)):
                return

    def _hold(self, request: Request) -> None:
        """Keep a request; from now on first tokens and ends are reported, whoever else asks for them."""
        self.held.append(request)
        self.reports_requests = True
        self._wait_for_refresh()

    def _wait_for_refresh(self) -> None:
        if self.held and self.rules.period_ps:
            self.wake_ps = self._next_tick()

    def _next_tick(self) -> int:
        return (self.now_ps // self.rules.period_ps + 1) * self.rules.period_ps

    def _ask_again(self, told: bool) -> None:
        """Ask for all requests held back, if there is reason to: a report, or a refresh waited for."""
        if self.held and (told or self.wake_ps == self.now_ps):
            self.wake_ps = None
            self.held = [request for request in self.held if not self._ask(request)]
            if told:
                self._wait_for_refresh()

    # --- the clock ---

    def run(self) -> Outcome:
        """Serve all requests."""
        while (instant := self._next_instant()) is not None:
            self._refresh_before(instant)
            self.now_ps = instant
            self._instant()
        if self.held:
            raise HeldForEver
        return Outcome(sorted(self.requests, key=lambda request: request.index), self.replicas)

    def _next_instant(self) -> int | None:
        instants = [replica.end_fs // FS_PER_PS for replica in self.replicas if replica.in_step]
        instants += [self.pending[0].arrival_ps] if self.pending else []
        instants += [self.on_way[0][0]] if self.on_way else []
        instants += [replica.up_ps for replica in self.replicas if replica.can_start()]
        if self.outages and self._unfinished():
            instants.append(self.outages[0][0])
        if self.held:
            instants += [self.wake_ps] if self.wake_ps is not None else []
            if self.unread and self.rules.loads == "periodic":
                instants.append(self._next_tick())
            elif self.unread:
                instants.append(self.unread[0].ps + self.rules.delay_ps)
        return min(instants, default=None)

    def _refresh_before(self, instant_ps: int) -> None:
        """Nothing changes between two instants: a refresh there sees the state after the earlier one."""
        period = self.rules.period_ps
        if period and self.now_ps < (instant_ps - 1) // period * period:
            self._refresh()

    def _refresh(self) -> None:
        self.snapshot = self._states(lost=False)
        self.due = len(self.unread)

    def _instant(self) -> None:
        for r, replica in enumerate(self.replicas):
            if replica.in_step and replica.end_fs // FS_PER_PS == self.now_ps:
                replica.finish_step()
                self._end_step(r)
        while self.outages and self.outages[0][0] == self.now_ps and self._unfinished():
            self._befall(*self.outages.pop(0)[1:])
        if self.rules.period_ps and self.now_ps % self.rules.period_ps == 0:
            self._refresh()
        self._route()
        for replica in self.replicas:
            replica.start_step(self.now_ps)
        if "delayed" in (self.rules.loads, self.rules.metrics, self.rules.caches):
            for past, state in zip(self.pasts, self._states(), strict=True):
                if state != past.states[-1]:
                    past.add(self.now_ps, state)

    def _unfinished(self) -> bool:
        """Whether any request is still to be served; if not, outages matter to nobody."""
        return bool(self.pending or self.on_way or self.held or any(map(Replica.in_flight, self.replicas)))

    def _befall(self, kind: int, r: int, down_ps: int) -> None:
        """Let an outage happen."""
        if kind == JOIN:
            self.active += 1
            return
        memory = self.replicas[r].memory
        if kind != TOLD:
            self.lost[r] |= {key for key in self.published[r] if key in self.runs}
            self.published[r].clear()
            self.events[r].clear()
            listener, memory.changed = memory.changed, lambda key: None
            self.replicas[r].restart(self.now_ps, down_ps)
            memory.changed = listener
        if kind == RESTART_SILENTLY:
            return
        gone = {self.runs[key] for key in self.lost[r]}
        for run in gone:
            self.lost[r].difference_update(run)
            if self.reports_caches:
                self.told[r, run] = 0
                self._tell(CACHE, run, r, 0)

    def _end_step(self, r: int) -> None:
        """Take note of cache events, first tokens and ends."""
        self._publish(r)
        news, self.replicas[r].news = self.replicas[r].news, []
        for kind, request in news:
            if kind == FINISHED:
                self.sent[r].remove(request)
                self._answered(request)
            if self.reports_requests:
                self._tell(kind, request, r, request.queued_ps if kind == FIRST_TOKEN else 0)


def _step_times(case: dict) -> list[StepTime]:
    """The step time of each replica; speeds are 1 over whole numbers."""
    step_time = StepTime(case["step_ms"])
    speeds = case.get("speeds") or [1.0] * case.get("replicas", 1)
    return [step_time.slowed(round(1 / speed)) for speed in speeds]


def _outages(case: dict) -> list[tuple[int, int, int, int]]:
    """What happens to replicas from outside, in order: instant, kind, replica, time down (ps)."""
    joins = case.get("joins_s") or ()
    first = case.get("replicas", 1) - len(joins)
    found = [(to_ps(at_s), JOIN, first + k, 0) for k, at_s in enumerate(sorted(joins))]
    for restart in case.get("restarts") or ():
        at_ps, r = to_ps(restart["at_s"]), restart["replica"]
        told_ps = to_ps(restart.get("told_after_s", 0.0))
        kind = RESTART_SILENTLY if told_ps else RESTART
        found.append((at_ps, kind, r, to_ps(restart.get("down_s", 0.0))))
        found += [(at_ps + told_ps, TOLD, r, 0)] if told_ps else []
    return sorted(found)


def run_cluster(case: dict, draws: Callable[[int], Any] | None = None) -> Outcome:
    """Serve a case on ``case["replicas"]`` replicas.

    Parameters
    ----------
    case : the shape of a golden file, plus ``replicas`` (1), ``router`` ("round_robin"), ``router_params``
        ({}), ``view`` ("native"), ``routers`` (1), ``caches`` ("native"), ``counted_from`` ("sent"), and what
        happens to replicas: ``restarts``, ``joins_s`` and ``speeds`` (none).
    draws : ``draws(k)`` is the stream that router k draws from; by default the package's own.
    """
    return Cluster(case, draws or (lambda k: Stream(0, 0, k))).run()
