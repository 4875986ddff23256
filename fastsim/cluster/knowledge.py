"""What routers know, and how old it is: the views as people write them, and the arrays they become."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta

from fastsim.cluster import _state as st
from fastsim.cluster.prefix import parts_of_runs, tree_prompts, truncated
from fastsim.cluster.routers import tree as tr
from fastsim.cluster.routers.registry import Size, Tree
from fastsim.cluster.routers.view import FIELDS, N_PROMPT, N_ROUTERS, ROUTER, View
from fastsim.errors import InputError, nearest, shown
from fastsim.rng import generator, stream
from fastsim.typed import checked

if TYPE_CHECKING:
    from fastsim.cluster.config import Cluster
    from fastsim.cluster.routers.registry import Router
    from fastsim.workloads import Workload

VIEWS = ("native", "live", "own", "periodic(T)", "delayed(d)")
CACHES = ("native", "events", "in_flight", "approximate")
COUNTED = ("sent", "first_token")
Routers = Annotated[int, Meta(ge=1, le=64)]
_TIMED = re.compile(r"(periodic|delayed)\((.*)\)")
_LONGEST_S = 1e6  # no arrival is later
_KINDS = {"live": st.LIVE, "own": st.OWN, "periodic": st.PERIODIC, "delayed": st.DELAYED}
_TRACKS = {st.LIVE: st.TRACK_LIVE, st.PERIODIC: st.TRACK_PERIODIC, st.DELAYED: st.TRACK_DELAYED}
_FIRST_NEWS, _FIRST_ENTRIES = 1 << 10, 1 << 10


@dataclass(frozen=True)
class Knowledge:
    """How routers learn of replicas, all settled.

    Parameters
    ----------
    loads, metrics : int
        Kind of view (`_state`: LIVE, OWN, PERIODIC, DELAYED) of requests in flight, and of the engine's
        metrics.
    track : int
        How caches are known (`_state`: TRACK_...).
    period_ps, delay_ps : int
        Of periodic and delayed views.
    at_first_token : bool
        Whether a request counts from its first token on, not from when it was sent.
    routers : int
        Independent routers that share the traffic.
    flights : bool
        Whether prompts in flight count as held.
    """

    loads: int
    metrics: int
    track: int
    period_ps: int
    delay_ps: int
    at_first_token: bool
    routers: int
    flights: bool = False

    def configure(self, cfg: np.ndarray, policy: Router) -> None:
        """Write the settings into ``State.cfg``."""
        needs = sum(_NEEDS[need] for need in policy.needs)
        by_news = self.loads in (st.OWN, st.DELAYED) or self.at_first_token
        own = st.OWN in (self.loads, self.metrics)
        told_of_others = self.flights and self.routers > 1 and self.loads == st.PERIODIC
        news = st.NEWS_SENT * (self.loads == st.DELAYED or told_of_others)
        news |= st.NEWS_REQUESTS * (by_news or own or self.flights or policy.heard is not None)
        caches = self.track == st.TRACK_DELAYED or (policy.heard is not None and "evictions" in policy.needs)
        news |= st.NEWS_CACHES * caches
        gauged = (self.loads == st.DELAYED and "work" in policy.needs) or (
            self.metrics == st.DELAYED and "metrics" in policy.needs
        )
        news |= st.NEWS_GAUGES * gauged
        metrics = self.metrics if "metrics" in policy.needs else st.LIVE  # which costs nothing unless needed
        cfg[[st.NEEDS, st.LOAD_VIEW, st.METRICS_VIEW, st.TRACK]] = needs, self.loads, metrics, self.track
        cfg[[st.PERIOD_PS, st.DELAY_PS, st.NEWS, st.BY_NEWS]] = self.period_ps, self.delay_ps, news, by_news
        cfg[[st.AT_FIRST, st.ROUTERS]] = self.at_first_token, self.routers


_NEEDS = {
    "work": st.NEEDS_WORK,
    "match": st.NEEDS_MATCH,
    "matches": st.NEEDS_MATCHES,
    "metrics": st.NEEDS_METRICS,
    "evictions": 0,
    "step_time": 0,
}


def parse_view(view: str) -> tuple[str, int]:
    """Kind of a view, and its period or age in picoseconds.

    Raises
    ------
    InputError
        If there is no such view, or its time is out of range.
    """
    if view in ("native", "live", "own"):
        return view, 0
    found = _TIMED.fullmatch(str(view))
    try:
        seconds = float(found[2]) if found else 0.0
    except ValueError:
        seconds = 0.0
    if found is None or not 1e-12 <= seconds <= _LONGEST_S:
        raise InputError(
            f"view = {shown(view)} is not known; it must be one of {', '.join(VIEWS)}, "
            f"with T and d from 1e-12 to {_LONGEST_S:g} seconds"
        )
    return found[1], round(seconds * 1e12)


@checked
def settle(
    policy: Any, params: Any, view: str, routers: Routers, caches: str, counted_from: str
) -> Knowledge:
    """Settle what routers of a policy know.

    Parameters
    ----------
    policy : Router
    params : msgspec.Struct
        Its parameters; a ``scrape_s`` among them is the period of its engine metrics.
    view : str
        "native" is as the policy's system has it; see `parse_view`.
    routers : int
    caches : {"native", "events", "in_flight", "approximate"}
    counted_from : {"sent", "first_token"}

    Raises
    ------
    InputError
        If a value is unknown, out of range, or does not go with the policy.
    """
    for name, value, known in (("caches", caches, CACHES), ("counted_from", counted_from, COUNTED)):
        if value not in known:
            raise InputError(f"{name} = {shown(value)} is not known; {nearest(str(value), known)}")
    if policy.tree is not None and caches != "native":
        raise InputError(
            f"caches = {caches!r} is not allowed with router {policy.name!r}; it keeps a tree of its own"
        )
    kind, time_ps = parse_view(view)
    scrape_ps = 0
    if kind == "native":
        kind, time_ps = parse_view(policy.view)
        scrape_ps = round(getattr(params, "scrape_s", 0.0) * 1e12)
    loads = metrics = _KINDS[kind]
    period_ps = time_ps if kind == "periodic" else 0
    if scrape_ps:
        metrics, period_ps = st.PERIODIC, scrape_ps
    events = st.LIVE if kind == "own" else loads
    track = st.TRACK_OFF
    follows = bool(policy.needs & {"match", "matches"})
    if kind == "periodic" or follows:
        track = _TRACKS[events]
    caches = policy.caches if caches == "native" else caches
    if caches == "approximate" and follows:
        track = st.TRACK_TREE
    delay_ps = time_ps if kind == "delayed" else 0
    at_first = counted_from == "first_token"
    flights = caches == "in_flight" and follows
    return Knowledge(loads, metrics, track, period_ps, delay_ps, at_first, routers, flights)


# --- arrays -------------------------------------------------------------------------------------------------


def owners(requests: int, routers: int, seed: int, replicate: int) -> np.ndarray:
    """The router each request comes to: any, all equally likely, as behind a balancer that knows nothing."""
    if routers == 1:
        return np.zeros(requests, np.int64)
    return generator(seed, replicate, "routers").integers(routers, size=requests)


def new_views(
    state: Any,
    knowledge: Knowledge,
    policy: Router,
    params: Any,
    workload: Workload,
    cluster: Cluster,
    seed: int,
    replicate: int,
) -> list[Any]:
    """Make the view of every router at time 0."""
    n, replicas = len(workload), len(state.load)
    tree = _tree(policy, params, workload, cluster, knowledge)
    size = Size(
        replicas, n, len(tree["run_blk"]), len(tree["path"]), len(tree["part_ptr"]) - 1, cluster.kv_blocks
    )
    private = knowledge.loads != st.LIVE or knowledge.at_first_token
    shared = {
        "load": state.load.copy() if private else state.load,
        "level": state.level.copy() if private else state.level,
        "work": np.zeros(replicas, np.int64),
        **{name: np.zeros(replicas, np.int64) for name in ("waiting", "running", "kv_used")},
        "kv_blocks": np.array([cluster.kv_blocks]),
        "changes": np.ones(1, np.int64),
        "limits": np.array([cluster.batch_tok, cluster.seqs, cluster.block, n]),
        "params": policy.vector(params),
        **_step_time(policy, workload, cluster),
    }
    flights = _flights(state, knowledge)
    views = []
    for k in range(knowledge.routers):
        own = {}
        if knowledge.loads == st.OWN:
            own |= {name: shared[name].copy() for name in ("load", "level", "work")}
        if knowledge.metrics == st.OWN:
            own |= {name: shared[name].copy() for name in ("waiting", "running", "kv_used")}
        prompt = np.zeros(N_PROMPT, np.int64)
        prompt[[ROUTER, N_ROUTERS]] = k, knowledge.routers
        own |= {
            "match": np.zeros(replicas, np.int64),
            "score": np.zeros(replicas),
            "prompt": prompt,
            "best": np.zeros(state.level.shape[1], np.int64),
            "found": np.zeros(state.level.shape[1], np.int64),
            "memory": st.from_a_cache_line(np.zeros(policy.room(policy.memory, params, size) + 7, np.int64)),
            "real": np.zeros(policy.room(policy.real, params, size)),
            "count": np.zeros((st.table_slots(policy.room(policy.count, params, size)), 2), np.int64),
            "rng": stream(seed, replicate, "routing" if k == 0 else f"routing {k}"),
        }
        if knowledge.loads == st.LIVE:
            own |= flights
        else:
            own |= {name: array.copy() for name, array in flights.items()}
        views.append({**shared, **_copied(tree), **own})
    return [View(**_seen(arrays, int(state.cfg[st.ACTIVE]))) for arrays in views]


_BY_REPLICA = ("load", "work", "match", "waiting", "running", "kv_used", "score")


def _seen(arrays: dict[str, np.ndarray], active: int) -> dict[str, np.ndarray]:
    """What a router sees of its arrays: nothing of replicas that have not joined."""
    return {name: array[:active] if name in _BY_REPLICA else array for name, array in arrays.items()}


def views_with_joined(views: Sequence[Any], state: Any) -> list[Any]:
    """The same views, of as many replicas as have joined by now; a new one has load 0 in each."""
    active = int(state.cfg[st.ACTIVE])
    made = []
    for view in views:
        arrays = {name: getattr(view, name) for name in FIELDS}
        arrays |= {name: _whole(arrays[name]) for name in _BY_REPLICA}
        view.changes[0] += 1
        made.append(View(**_seen(arrays, active)))
    for level in {id(view.level): view.level for view in made if view.level is not state.level}.values():
        level[0, (active - 1) // st.BITS] |= 1 << (active - 1) % st.BITS
    return made


def _whole(array: np.ndarray) -> np.ndarray:
    """The array that this one is the beginning of."""
    return array if array.base is None else array.base


def _step_time(policy: Router, workload: Workload, cluster: Cluster) -> dict[str, np.ndarray]:
    """The step time for policies that reckon with it; nothing for others."""
    if "step_time" not in policy.needs:
        return {
            "step_coef": np.zeros((0, 9), np.int64),
            "step_ptr": _NOTHING,
            "step_knots": np.zeros((0, 3), np.int64),
        }
    longest_tok = int(workload.prompt_tok.max(initial=1))
    coef, ptr, knots = cluster.steps.compiled(step_tok=longest_tok, context_tok=longest_tok)
    return {"step_coef": coef, "step_ptr": ptr, "step_knots": knots}


def _flights(state: Any, knowledge: Knowledge) -> dict[str, np.ndarray]:
    """Prompts in flight, of which there are none yet; without rows where they are not known."""
    runs = len(state.run_len) if knowledge.flights else 0
    return {
        "flying": np.zeros((runs, 2 * state.level.shape[1]), np.int64),
        "flights": np.zeros((runs, len(state.load)), np.int64),
        "flown_blk": np.zeros(runs, np.int64),
    }


def _tree(
    policy: Router, params: Any, workload: Workload, cluster: Cluster, knowledge: Knowledge
) -> dict[str, np.ndarray]:
    """The arrays of an empty tree; tiny ones where the policy has none."""
    made = policy.tree(params, cluster) if policy.tree is not None else None
    if knowledge.track == st.TRACK_TREE:
        made = Tree(tr.KEEP_BLOCKS, capacity_blk=cluster.kv_blocks)
    replicas = cluster.replicas
    words = -(-replicas // st.BITS)
    settings = np.zeros(tr.N_TREE, np.int64)
    settings[tr.SPARE] = st.NONE
    lists = np.full((1, 4), st.NONE, np.int64)
    if made is None:
        path = {"path_ptr": _NOTHING, "path": _NOTHING, "run_blk": _NOTHING, "tail_blk": _NOTHING}
        return {
            **path,
            **_NO_PARTS,
            "tree": settings,
            "holds": np.zeros((0, words), np.int64),
            "marks": np.zeros((0, words), np.int64),
            "node": np.zeros((0, 2), np.int64),
            "entry": np.zeros((0, tr.N_ENTRY), np.int64),
            "where": np.zeros((0, 2), np.int64),
            "list": lists,
        }
    block = made.block_tok or cluster.block
    segments = cluster.engine == "lecture" and made.block_tok is None
    ptr, path, run_blk, tail = _tree_prompts(workload, made, block, segments)
    settings[[tr.KEEP, tr.BLOCK_TOK, tr.RUNS]] = made.keep, block, len(run_blk)
    settings[[tr.REPLICAS, tr.CAPACITY_BLK, tr.TTL_PS]] = (
        replicas,
        made.capacity_blk,
        round(made.ttl_s * 1e12),
    )
    if made.keep in (tr.KEEP_ALL, tr.KEEP_BLOCKS, tr.KEEP_LEAVES):
        lists = np.full((replicas, 4), st.NONE, np.int64)
    lists[:, [tr.SIZE_BLK, tr.COUNT]] = 0
    entries = 0 if made.keep == tr.KEEP_ALL else _FIRST_ENTRIES + 2 * int(np.diff(ptr).max(initial=0))
    return {
        "path_ptr": ptr,
        "path": path,
        "run_blk": run_blk,
        "tail_blk": tail,
        **(_parts(workload, ptr, path, run_blk, block, segments) if made.reported else _NO_PARTS),
        "tree": settings,
        "holds": np.zeros((len(run_blk), words), np.int64),
        "marks": np.zeros((len(run_blk) if made.marks else 0, words), np.int64),
        "node": np.zeros((len(run_blk) + len(tail) if made.keep == tr.KEEP_LEAVES else 0, 2), np.int64),
        "entry": np.zeros((entries, tr.N_ENTRY), np.int64),
        "where": np.zeros((st.table_slots(entries), 2), np.int64),
        "list": lists,
    }


def _tree_prompts(workload: Workload, made: Tree, block: int, segments: bool) -> tuple[np.ndarray, ...]:
    """The workload's prompts as a tree has them, compiled once and kept with the workload."""
    kept = workload.__dict__.setdefault("_tree_prompts", {})
    key = (block, segments, made.partial, made.most_blk)
    if key not in kept:
        found = tree_prompts(workload, block, segments=segments, partial=made.partial)
        kept[key] = truncated(*found, made.most_blk) if made.most_blk else found
    return kept[key]


def _parts(
    workload: Workload, ptr: np.ndarray, path: np.ndarray, run_blk: np.ndarray, block: int, segments: bool
) -> dict[str, np.ndarray]:
    """Where the runs of whole prompts lie in the engine's, kept with the workload, too."""
    kept = workload.__dict__.setdefault("_parts_of_runs", {})
    if (block, segments) not in kept:
        kept[block, segments] = parts_of_runs(workload, block, ptr, path, run_blk, segments=segments)
    part_ptr, part = kept[block, segments]
    return {"part_ptr": part_ptr, "part": part}


_NOTHING = np.zeros(0, np.int64)
_NO_PARTS = {"part_ptr": np.zeros(1, np.int64), "part": np.zeros((0, 3), np.int64)}
_CHANGING = ("tree", "holds", "marks", "node", "entry", "where", "list")


def _copied(tree: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A tree for one router: the prompts are shared, what it remembers is its own."""
    return {name: array.copy() if name in _CHANGING else array for name, array in tree.items()}


def views_with_larger_trees(views: Sequence[Any]) -> list[Any]:
    """The same views with twice the room for entries where little is left."""
    return [
        _larger(view) if max(view.tree[tr.LIVE], view.tree[tr.WANTED]) * 2 > len(view.entry) else view
        for view in views
    ]


def _larger(view: Any) -> Any:
    from fastsim.cluster._table import copy_into

    arrays = {name: getattr(view, name) for name in FIELDS}
    entry = np.zeros((2 * len(view.entry), tr.N_ENTRY), np.int64)
    entry[: len(view.entry)] = view.entry
    where = np.zeros((2 * len(view.where), 2), np.int64)
    copy_into(view.where, where)
    return View(**{**arrays, "entry": entry, "where": where})
