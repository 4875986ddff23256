"""All three levels in one call: questions, the models they are sent to, and each model's cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from fastsim._interrupt import interruptible
from fastsim.cluster.config import Cluster
from fastsim.cluster.knowledge import Routers
from fastsim.cluster.simulate import Result as ClusterResult
from fastsim.cluster.simulate import simulate as serve_cluster
from fastsim.cluster.stepwise import Stepwise
from fastsim.errors import InputError, nearest, shown
from fastsim.fleet.capacity import Demand, demands
from fastsim.fleet.plan import Plan
from fastsim.fleet.play import play
from fastsim.fleet.summary import figures, summarise
from fastsim.fleet.trace import Trace
from fastsim.selection.tables import Floats, Ints
from fastsim.typed import NotNegative, Seconds, Seed, checked, reals
from fastsim.workloads import Workload

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Result", "Served", "seed_of", "simulate"]

Limit = Annotated[float, Meta(ge=0.0, extra={"infinite": True})]


@checked
@dataclass(frozen=True)
class Served:
    """What a model is served on: its cluster, the router inside, and what may be refused in front of it.

    Parameters
    ----------
    cluster : Cluster
    router, router_params, view, routers, caches, counted_from
        As in `fastsim.simulate`.
    gpu_hour : float
        Price of an hour of one GPU; all replicas are paid for all the time.
    most_load : float
        Calls that are not the question's first are refused, and the answer that is there is kept, while the
        router sees more than so many requests in flight a replica. Infinite: none is.
    per_load : float
        By how much the threshold of the stage before falls with every request in flight a replica, in units
        of trust: an escalation is charged ``mu x expected delay``, and the delay grows with the load.
    """

    cluster: Cluster
    router: str = "round_robin"
    router_params: Mapping[str, Any] | None = field(default=None, hash=False)
    view: str = "native"
    routers: Routers = 1
    caches: str = "native"
    counted_from: str = "sent"
    gpu_hour: NotNegative = 0.0
    most_load: Limit = np.inf
    per_load: NotNegative = 0.0

    @property
    def reacts(self) -> bool:
        """Whether load decides on escalations."""
        return self.most_load < np.inf or self.per_load > 0.0

    def limits(self, plan: Plan, question: Ints, stage: Ints) -> Floats:
        """Requests in flight a replica above which each call is refused, float64[calls].

        With ``per_load`` p, the threshold t and the trust s, load L refuses if s > t - p L.
        """
        limit = np.full(len(question), self.most_load)
        if self.per_load > 0.0:
            limit = np.minimum(limit, plan.margin[question, stage] / self.per_load)
        first = np.array([not before for before in plan.inputs])
        return np.where(first[stage], np.inf, limit)

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.cluster.replicas * self.cluster.tp


@dataclass(frozen=True)
class Result:
    """What a run left behind.

    Parameters
    ----------
    plan : Plan
    columns : dict of str to array
        Of `questions`, one entry a question: question, arrival_s, done_s (NaN if unanswered), calls (made),
        refused (calls that were), answer (model of the answer; -1 if unanswered, or a system's), score, cost
        (price of the calls made).
    trace : Trace
        Every call.
    clusters : dict of str to fastsim.cluster.simulate.Result
        Of the models that were called.
    served : dict of str to Served
    warmup_s : float
        Questions that arrive before this instant are left out of the summary.
    measure : callable
        () -> what a question asks of each cluster: asked when that is first wanted, for it takes runs of its
        own.
    """

    plan: Plan
    columns: dict[str, np.ndarray]
    trace: Trace
    clusters: dict[str, ClusterResult]
    served: dict[str, Served]
    warmup_s: float
    measure: Callable[[], dict[str, Demand]]

    def __repr__(self) -> str:
        """Short: a notebook prints it, and the columns are as long as the run."""
        return f"<Result: {self.plan.size:,} questions, {', '.join(self.clusters)}>"

    @cached_property
    def questions(self) -> pl.DataFrame:
        """One row a question, with the columns of `columns`."""
        import polars as pl

        return pl.DataFrame(self.columns)

    @cached_property
    def calls(self) -> pl.DataFrame:
        """One row a call that reached its cluster, question by question and stage by stage."""
        import polars as pl

        question, stage = np.nonzero(self.trace.made | self.trace.refused)
        at = (question, stage)
        names = np.array(self.plan.models)
        return pl.DataFrame(
            {
                "question": question,
                "stage": stage,
                "model": names[self.plan.calls[at]],
                "ready_s": self.trace.ready_s[at],
                "first_token_s": self.trace.first_s[at],
                "done_s": np.where(self.trace.made[at], self.trace.done_s[at], np.nan),
                "replica": self.trace.replica[at],
                "prompt_tok": self.plan.prompt_tok[at],
                "output_tok": self.plan.output_tok[at],
                "hit_tok": self.trace.hit_tok[at],
                "refused": self.trace.refused[at],
            }
        )

    @cached_property
    def demands(self) -> dict[str, Demand]:
        """What a question asks of each cluster that is called, measured when it is first asked for."""
        return self.measure()

    @property
    def offered_rps(self) -> float | None:
        """Questions per second; None where all come at one time."""
        arrival = self.columns["arrival_s"]
        span_s = float(arrival[-1] - arrival[0])
        return (len(arrival) - 1) / span_s if span_s > 0.0 else None

    @cached_property
    def figures(self) -> dict[str, Any]:
        """As `summary`, but for the clusters and the verdict: P99s whether overloaded or not."""
        return figures(self)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Accuracy, cost, latency, and each cluster's load; see `fastsim.fleet.summary`."""
        return summarise(self)


def seed_of(seed: int, model: int) -> int:
    """Seed of the routing stream inside the cluster of a model, by its place: that of the first is `seed`."""
    return seed + (model << 40)


@checked
def simulate(
    plan: Plan,
    arrival_s: ArrayLike,
    served: Mapping[str, Any],
    *,
    seed: Seed = 0,
    replicate: Seed = 0,
    warmup_s: Seconds = 0.0,
) -> Result:
    """Serve a stream of questions by a fleet of clusters, one a model.

    Parameters
    ----------
    plan : Plan
        Of n questions, in order of arrival; ``plan.take(rows)`` draws them from a table's.
    arrival_s : float64[n]
        Ascending, from 0 on.
    served : mapping of str to Served or Cluster
        For every model that is called.
    seed, replicate : int
        Of the routing streams.
    warmup_s : float
        Leave questions that arrive before this instant out of the summary.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        Before anything runs, if a model that is called has no cluster, arrivals do not fit the questions, or
        load is to decide on the calls of a compound system, which has no answer to keep.

    Notes
    -----
    A call reaches its cluster when all that it waits for is there, and is prefilled anew. Escalations thus
    are a thinned and delayed copy of what arrived, with the lengths of the questions that escalate.
    """
    arrival = _arrivals(arrival_s, plan)
    fleet = _fleet(plan, served)
    trace, results = interruptible(partial(play, plan, arrival, _Clusters(plan, fleet, seed, replicate)))
    clusters = {plan.models[model]: results[model] for model in sorted(results)}
    measure = partial(demands, plan, fleet, seed=seed, replicate=replicate)
    return Result(plan, _columns(plan, arrival, trace), trace, clusters, fleet, warmup_s, measure)


@dataclass(frozen=True)
class _Clusters:
    """What `play` asks for: each model's cluster with its router, seed and limits."""

    plan: Plan
    fleet: Mapping[str, Served]
    seed: int
    replicate: int

    def serve(self, model: int, workload: Workload, question: Ints, stage: Ints) -> ClusterResult:
        return self._made_by(serve_cluster, model, workload, question, stage)

    def begin(self, model: int, workload: Workload, question: Ints, stage: Ints) -> Stepwise:
        return self._made_by(Stepwise, model, workload, question, stage)

    def _made_by(self, make: Any, model: int, workload: Workload, question: Ints, stage: Ints) -> Any:
        what = self.fleet[self.plan.models[model]]
        return make(
            workload,
            what.cluster,
            what.router,
            what.router_params,
            view=what.view,
            routers=what.routers,
            caches=what.caches,
            counted_from=what.counted_from,
            most_load=what.limits(self.plan, question, stage) if what.reacts else None,
            seed=seed_of(self.seed, model),
            replicate=self.replicate,
        )


def _arrivals(arrival_s: ArrayLike, plan: Plan) -> Floats:
    arrival = reals("arrival_s", arrival_s)
    if arrival.shape != (plan.size,):
        raise InputError(f"arrival_s has the shape {arrival.shape}; the plan has {plan.size} questions")
    if not (arrival[0] >= 0.0 and (np.diff(arrival) >= 0.0).all()):
        raise InputError("arrival_s must be finite and ascending, from 0 on")
    return arrival


def _fleet(plan: Plan, served: Mapping[str, Served | Cluster]) -> dict[str, Served]:
    if not isinstance(served, Mapping):
        raise InputError(
            f"served = {shown(served)} is not allowed; it must be a mapping of models to clusters"
        )
    for name in served:
        if name not in plan.models:
            raise InputError(f"served: there is no model {shown(name)}; {nearest(str(name), plan.models)}")
    fleet: dict[str, Served] = {}
    for model, load in zip(plan.models, plan.loads, strict=True):
        if model not in served:
            if load > 0.0:
                raise InputError(f"served: model {model!r} is called, but it has no cluster")
            continue
        what = served[model]
        fleet[model] = what if isinstance(what, Served) else Served(what)
        if fleet[model].reacts and not plan.keeps:
            raise InputError(
                f"served: the load of {model!r} cannot decide on calls of a compound system, which has no "
                "earlier answer to keep; leave most_load and per_load out"
            )
    return fleet


def _columns(plan: Plan, arrival_s: Floats, trace: Trace) -> dict[str, np.ndarray]:
    calls = trace.made.sum(axis=1)
    done = np.maximum.reduce([trace.done_s[:, stage] for stage in plan.last])
    refused = trace.refused[:, 0] if plan.keeps else trace.refused.any(axis=1)
    answered = ~refused & np.isfinite(done)
    last = np.maximum(calls - 1, 0) if plan.keeps else np.zeros(plan.size, np.int64)
    rows = np.arange(plan.size)
    return {
        "question": plan.question,
        "arrival_s": arrival_s,
        "done_s": np.where(answered, done, np.nan),
        "calls": calls,
        "refused": trace.refused.sum(axis=1),
        "answer": np.where(answered & plan.keeps, plan.calls[rows, last], -1),
        "score": np.where(answered, plan.score[rows, last], np.nan),
        "cost": (plan.price * trace.made).sum(axis=1),
    }
