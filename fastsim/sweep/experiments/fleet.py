"""All three levels as an experiment: questions to models, and each model's cluster behind its router."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from fastsim.errors import InputError, nearest, shown
from fastsim.sweep import params as P
from fastsim.sweep.experiments.cluster import KNOWLEDGE, cluster_params, router_and_knowledge
from fastsim.sweep.experiments.experiment import Experiment, Metric
from fastsim.sweep.params import Params, check_keys, require_table

if TYPE_CHECKING:
    from fastsim.fleet import Plan, Served
    from fastsim.fleet.capacity import Demand
    from fastsim.selection.tables import Outcomes, Split

MOST_MODELS = 6
CLUSTERS = tuple(f"cluster_{k}" for k in range(1, MOST_MODELS + 1))
WAYS = ("cascade", "model_router", "system")
COMMON = ("router", "router_params", "cluster")  # what clusters have unless it is their own
TOP = ("models", "questions", "traffic", *WAYS, "router", "router_params", "cluster", *CLUSTERS, "warmup_s")
Share = Annotated[float, Meta(gt=0, lt=1)]
NotNegative = Annotated[float, Meta(ge=0)]


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Questions from a file, see `fastsim.selection.read_tables.read`."""

    table: str
    prices: str | None = None
    texts: str | None = None
    answer_tok: NotNegative | None = None
    context_tok: Annotated[int, Meta(ge=0)] = 0
    test_share: Share = 0.5


class CascadeOf(msgspec.Struct, frozen=True, kw_only=True):
    """A cascade of all models in order: one threshold for all stages, or one each: ``"0.3, 0.6"``."""

    threshold: float | str | list[float] = 0.5
    auc: Annotated[float, Meta(ge=0.5, le=1)] = 0.8
    scorer_s: NotNegative = 0.0


class RouterOf(msgspec.Struct, frozen=True, kw_only=True):
    """A model router, learnt on the questions that are not asked."""

    name: str = "knn"
    weight: NotNegative = 0.0
    params: dict[str, Any] = {}


class SystemOf(msgspec.Struct, frozen=True, kw_only=True):
    """A compound system: a model for every module (``"small, large, small"``), or one for all."""

    name: str
    allocation: str | list[str]


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's cluster has beside replicas and a router, see `fastsim.fleet.Served`."""

    gpu_hour: NotNegative = 0.0
    most_load: NotNegative | None = None  # none: no limit
    per_load: NotNegative = 0.0


SPECS: dict[str, type[msgspec.Struct]] = {"cascade": CascadeOf, "model_router": RouterOf, "system": SystemOf}
OWN = Own.__struct_fields__


def parameters() -> list[str]:
    """Every dotted name that some cell may set."""
    from fastsim.cluster.config import Cluster
    from fastsim.cluster.routers import ROUTERS
    from fastsim.fleet import Made
    from fastsim.workloads.traffic import Traffic

    names = ["models", "router", "warmup_s"]
    names += [f"questions.{name}" for name in (*Table.__struct_fields__, *Made.__struct_fields__)]
    names += [f"traffic.{name}" for name in Traffic.__struct_fields__]
    names += [f"{way}.{name}" for way, spec in SPECS.items() for name in spec.__struct_fields__]
    inside = ["router", *KNOWLEDGE, *OWN, *(field.name for field in dataclasses.fields(Cluster))]
    router_params = list(
        dict.fromkeys(n for entry in ROUTERS.values() for n in entry.params.__struct_fields__)
    )
    names += [f"router_params.{name}" for name in router_params]
    for place in ("cluster", *CLUSTERS):
        names += [f"{place}.{name}" for name in inside]
        names += [f"{place}.router_params.{name}" for name in router_params]
    return list(dict.fromkeys(names))


def validate(raw: Mapping[str, Any]) -> Params:
    """All parameters of a cell, defaults filled in."""
    from fastsim.fleet import simulate
    from fastsim.typed import check_call

    check_keys(raw, TOP, "[base]")
    for name in TOP[1:]:
        if name not in ("router", "warmup_s"):
            require_table(name, raw.get(name, {}))
    models = _models(raw)
    warmup_s = check_call(simulate, {"warmup_s": raw.get("warmup_s", 0.0)}, "[base]")["warmup_s"]
    params = {
        "models": ", ".join(models),
        "questions": _questions(raw.get("questions", {}), models),
        "traffic": _checked("traffic", raw.get("traffic", {})),
        **_way(raw, models),
        "router": raw.get("router", "round_robin"),
        "router_params": dict(raw.get("router_params", {})),
        "cluster": dict(raw.get("cluster", {})),
        "warmup_s": float(warmup_s),
        **_clusters(raw, len(models)),
    }
    for k in range(len(models)):
        served_of(params, k)
    return params


def _models(raw: Mapping[str, Any]) -> list[str]:
    models = _listed(raw.get("models", ["small", "large"]))
    if not all(isinstance(name, str) for name in models):
        raise InputError(f"models is {shown(models)}; it must be names, such as 'small, large'")
    if not 2 <= len(models) <= MOST_MODELS or len(set(models)) < len(models):
        raise InputError(f"models is {shown(models)}; it must hold 2 to {MOST_MODELS} different names")
    return models


def _listed(given: Any) -> list[Any]:
    """A list as such, or as text, ``"small, large"``, which can be the value of an axis."""
    if isinstance(given, str):
        return [part.strip() for part in given.split(",")]
    return list(given) if isinstance(given, list | tuple) else [given]


def models_of(params: Params) -> list[str]:
    """Names of the models, in order."""
    return _listed(params["models"])


def _checked(what: str, given: Mapping[str, Any]) -> Params:
    """A table of parameters, typed and with defaults; what is None is left out."""
    from fastsim.fleet import Made
    from fastsim.typed import check
    from fastsim.workloads.traffic import Traffic

    specs = {**SPECS, "traffic": Traffic, "questions": Table if "table" in given else Made, "own": Own}
    full = msgspec.to_builtins(check(specs[what], dict(given), what))
    return {name: value for name, value in full.items() if value is not None}


def _questions(given: Mapping[str, Any], models: list[str]) -> Params:
    """A table with its digest, or the parameters of made-up questions."""
    from fastsim.fleet import Made

    # one [base.questions] serves made-up questions and, by --set table=..., a table, which leaves some unused
    made = set(Made.__struct_fields__) - set(Table.__struct_fields__) if "table" in given else set()
    unused = {name: value for name, value in given.items() if name in made}
    full = _checked("questions", {name: value for name, value in given.items() if name not in unused})
    for name in ("table", "prices", "texts"):
        if name in full:
            full[f"{name}_digest"] = P.digest_of(f"questions.{name}", full[name])
    if "table" not in full:
        from fastsim.fleet import make_table

        make_table(models, msgspec.structs.replace(msgspec.convert(full, Made), size=2))
        return full
    _table(msgspec.json.encode(full).decode(), tuple(models))  # refuses what cannot be read
    return {**unused, **full}


def _way(raw: Mapping[str, Any], models: list[str]) -> Params:
    """How questions come to models: exactly one of `WAYS`."""
    ways = [way for way in WAYS if way in raw] or ["cascade"]
    if len(ways) > 1:
        raise InputError(f"[base] has {' and '.join(ways)}; give one of {', '.join(WAYS)}")
    way = ways[0]
    given = _checked(way, raw.get(way, {}))
    if way == "cascade":
        found = _thresholds(given, models)
        if not _is_number(given["threshold"]):
            given["threshold"] = ", ".join(map(repr, found))
    elif way == "model_router":
        from fastsim.selection.model_routers import get
        from fastsim.typed import check

        check(get(given["name"]).params, dict(given["params"]), f"model router {given['name']}")
    else:
        found = _allocation(given, models)
        given["allocation"] = ", ".join(models[k] for k in found)
    return {way: given}


def _thresholds(cascade: Mapping[str, Any], models: Sequence[str]) -> tuple[float, ...]:
    given = cascade["threshold"]
    try:
        found = (
            [float(given)] * (len(models) - 1) if _is_number(given) else [float(x) for x in _listed(given)]
        )
    except (TypeError, ValueError):
        raise InputError(
            f"cascade: threshold is {given!r}; it must be numbers such as 0.5 or '0.3, 0.6'"
        ) from None
    if len(found) != len(models) - 1:
        raise InputError(
            f"cascade: threshold has {len(found)} values; {len(models)} models need {len(models) - 1}"
        )
    return tuple(found)


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float)


def _allocation(system: Mapping[str, Any], models: list[str]) -> tuple[int, ...]:
    from fastsim.selection.systems import get

    slots = get(system["name"]).slot_names
    given = system["allocation"]
    names = _listed(given)
    names = names * len(slots) if len(names) == 1 and isinstance(given, str) else names
    if len(names) != len(slots):
        raise InputError(
            f"system: allocation has {len(names)} models; {system['name']} needs one for each of "
            f"{', '.join(slots)}"
        )
    for name in names:
        if name not in models:
            raise InputError(f"system: allocation names {name!r}; {nearest(name, models)}")
    return tuple(models.index(name) for name in names)


def _clusters(raw: Mapping[str, Any], models: int) -> Params:
    """Every model's cluster: what is its own, else what is common to all, else defaults."""
    common = {"router": raw.get("router", "round_robin"), **raw.get("cluster", {})}
    shared_params = {**raw.get("router_params", {}), **_table_in(common, "cluster")}
    found: Params = {}
    for name in CLUSTERS[:models]:
        given = {**common, **raw.get(name, {})}
        router_params = {**shared_params, **_table_in(given, name)}
        own = _checked("own", {key: given.pop(key) for key in OWN if key in given})
        known = {key: given.pop(key) for key in KNOWLEDGE if key in given}
        router = given.pop("router")
        try:
            full = {**cluster_params(given), **router_and_knowledge(router, router_params, known), **own}
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
        found[name] = full
    for name in CLUSTERS[models:]:
        if name in raw:
            raise InputError(f"{name} is given, but there are only {models} models")
    return found


def _table_in(cluster: Params, place: str) -> Params:
    """Take the table of router parameters out of a cluster's."""
    taken = cluster.pop("router_params", {})
    require_table(f"{place}.router_params", taken)
    return taken


def served_of(params: Params, model: int) -> Served:
    """What the model of that place is served on."""
    from fastsim.cluster.config import Cluster
    from fastsim.fleet import Served

    given = dict(params[CLUSTERS[model]])
    inside = {key: given.pop(key) for key in ("router", "router_params", *KNOWLEDGE, *OWN) if key in given}
    return Served(Cluster(**given), **inside)


# --- the random input ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stream:
    """Questions in the order in which they are asked.

    Attributes
    ----------
    parts : Split
        Questions to learn from, and those that may be asked.
    arrival_s : float64[n]
    rows : int64[n]
        Of ``parts.test``: every question once before any is asked again.
    plans : dict
        Plans made so far, for the cells that share them.
    """

    parts: Split
    arrival_s: Any
    rows: Any
    plans: dict[str, Plan] = field(default_factory=dict)


def prepare(params: Params, seed: int, replicate: int) -> Stream:
    """The questions of a replicate, and when they come."""
    import numpy as np

    from fastsim.rng import generator
    from fastsim.workloads.traffic import Traffic, arrivals

    parts = _parts(params, seed, replicate)
    traffic = msgspec.convert(params["traffic"], Traffic)
    arrival_s = arrivals(traffic, lambda name: generator(seed, replicate, name))
    rng, size = generator(seed, replicate, "asked"), parts.test.size
    turns = -(-len(arrival_s) // size)
    rows = np.concatenate([rng.permutation(size) for _ in range(turns)])[: len(arrival_s)]
    return Stream(parts, arrival_s, rows)


def _parts(params: Params, seed: int, replicate: int) -> Split:
    """Questions to learn from, and those that may be asked."""
    from fastsim.selection.tables import split

    questions = params["questions"]
    if "table" in questions:
        table = _table(msgspec.json.encode(questions).decode(), tuple(models_of(params)))
    else:
        table = _made(params, seed, replicate)
    return split(table, test_share=questions.get("test_share", 0.5), seed=0)


def _made(params: Params, seed: int, replicate: int) -> Outcomes:
    from fastsim.fleet import Made, make_table

    made = msgspec.convert(params["questions"], Made)
    return make_table(models_of(params), made, seed=seed, replicate=replicate)


@lru_cache(maxsize=4)
def _table(questions: str, models: tuple[str, ...]) -> Outcomes:
    from fastsim.selection.read_tables import read

    given = msgspec.json.decode(questions)
    options = {name: given[name] for name in ("prices", "texts", "answer_tok") if name in given}
    return read(given["table"], models=models, **options)


def plan_of(params: Params, stream: Stream, seed: int, replicate: int) -> Plan:
    """The plan of a cell; cells that differ in clusters alone share it."""
    import numpy as np

    (way,) = (way for way in WAYS if way in params)
    key = msgspec.json.encode({way: params[way]}, order="deterministic").decode()
    if key not in stream.plans:
        plan = _PLANS[way](params, stream.parts, seed, replicate).take(stream.rows)
        # what is asked again in the stream stands for another question like it: its prompt is not cached
        stream.plans[key] = dataclasses.replace(plan, question=np.arange(plan.size))
    return stream.plans[key]


def _cascade_plan(params: Params, parts: Split, seed: int, replicate: int) -> Plan:
    from fastsim import fleet
    from fastsim.selection.cascades import Cascade
    from fastsim.selection.scorers import scorer_of_auc

    given = params["cascade"]
    cascade = Cascade(tuple(models_of(params)), _thresholds(given, models_of(params)))
    trust = scorer_of_auc(parts.test, given["auc"], seed=seed, replicate=replicate)
    return fleet.of_cascade(
        parts.test,
        cascade,
        trust,
        scorer_s=given["scorer_s"],
        context_tok=params["questions"]["context_tok"],
    )


def _router_plan(params: Params, parts: Split, seed: int, replicate: int) -> Plan:
    from fastsim import fleet
    from fastsim.selection.model_routers import fit

    given = params["model_router"]
    router = fit(given["name"], parts.train, given["params"], seed=seed)
    routed = router.route(parts.test, given["weight"])
    return fleet.of_calls(parts.test, routed, context_tok=params["questions"]["context_tok"])


def _system_plan(params: Params, parts: Split, seed: int, replicate: int) -> Plan:
    from fastsim import fleet
    from fastsim.selection.systems import get
    from fastsim.selection.worlds import World

    given = params["system"]
    world = World.from_table(get(given["name"]), parts.test)
    allocation = _allocation(given, models_of(params))
    return fleet.of_system(world, allocation, parts.test, context_tok=params["questions"]["context_tok"])


_PLANS: dict[str, Callable[[Params, Any, int, int], Any]] = {
    "cascade": _cascade_plan,
    "model_router": _router_plan,
    "system": _system_plan,
}


# --- a point ------------------------------------------------------------------------------------------------


def run(params: Params, workload: Stream, seed: int, replicate: int) -> dict[str, Any]:
    """Serve the questions and report the run's figures; P99s of overloaded runs too, as for clusters."""
    from fastsim import fleet
    from fastsim.fleet.capacity import most_loaded

    served = {model: served_of(params, k) for k, model in enumerate(models_of(params))}
    result = fleet.simulate(
        plan_of(params, workload, seed, replicate),
        workload.arrival_s,
        served,
        seed=seed,
        replicate=replicate,
        warmup_s=params["warmup_s"],
    )
    known = dict(result.figures)
    for name in ("cost", "call_cost", "gpu_cost"):
        known[name] = None if known[name] is None else 1000.0 * known[name]
    known |= {"warmup_s": params["warmup_s"], "samples": known["questions"]}
    found, rate_rps = demands_of(params, seed), params["traffic"]["rate_rps"]
    known |= {
        "stable": all(demand.keeps_up(rate_rps) for demand in found.values()),
        "offered_load": most_loaded(found).offered_load(rate_rps),
        "capacity_rps": 1.0 / most_loaded(found).each_s,
    }
    return {name: known[name] for name in METRICS}


def demands_of(params: Params, seed: int) -> dict[str, Demand]:
    """What a question asks of each cluster, measured once for all cells that differ in traffic only."""
    from fastsim.fleet.capacity import Demand
    from fastsim.sweep.experiments import capacities

    given = {name: value for name, value in params.items() if name not in ("traffic", "warmup_s", *COMMON)}
    text = P.canonical(["fleet", P.identity(given), seed])
    routers = [given[name]["router"] for name in CLUSTERS if name in given]
    return capacities.measured(text, routers, dict[str, Demand], lambda: _measured(params, seed))


def measure(cells: Sequence[Params], seed: int, jobs: int) -> None:
    """Measure the demands that rows will tell of."""
    from fastsim.sweep.experiments import capacities

    capacities.in_advance(lambda cell: demands_of(cell, seed), cells, jobs)


def _measured(params: Params, seed: int) -> dict[str, Demand]:
    """Over all questions that may be asked; tables hold the same ones in every replicate."""
    from fastsim.fleet.capacity import Demand, demands
    from fastsim.sweep.experiments import capacities

    replicates = 1 if "table" in params["questions"] else capacities.REPLICATES
    precision = capacities.PRECISION if replicates > 1 else capacities.PRECISION / 2
    served = {model: served_of(params, k) for k, model in enumerate(models_of(params))}
    (way,) = (way for way in WAYS if way in params)
    found: list[dict[str, Demand]] = []
    for replicate in range(replicates):
        plan = _PLANS[way](params, _parts(params, seed, replicate), seed, replicate)
        found.append(demands(plan, served, seed=seed, replicate=replicate, precision=precision))
    nothing = Demand(0.0, 0.0)
    models = {model: None for one in found for model in one}
    return {model: Demand.mean([one.get(model, nothing) for one in found]) for model in models}


def warmup(cells: Sequence[Params], note: Callable[[str], None]) -> None:
    """Compile the kernels and read the tables once, saying what was assumed."""
    from fastsim.cluster.simulate import warmup as compile_kernels

    clusters = [cell[name] for cell in cells for name in CLUSTERS if name in cell]
    most = max((one["replicas"] for one in clusters), default=1)
    compile_kernels(sorted({one["router"] for one in clusters}), most)
    said: dict[str, None] = {}
    for cell in cells:
        questions = cell["questions"]
        if "table" in questions:
            table = _table(msgspec.json.encode(questions).decode(), tuple(models_of(cell)))
            said |= dict.fromkeys(f"{table.name}: {sentence}" for sentence in table.assumptions)
        else:
            said["questions, their lengths and who answers them right are made up"] = None
    for sentence in said:
        note(sentence)


def estimates(cells: Sequence[Params]) -> list[str]:
    """What a table of these cells estimates."""
    warmups = sorted({cell["warmup_s"] for cell in cells})
    span = " to ".join(f"{edge:g}" for edge in dict.fromkeys((warmups[0], warmups[-1])))
    return [
        "estimated: the mean over runs of each run's own figure (its mean, its P99, its accuracy)",
        f"transient: clusters begin empty, and questions that come from {span} s on count",
    ]


MONEY = "/1,000 questions"
METRICS = {
    "warmup_s": Metric("warm-up deleted", "s"),
    "samples": Metric("questions used", type=int),
    "stable": Metric("stable", type=bool),
    "offered_load": Metric("offered load", optional=True),
    "capacity_rps": Metric("capacity", "1/s"),
    "backlog_score": Metric("backlog score"),
    "accuracy": Metric("accuracy", optional=True),
    "cost": Metric("cost", MONEY, optional=True),
    "call_cost": Metric("cost of calls", MONEY, optional=True),
    "gpu_cost": Metric("cost of GPUs", MONEY, optional=True),
    "latency_mean_s": Metric("mean latency", "s", optional=True),
    "latency_p50_s": Metric("median latency", "s", optional=True),
    "latency_p90_s": Metric("P90 latency", "s", optional=True),
    "latency_p99_s": Metric("P99 latency", "s", tail=True, optional=True),
    "calls": Metric("calls a question", optional=True),
    "escalated": Metric("share escalated", optional=True),
    "shed": Metric("share shed", optional=True),
    "unanswered": Metric("share unanswered", optional=True),
    "hit_rate": Metric("hit rate", optional=True),
    "utilisation": Metric("busy share", optional=True),
    "utilisation_max": Metric("highest busy share", optional=True),
}

FLEET = Experiment(
    name="fleet",
    doc="Questions to models by a cascade, router or compound system, each model's cluster behind a router.",
    parameters=parameters,
    validate=validate,
    workload=lambda params: {name: params[name] for name in ("models", "questions", "traffic")},
    prepare=prepare,
    run=run,
    metrics=METRICS,
    table=("accuracy", "cost", "latency_mean_s", "latency_p99_s", "escalated"),
    contrast=("latency_p99_s",),
    compare="router",
    lost="unanswered",
    estimates=estimates,
    warmup=warmup,
    measure=measure,
)
