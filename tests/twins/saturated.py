"""The cluster at saturation, in plain Python: a request comes as soon as fewer than so many others wait.

After everything at an instant, and before steps start, requests are let come while there is room. There is
another look a picosecond after steps have started, which may admit some of those that wait. A refused request
comes again at the next look, and is given up when nothing else happens any more. With more than 64 replicas
there is a look at every second instant only, with more than 128 at every third.
"""

from __future__ import annotations

from tests.twins.cluster import Cluster, HeldForEver, Outcome, Stream
from tests.twins.engine import FS_PER_PS, Request

REPLICAS_A_LOOK = 64


class Saturated(Cluster):
    """A run of a case; arrival times in it do not count."""

    def __init__(self, case: dict, waiting: int):
        super().__init__(case, lambda k: Stream(0, 0, k))
        self.waiting = waiting
        self.pending = []
        self.to_come = sorted(self.requests, key=lambda request: request.index)
        self.answered: set[int | None] = {None}
        self.refused: Request | None = None
        self.refusals = 0

    def run(self) -> Outcome:
        """Serve all requests."""
        self.now_ps = 0
        instants = 0
        while True:
            if instants % (1 + len(self.replicas) // REPLICAS_A_LOOK) == 0:
                self._let_come()
            started = self._start()
            instant = self.now_ps + 1 if started else self._next_instant()
            if instant is None:
                if self.held:
                    raise HeldForEver
                if self.refused is None:
                    return Outcome(sorted(self.requests, key=lambda request: request.index), self.replicas)
                self.answered.add(self.refused.index)
                self.refused = None
                instants = 0
                continue
            self._refresh_before(instant)
            self.now_ps = instant
            self._until_starts()
            instants += 1

    def _until_starts(self) -> None:
        for r, replica in enumerate(self.replicas):
            if replica.in_step and replica.end_fs // FS_PER_PS == self.now_ps:
                replica.finish_step()
                self._end_step(r)
        if self.rules.period_ps and self.now_ps % self.rules.period_ps == 0:
            self._refresh()
        self._route()

    def _start(self) -> bool:
        could = any(replica.can_start() for replica in self.replicas)
        for replica in self.replicas:
            replica.start_step(self.now_ps)
        if "delayed" in (self.rules.loads, self.rules.metrics, self.rules.caches):
            for past, state in zip(self.pasts, self._states(), strict=True):
                if state != past.states[-1]:
                    past.add(self.now_ps, state)
        return could

    def _let_come(self) -> None:
        while self._waiting() < self.waiting:
            request = self.refused or self._next()
            if request is None:
                return
            self.refused = None
            request.arrival_ps = self.now_ps
            self.pending = [request]
            self._route()
            if self.refused is not None:
                self.refusals += 1
                return

    def _waiting(self) -> int:
        flying = sum(len(sent) for sent in self.sent)
        return len(self.held) + flying - sum(len(replica.running) for replica in self.replicas)

    def _next(self) -> Request | None:
        for request in self.to_come:
            if request.follows in self.answered:
                self.to_come.remove(request)
                return request
        return None

    def _answered(self, request: Request) -> None:
        """A request has ended, or its router has refused it."""
        if request.replica is None:
            self.refused = request
        else:
            self.answered.add(request.index)
