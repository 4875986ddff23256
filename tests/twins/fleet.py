"""A fleet on one clock, in plain Python: all clusters side by side, every call sent on when it is due.

The package simulates cluster after cluster where it can; here nothing is taken apart. At one instant (an
integer picosecond) all step ends of all clusters come first, then the calls that are due, by question and
stage, then step starts.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from tests.twins.engine import FS_PER_PS, Identities, Replica, Request, StepTime, to_ps


@dataclass
class Cluster:
    """Replicas of one model behind "round_robin" or "least_loaded"."""

    engine: dict
    step_time: StepTime
    replicas: int
    router: str
    most_load: float = float("inf")
    per_load: float = 0.0
    turn: int = 0
    members: list[Replica] = field(default_factory=list)
    identities: Identities = field(default_factory=Identities)

    def start(self) -> None:
        self.members = [Replica(self.engine, self.step_time) for _ in range(self.replicas)]

    def in_flight(self) -> int:
        return sum(replica.in_flight() for replica in self.members)

    def choose(self) -> int:
        if self.router == "round_robin":
            self.turn += 1
            return (self.turn - 1) % self.replicas
        loads = [replica.in_flight() for replica in self.members]
        return loads.index(min(loads))


@dataclass
class Call:
    """A call that reached its cluster."""

    question: int
    stage: int
    model: int
    ready_ps: int
    refused: bool = False
    replica: int = -1
    request: Request | None = None


class Fleet:
    """A run; `plan` as the package has it, read as lists."""

    def __init__(self, plan, arrival_s, clusters: dict[int, Cluster]):
        self.models = plan.calls.tolist()
        self.plan = plan
        self.clusters = clusters
        self.after_ps = [to_ps(seconds) for seconds in plan.after_s.tolist()]
        self.arrival_ps = [to_ps(seconds) for seconds in arrival_s]
        self.done_ps: list[dict[int, int]] = [{} for _ in self.models]
        self.over = [False] * len(self.models)  # a call was refused: no more calls
        self.due: list[tuple[int, int, int]] = []
        self.calls: dict[tuple[int, int], Call] = {}
        self.owner: dict[int, Call] = {}

    def run(self) -> None:
        for cluster in self.clusters.values():
            cluster.start()
        for question in range(len(self.models)):
            for stage, inputs in enumerate(self.plan.inputs):
                if not inputs:
                    self._reach(question, stage, self.arrival_ps[question])
        while True:
            ends = [replica.end_fs // FS_PER_PS for replica in self._replicas() if replica.in_step]
            instants = ends + [due_ps for due_ps, _, _ in self.due[:1]]
            if not instants:
                return
            self._instant(min(instants))

    def _replicas(self) -> list[Replica]:
        return [replica for cluster in self.clusters.values() for replica in cluster.members]

    def _instant(self, now_ps: int) -> None:
        for replica in self._replicas():
            if replica.in_step and replica.end_fs // FS_PER_PS == now_ps:
                for request in replica.finish_step():
                    call = self.owner[id(request)]
                    self._finish(call.question, call.stage, now_ps)
        while self.due and self.due[0][0] == now_ps:
            _, question, stage = heapq.heappop(self.due)
            self._arrive(question, stage, now_ps)
        for replica in self._replicas():
            replica.start_step(now_ps)

    def _reach(self, question: int, stage: int, ready_ps: int) -> None:
        """All that a stage waits for is there."""
        if self.models[question][stage] < 0 or self.over[question]:
            self._finish(question, stage, ready_ps)
        else:
            heapq.heappush(self.due, (ready_ps, question, stage))

    def _finish(self, question: int, stage: int, ps: int) -> None:
        """A stage is done; let those go on that waited for it last."""
        done = self.done_ps[question]
        done[stage] = ps
        for later, inputs in enumerate(self.plan.inputs):
            if stage in inputs and all(i in done for i in inputs):
                self._reach(question, later, max(done[i] + self._wait_ps(question, i) for i in inputs))

    def _wait_ps(self, question: int, stage: int) -> int:
        call = self.calls.get((question, stage))
        return self.after_ps[stage] if call and not call.refused else 0

    def _arrive(self, question: int, stage: int, now_ps: int) -> None:
        model = self.models[question][stage]
        cluster = self.clusters[model]
        call = self.calls[question, stage] = Call(question, stage, model, now_ps)
        if self.plan.inputs[stage] and self._refuses(cluster, question, stage):
            call.refused = True
            self.over[question] = True
            self._finish(question, stage, now_ps)
            return
        call.request = self._request(question, stage, now_ps, cluster)
        self.owner[id(call.request)] = call
        call.replica = cluster.choose()
        cluster.members[call.replica].arrive(call.request)

    def _refuses(self, cluster: Cluster, question: int, stage: int) -> bool:
        load = cluster.in_flight() / cluster.replicas
        if load > cluster.most_load:
            return True
        return cluster.per_load * load > self.plan.margin[question][stage]

    def _request(self, question: int, stage: int, now_ps: int, cluster: Cluster) -> Request:
        plan = self.plan
        shared = int(plan.shared_tok[question, stage])
        context = min(plan.context_tok, shared)
        path = [f"context {plan.context[question]}, {context}", f"q {plan.question[question]}, {shared}"]
        segments = dict(zip(path, (context, shared - context), strict=True))
        row = {
            "arrival_s": now_ps * 1e-12,
            "path": [name for name in path if segments[name]],
            "prompt_tokens": int(plan.prompt_tok[question, stage]),
            "output_tokens": int(plan.output_tok[question, stage]),
        }
        index = question * plan.stages + stage
        return Request(index, row, segments, cluster.engine, cluster.identities)
