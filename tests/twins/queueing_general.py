"""Any dispatcher and any view of the queues in plain Python, event by event.

Nothing is kept up to date that can be counted afresh: old information is answered from the list of all that
happened.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.twins.rng import Xoshiro

Floats = list[float]


@dataclass
class Job:
    serial: int
    owner: int
    at: float
    service: float
    finish: float  # time of departure (FCFS), virtual time of it (PS)


@dataclass
class Server:
    pace: float
    jobs: list[Job] = field(default_factory=list)
    free: float = 0.0
    virtual: float = 0.0
    since: float = 0.0
    # (time, requests, free) from that time on
    history: list[tuple[float, int, float]] = field(default_factory=lambda: [(-math.inf, 0, 0.0)])

    def next_departure(self, sharing: bool) -> float:
        if not self.jobs:
            return math.inf
        first = self.first(sharing)
        if not sharing:
            return first.finish
        return self.since + (first.finish - self.virtual) * len(self.jobs)

    def first(self, sharing: bool) -> Job:
        return min(self.jobs, key=lambda job: (job.finish, job.serial)) if sharing else self.jobs[0]

    def note(self, t: float) -> None:
        self.history.append((t, len(self.jobs), self.free))

    def state_at(self, u: float) -> tuple[int, float]:
        for time, count, free in reversed(self.history):
            if time <= u:
                return count, free
        raise AssertionError("a history begins with everything")


@dataclass
class Question:
    """As `fastsim.queueing.spec.QueueSpec`, in plain values."""

    pace: Floats
    sharing: bool = False
    rule: str = "full"  # full, sample, idle or given
    score: str = "count"  # count, work or delay
    update: str = "live"
    law: str = "constant"
    period: float = 0.0
    d: int = 1
    replacement: bool = True
    memory: bool = False
    add_own: bool = False
    dispatchers: int = 1


class General:
    """One run; `serve` takes all its requests at once."""

    def __init__(self, question: Question, routing: Xoshiro, updates: Xoshiro) -> None:
        q = self.q = question
        n = len(q.pace)
        self.routing, self.updates = routing, updates
        self.servers = [Server(pace) for pace in q.pace]
        self.lists = q.rule == "idle" and q.update == "own"
        boards = q.dispatchers if q.update == "own" or q.add_own else 1
        self.boards = [[q.pace[j] if q.score == "delay" else 0.0 for j in range(n)] for _ in range(boards)]
        self.own = [[0] * n for _ in range(boards)]
        self.listed = [True] * n
        if self.lists:
            self.boards = [[float(j % boards != k) for j in range(n)] for k in range(boards)]
        self.remembered: list[int | None] = [None] * q.dispatchers
        self.deck = None if q.replacement else list(range(n))
        self.refreshes = 0
        self.posts: Floats = []
        if q.update == "individual":
            even = q.law == "constant"
            self.posts = [q.period * updates.uniform() if even else self.spread() for _ in range(n)]
        self.done: list[tuple[int, float, float]] = []  # serial, delay, service (PS)

    def spread(self) -> float:
        if self.q.law == "uniform":
            return 2.0 * self.q.period * self.updates.uniform()
        if self.q.law == "exponential":
            return self.q.period * self.updates.exponential()
        return self.q.period

    def score_of(self, count: int, free: float, j: int, u: float) -> float:
        if self.q.score == "count":
            return float(count)
        if self.q.score == "work":
            return max(0.0, free - u)
        return (count + 1.0) * self.q.pace[j]

    def true_score(self, j: int, u: float) -> float:
        return self.score_of(len(self.servers[j].jobs), self.servers[j].free, j, u)

    def seen(self, j: int, k: int, u: float) -> float:
        if self.q.update == "live":
            return self.true_score(j, u)
        if self.q.update == "continuous":
            return self.score_of(*self.servers[j].state_at(u), j, u)
        return self.boards[k][j]

    def next_refresh(self) -> float:
        if self.q.update == "periodic":
            return (self.refreshes + 1.0) * self.q.period
        return min(self.posts, default=math.inf)

    def refresh(self, u: float) -> None:
        which = range(len(self.servers))
        if self.q.update == "individual":
            which = [self.posts.index(u)]
        for j in which:
            for board in self.boards:
                board[j] = self.true_score(j, u)
        if self.q.update == "individual":
            self.posts[which[0]] = u + self.spread()
        self.refreshes += 1

    def depart(self, j: int, t: float) -> None:
        server = self.servers[j]
        job = server.first(self.q.sharing)
        server.jobs.remove(job)
        if self.q.sharing:
            server.virtual, server.since = job.finish, t
            self.done.append((job.serial, max(0.0, t - job.at - job.service), job.service))
        server.note(t)
        if self.lists:
            if not server.jobs and not self.listed[j]:
                self.listed[j] = True
                self.boards[self.updates.below(len(self.boards))][j] = 0.0
        elif self.q.update == "own":
            self.add(j, job.owner, -1, job.service)

    def add(self, j: int, k: int, change: int, service: float) -> None:
        amount = {"count": 1.0, "work": service, "delay": self.q.pace[j]}[self.q.score]
        self.boards[k][j] += change * amount
        if self.q.update == "own":
            self.own[k][j] += change
            if self.own[k][j] == 0:
                self.boards[k][j] = self.q.pace[j] if self.q.score == "delay" else 0.0

    def catch_up(self, t: float) -> None:
        while True:
            due = [server.next_departure(self.q.sharing) for server in self.servers]
            refresh = self.next_refresh()
            if min(due) <= t and min(due) <= refresh:
                self.depart(due.index(min(due)), min(due))
            elif refresh <= t:
                self.refresh(refresh)
            else:
                return

    def candidates(self, dispatcher: int) -> list[int]:
        n, drawn = len(self.servers), []
        for c in range(self.q.d):
            if self.deck is None:
                drawn.append(self.routing.below(n))
            else:
                card = c + self.routing.below(n - c)
                self.deck[c], self.deck[card] = self.deck[card], self.deck[c]
                drawn.append(self.deck[c])
        remembered = self.remembered[dispatcher]
        return drawn if remembered is None or not self.q.memory else [*drawn, remembered]

    def least_of_all(self, k: int, u: float) -> int:
        n = len(self.servers)
        if self.q.update == "live" and self.q.score == "work":
            scores = [server.free for server in self.servers]
        else:
            scores = [self.seen(j, k, u) for j in range(n)]
        if self.q.rule == "idle" and min(scores) > 0.0:
            return self.routing.below(n)
        tied = [j for j in range(n) if scores[j] == min(scores)]
        return tied[self.routing.below(len(tied))]

    def arrive(self, j: int, t: float, size: float, serial: int, dispatcher: int) -> tuple[float, float]:
        server = self.servers[j]
        service = size * server.pace
        start = max(server.free, t)
        server.free = start + service
        finish = server.free
        if self.q.sharing:
            server.virtual = server.virtual + (t - server.since) / len(server.jobs) if server.jobs else 0.0
            server.since = t
            finish = server.virtual + service
        server.jobs.append(Job(serial, dispatcher, t, service, finish))
        server.note(t)
        return (0.0 if self.q.sharing else start - t), service

    def serve(
        self, at: Floats, sizes: Floats, dispatchers: list[int], targets: list[int] | None = None
    ) -> list[tuple[int, float, float]]:
        """Server, wait and time of service of every request."""
        out = []
        for serial, (t, size, dispatcher) in enumerate(zip(at, sizes, dispatchers, strict=True)):
            self.catch_up(t)
            k = dispatcher if len(self.boards) > 1 else 0
            u = t - self.spread() if self.q.update == "continuous" else t
            candidates: list[int] = []
            if targets is not None:
                j = targets[serial]
            elif self.q.rule == "sample":
                candidates = self.candidates(dispatcher)
                j = min(candidates, key=lambda j: self.seen(j, k, u))
            else:
                j = self.least_of_all(k, u)
            out.append((j, *self.arrive(j, t, size, serial, dispatcher)))
            service = out[-1][2]
            if self.lists:
                if self.boards[k][j] == 0.0:
                    self.boards[k][j] = 1.0
                    self.listed[j] = False
            elif self.q.update == "own" or self.q.add_own:
                self.add(j, k, 1, service)
            if self.q.memory:
                self.remembered[dispatcher] = min(candidates, key=lambda j: self.seen(j, k, u))
        return out
