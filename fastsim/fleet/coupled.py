"""Clusters on one clock: for calls that depend on answers of the very clusters that they go to.

Events are taken in the order of time over all clusters, so a call is known before anything that comes after
it has happened; nothing is guessed and nothing is done twice.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np

from fastsim.cluster.simulate import Result as ClusterResult
from fastsim.cluster.stepwise import FAR_PS, Stepwise
from fastsim.fleet.plan import Plan
from fastsim.fleet.trace import Serving, Symbols, Trace, note
from fastsim.selection.routed import NO_CALL
from fastsim.selection.tables import Ints


def coupled(
    plan: Plan, trace: Trace, symbols: Symbols, group: list[int], serving: Serving
) -> dict[int, ClusterResult]:
    """Play all calls of some models; those of models before them have been played.

    Parameters
    ----------
    plan : Plan
    trace : Trace
        Gets what became of the calls.
    symbols : Symbols
    group : list of int
    serving : Serving

    Returns
    -------
    dict of int to fastsim.cluster.simulate.Result
    """
    clock = _Clock(plan, trace, symbols, group, serving)
    clock.run()
    return clock.results()


NOT_YET = -1


def _ps(seconds: Any) -> Ints:
    return np.where(np.isfinite(seconds), np.rint(np.nan_to_num(seconds) * 1e12), NOT_YET).astype(np.int64)


class _Clock:
    """The clusters of a group, and the calls that are due."""

    def __init__(
        self, plan: Plan, trace: Trace, symbols: Symbols, group: list[int], serving: Serving
    ) -> None:
        self.plan, self.trace = plan, trace
        self.calls = plan.calls.tolist()
        self.after_ps = _ps(plan.after_s).tolist()
        self.followers = [
            [t for t, before in enumerate(plan.inputs) if s in before] for s in range(plan.stages)
        ]
        self.at: dict[int, tuple[Ints, Ints]] = {}  # question and stage of each request of a model
        self.runs: dict[int, Stepwise] = {}
        self.request: dict[tuple[int, int], int] = {}  # of a call, in the cluster of its model
        self.due: list[tuple[int, int, int]] = []
        for model in group:
            question, stage = np.nonzero(plan.calls == model)
            if not len(question):
                continue
            workload = symbols.workload(plan, model, question, stage, np.zeros(len(question)))
            self.runs[model] = serving.begin(model, workload, question, stage)
            self.at[model] = question, stage
            calls = zip(question.tolist(), stage.tolist(), strict=True)
            self.request |= {call: request for request, call in enumerate(calls)}
        # instants are whole picoseconds: seconds as floats do not tell them apart after half an hour
        self.done_ps: list[list[int]] = [row.tolist() for row in _ps(trace.done_s)]
        self.made: list[list[bool]] = [row.tolist() for row in trace.made]
        self.over = [False] * plan.size  # a call was refused: there are no more
        for question, stage in np.argwhere(
            trace.made & np.isfinite(trace.ready_s) & np.isin(plan.calls, list(self.runs))
        ):
            self._reach(int(question), int(stage), int(_ps(trace.ready_s[question, stage])))

    def run(self) -> None:
        """Until nothing is left to happen."""
        following = {model: run.next_ps() for model, run in self.runs.items()}
        while True:
            model = min(following, key=following.__getitem__)
            now = following[model]
            due = self.due[0][0] if self.due else FAR_PS
            if due < now:
                now, question, stage = heappop(self.due)
                model = self.calls[question][stage]
                news = self.runs[model].arrive(self.request[question, stage], now)
            elif now < FAR_PS:
                others = (ps for other, ps in following.items() if other != model)
                news = self.runs[model].run_to_finish(min(due, *others, FAR_PS))
            else:
                return
            following[model] = self.runs[model].next_ps()
            self._hear(model, now, *news)

    def _hear(self, model: int, now: int, finished: list[int], refused: list[int]) -> None:
        question, stage = self.at[model]
        for request in finished:
            done_ps = self.runs[model].done_ps(request)
            self._finish(int(question[request]), int(stage[request]), done_ps, made=True)
        for request in refused:
            if self.plan.keeps:  # else nothing behind it is ever reached
                asked = int(question[request])
                self.over[asked] = True
                self._finish(asked, int(stage[request]), now, made=False)

    def _reach(self, question: int, stage: int, ready_ps: int) -> None:
        """All that a stage waits for is there."""
        if self.calls[question][stage] == NO_CALL or self.over[question]:
            self._finish(question, stage, ready_ps, made=False)
        elif (question, stage) in self.request:
            heappush(self.due, (ready_ps, question, stage))

    def _finish(self, question: int, stage: int, done_ps: int, *, made: bool) -> None:
        """A stage is done; let those go on that waited for it last."""
        done, was_made = self.done_ps[question], self.made[question]
        done[stage], was_made[stage] = done_ps, made
        for later in self.followers[stage]:
            before = self.plan.inputs[later]
            if all(done[i] != NOT_YET for i in before):
                self._reach(question, later, max(done[i] + self.after_ps[i] * was_made[i] for i in before))

    def results(self) -> dict[int, ClusterResult]:
        """Write down what became of the calls; the clusters' results."""
        found: dict[int, ClusterResult] = {}
        for model, run in self.runs.items():
            if run.came:
                found[model] = run.result()
                question, stage = self.at[model]
                note(self.trace, question[run.came], stage[run.came], found[model])
        return found
