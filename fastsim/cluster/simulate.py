"""One call: a workload on a cluster behind a router, every request's record and a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from fastsim._interrupt import interruptible
from fastsim.cluster import _state as st
from fastsim.cluster._loop import route_blindly, run, run_apart
from fastsim.cluster._workspace import grown, new_state, sizes
from fastsim.cluster.config import Cluster
from fastsim.cluster.knowledge import (
    Routers,
    new_views,
    owners,
    settle,
    views_with_joined,
    views_with_larger_trees,
)
from fastsim.cluster.prefix import Prompts, compile_prompts
from fastsim.cluster.routers import Router, get
from fastsim.cluster.routers.view import deaf, pack_views
from fastsim.cluster.summary import cached_copies, figures, summarise
from fastsim.errors import InputError, shown
from fastsim.typed import Seconds, Seed, checked, reals
from fastsim.workloads import Workload

if TYPE_CHECKING:
    import polars as pl

    from fastsim.cluster.capacity import Capacity


_LAST_S = (st.NEVER >> 1) * 1e-12  # of a run


@dataclass(frozen=True)
class Result:
    """What a run left behind.

    Parameters
    ----------
    columns : dict of str to array
        Of `requests`, in the order of arrival; ``request`` is the place in the workload. One that its router
        refused has replica -1 and no times.
    replicas : dict of str to array
        Totals a replica: busy_s, steps, computed_tok, preemptions, evicted_blocks, requests.
    copies : float
        Cached tokens at the end over distinct cached tokens.
    events : int
        Events handled: steps with prefills, and runs of decode steps.
    warmup_s : float
        Requests that arrive before this instant are left out of the summary.
    log : dict of str to array, optional
        Of `routes`, a row a request and a column a replica.
    offered_rps : float, optional
        The workload's rate, see `Workload.offered_rps`.
    measure : callable, optional
        () -> `Capacity`: asked when the capacity is first wanted, for it takes a run of its own.
    """

    columns: dict[str, np.ndarray]
    replicas: dict[str, np.ndarray]
    copies: float
    events: int
    warmup_s: float
    log: dict[str, np.ndarray] | None = None
    offered_rps: float | None = None
    measure: Callable[[], Capacity] | None = None

    def __repr__(self) -> str:
        """Short: a notebook prints it, and the columns are as long as the run."""
        return (
            f"<Result: {len(self.columns['request']):,} requests, {len(self.replicas['busy_s']):,} replicas>"
        )

    @cached_property
    def requests(self) -> pl.DataFrame:
        """One row a request, with the columns of `columns`."""
        import polars as pl

        return pl.DataFrame(self.columns)

    @cached_property
    def routes(self) -> pl.DataFrame:
        """What routers knew, one row a request and replica; only of a run that was recorded.

        Columns request, replica, chosen, in_flight (requests), match_tok (tokens of the prompt held) and
        score (what the policy made of the replica, null where it makes no scores).

        Raises
        ------
        InputError
            If the run was not recorded.
        """
        import polars as pl

        if self.log is None:
            raise InputError("routes: the run was not recorded; simulate with record=True")
        n, replicas = self.log["in_flight"].shape
        replica = np.tile(np.arange(replicas), n)
        score = self.log["score"].ravel()
        return pl.DataFrame(
            {
                "request": np.repeat(self.columns["request"], replicas),
                "replica": replica,
                "chosen": np.repeat(self.columns["replica"], replicas) == replica,
                "in_flight": self.log["in_flight"].ravel(),
                "match_tok": self.log["match_tok"].ravel(),
                "score": score,
            }
        ).with_columns(pl.col("score").fill_nan(None))

    @cached_property
    def capacity(self) -> Capacity | None:
        """The highest rate that this cluster and router can finish, measured when it is first asked for."""
        return self.measure() if self.measure else None

    @cached_property
    def figures(self) -> dict[str, Any]:
        """As `summary`, but for the verdict that takes another run: P99s whether overloaded or not."""
        return figures(self)

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Latencies, cache use, balance, throughput and offered load; see `fastsim.cluster.summary`."""
        return summarise(self)


@checked
def simulate(
    workload: Workload,
    cluster: Cluster,
    router: str = "round_robin",
    router_params: Mapping[str, Any] | None = None,
    *,
    view: str = "native",
    routers: Routers = 1,
    caches: str = "native",
    counted_from: str = "sent",
    seed: Seed = 0,
    replicate: Seed = 0,
    warmup_s: Seconds = 0.0,
    record: bool = False,
    most_load: ArrayLike | None = None,
) -> Result:
    """Serve a workload on a cluster behind a router.

    Requests that follow others (`Workload.follows`) come when those are answered: a closed loop.

    Parameters
    ----------
    workload : Workload
        From `fastsim.workloads.load` or `make`.
    cluster : Cluster
    router : str
        A registered policy, see `fastsim.routers()`.
    router_params : mapping, optional
        The policy's parameters.
    view : str
        How fresh what the routers see is: "live"; "own" for what each has sent and heard back itself;
        "periodic(T)" for a snapshot every T seconds; "delayed(d)" for reports d seconds old; "native" for
        what the policy's system has (live for the plain policies).
    routers : int
        Independent routers that share the traffic, each with its own memory and counts.
    caches : str
        How policies that follow caches know of them: "events" as replicas report when a step ends, as fresh
        as the view (docs/cache-events.md);
        "in_flight" by events, and by the prompts sent there that have not ended, which are about to be
        computed: a router knows what it sent itself at once, what others sent, and all ends, as fresh as
        the view; "approximate" by what the router sent, forgetting the oldest blocks beyond a replica's
        capacity; "native" as the policy's system does: in flight for the lecture's policies, else events,
        except for policies that keep a tree of their own.
    counted_from : str
        From when a request counts as load: "sent", or "first_token" where routers learn of it only then.
    seed, replicate : int
        Of the routing stream; the workload has its own.
    warmup_s : float
        Leave requests that arrive before this instant out of the summary.
    record : bool
        Keep what each router knew of every replica at every decision, and its scores: `Result.routes`.
    most_load : float or float64[requests], optional
        Refuse a request, before its router is asked, while that sees more requests in flight a replica.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        Before anything runs, if a name is unknown, a value out of range or a request can never fit.
    """
    options: dict[str, Any] = {
        "view": view,
        "routers": routers,
        "caches": caches,
        "counted_from": counted_from,
        "seed": seed,
        "replicate": replicate,
        "record": record,
        "most_load": most_load,
    }
    policy, state, views = begun(workload, cluster, router, router_params, **options)
    if workload.is_closed:
        from fastsim.cluster.closed_loop import serve_sessions  # made of what this module holds

        result = interruptible(partial(serve_sessions, workload, policy, state, views, warmup_s))
    else:
        result = result_of(workload, _served(state, views, policy), warmup_s)
    from fastsim.cluster.capacity import capacity  # as above

    asked = {name: value for name, value in options.items() if name not in ("record", "most_load")}
    found = partial(capacity, workload, cluster, router, router_params, **asked)
    measure = partial(interruptible, found)
    return replace(result, offered_rps=workload.offered_rps, measure=measure)


@checked
def begun(
    workload: Workload,
    cluster: Cluster,
    router: str,
    router_params: Mapping[str, Any] | None,
    *,
    view: str,
    routers: Routers,
    caches: str,
    counted_from: str,
    seed: Seed,
    replicate: Seed,
    record: bool = False,
    most_load: ArrayLike | None = None,
) -> tuple[Router, Any, list[Any]]:
    """Check what `simulate` is asked, and make the state and the views at time 0."""
    policy = get(router)
    if record:  # what nobody asked for is to be seen all the same
        policy = replace(policy, needs=policy.needs | {"matches"}, blind=False)
    limits = _limits(most_load, len(workload))
    if limits is not None:
        policy = replace(policy, blind=False)
    params = policy.spec(router_params)
    knowledge = settle(policy, params, view, routers, caches, counted_from)

    def start(
        workload: Workload, cluster: Cluster, record: bool = False, limits: np.ndarray | None = None
    ) -> tuple[Any, list[Any]]:
        prompts = compiled(workload, cluster)
        owner = owners(len(workload), routers, seed, replicate)
        state = new_state(
            workload,
            prompts,
            cluster,
            knowledge,
            policy,
            owner,
            sizes(prompts, cluster),
            record=record,
            most_load=limits,
        )
        return state, new_views(state, knowledge, policy, params, workload, cluster, seed, replicate)

    made = start(workload, cluster, record, limits)
    if policy.trial:
        from fastsim.cluster.trial import try_out  # which goes on with runs as this module does

        try_out(policy, (params, knowledge), workload, cluster, start)
    return policy, *made


def _served(state: Any, views: list[Any], policy: Router) -> Any:
    """Run a state to its end, with larger pools whenever they fill up; returns the last state."""
    order = None
    heard = policy.heard or deaf
    if (
        policy.blind
        and len(state.outage) == 0
        and interruptible(partial(route_blindly, state, pack_views(views), policy.policy)) == st.NO_FAULT
    ):
        order = np.argsort(state.req[:, st.REPLICA], kind="stable")
        state.cfg[st.NEWS] = 0  # nobody listens
    while True:
        if order is None:
            fault = stoppable(state, partial(run, state, pack_views(views), policy.policy, heard))
        else:
            fault = int(interruptible(partial(run_apart, state, order)))
        if fault == st.NO_FAULT:
            return state
        state, views = repaired(fault, state, views, policy)


def stoppable(state: Any, work: Callable[[], int]) -> int:
    """Do a run's work on a state, which an interrupt stops; returns the fault."""
    try:
        return int(interruptible(work))
    except BaseException:
        state.pool[st.FAULT] = st.STOPPED  # unless the policy itself never returns, that ends the thread
        raise


def repaired(fault: int, state: Any, views: list[Any], policy: Router) -> tuple[Any, list[Any]]:
    """State and views with which a run can go on after a fault; an InputError if it cannot."""
    if fault == st.BAD_ROUTE:
        last = len(state.load) - 1
        raise InputError(
            f"router {policy.name!r} chose no replica; it must return a whole number from 0 to {last}"
        )
    if fault == st.HELD_FOREVER:
        raise InputError(
            f"router {policy.name!r} holds requests back for ever: no replica has anything left to do"
        )
    if fault == st.JOINED:
        views = views_with_joined(views, state)
    elif fault == st.FULL_TREE:
        views = views_with_larger_trees(views)
    else:
        return grown(state), views
    state.pool[st.FAULT] = st.NO_FAULT
    return state, views


def _limits(most_load: ArrayLike | None, requests: int) -> np.ndarray | None:
    """The limit of each request, if there is any."""
    if most_load is None:
        return None
    limits = reals("most_load", most_load, finite=False)
    if limits.shape not in ((), (requests,)) or not (limits >= 0.0).all():
        raise InputError(
            f"most_load = {shown(most_load)} is not allowed; "
            "it must be 0 or more, one number or one a request"
        )
    return np.array(np.broadcast_to(limits, requests))


def warmup(
    routers: Iterable[str] = ("round_robin",), replicas: int = 2, *, sessions_wait: bool = False
) -> None:
    """Compile all that a simulation with these routers needs, so that workers find it ready.

    With as many replicas as a user's own policy may name; with `sessions_wait`, for workloads in which
    requests follow others.
    """
    from fastsim.workloads import make

    workload = make("long_documents", requests=3)
    if sessions_wait:
        workload = replace(workload, follows=np.arange(-1, 2))
    for router in routers:
        simulate(workload, Cluster(replicas), router)


def compiled(workload: Workload, cluster: Cluster) -> Prompts:
    """The workload's prompts for the cluster's block size, compiled once and kept with the workload."""
    kept = workload.__dict__.setdefault("_compiled", {})
    key = (cluster.engine, cluster.block)
    if key not in kept:
        kept[key] = compile_prompts(workload, cluster.block, segments=cluster.engine == "lecture")
    return kept[key]


def _require_ended(state: Any) -> None:
    """Refuse a run that its clock cannot hold: events later than `NEVER` are never taken up."""
    waiting = int(state.rep[:, st.N_RUNNING].sum() + state.rep[:, st.N_WAITING].sum())
    if waiting:
        raise InputError(
            f"workload: {waiting:,} requests would not have ended after {_LAST_S:,.0f} s, the last "
            "instant of the clock; give it less to do, or the cluster more replicas"
        )


def result_of(workload: Workload, state: Any, warmup_s: float) -> Result:
    """What a state at its end says."""
    req, rep = state.req, state.rep
    _require_ended(state)
    served = req[:, st.REPLICA] >= 0
    columns = {
        "request": np.arange(len(req)),
        "arrival_s": workload.arrival_s,
        "replica": req[:, st.REPLICA].copy(),
        "first_token_s": np.where(served, req[:, st.FIRST] * 1e-12, np.nan),
        "done_s": np.where(served, req[:, st.DONE] * 1e-12, np.nan),
        "prompt_tok": workload.prompt_tok,
        "output_tok": workload.output_tok,
        "hit_tok": req[:, st.HIT].copy(),
        "preemptions": req[:, st.PREEMPTED].copy(),
    }
    replicas = {
        "busy_s": rep[:, st.BUSY_PS] * 1e-12,
        "steps": rep[:, st.N_STEPS].copy(),
        "computed_tok": rep[:, st.COMPUTED_TOK].copy(),
        "preemptions": rep[:, st.PREEMPTIONS].copy(),
        "evicted_blocks": rep[:, st.EVICTED].copy(),
        "requests": rep[:, st.FINISHED].copy(),
    }
    log = None
    if len(state.log_load):
        log = {"in_flight": state.log_load, "match_tok": state.log_match, "score": state.log_score}
    return Result(columns, replicas, cached_copies(state), int(state.pool[st.EVENTS]), warmup_s, log)
