"""Wrong inputs without end: shipped sweeps, command lines and calls, with something of each changed at random.

What comes of one is either nothing wrong or an `InputError`; anything else is a fault. Only what is checked
before a run is called, so that hundreds a second can be tried.
"""

from __future__ import annotations

import copy
import random
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import fastsim
from fastsim import fleet, queueing, workloads
from fastsim.cluster import simulate as cluster_simulate
from fastsim.errors import InputError
from fastsim.sweep.spec import parse
from tests.selection_tables import make_table

ROOT = Path(__file__).parents[1]
SWEEPS = sorted((ROOT / "sweeps").glob("*.toml"))


def cyclic() -> list[Any]:
    """A list that holds itself."""
    held: list[Any] = [1]
    held.append(held)
    return held


TOML_VALUES: list[Callable[[], Any]] = [
    *(lambda v=v: v for v in ("x", "", "a" * 300, "é\u0000☃", "nan", "1", "true", "periodic(", "1e999")),
    *(lambda v=v: v for v in (0, -1, 1, 2, 3.5, -0.0, 1e308, -1e308, 1e-300, 2**31, 2**53, 2**62, 2**63 - 1)),
    *(lambda v=v: v for v in (2**63, -(2**63), 2**64, 10**40, float("nan"), float("inf"), -float("inf"))),
    *(lambda v=v: v for v in (True, False)),
    *(
        lambda v=v: copy.deepcopy(v)
        for v in ([], [1], ["x"], [["x"]], [[[[1]]]], [1, "x", None], [{}], [{"a": 1}])
    ),
    *(
        lambda v=v: copy.deepcopy(v)
        for v in ({}, {"a": 1}, {"a": {"b": {}}}, {"": 1}, {"a.b": 1}, {"kind": "x"})
    ),
]
VALUES: list[Callable[[], Any]] = [
    *TOML_VALUES,
    *(lambda v=v: v for v in (None, (), (1, 2), b"x", 1j, object, lambda: None, 10**5000, "\ud800")),
    *(lambda v=v: copy.deepcopy(v) for v in ({1: 2}, {None: 1}, {"a", "b"}, range(3))),
    cyclic,
    object,
    lambda: np.zeros(3),
    lambda: np.zeros((2, 2)),
    lambda: np.array(["a"]),
    lambda: np.array([np.nan]),
    lambda: np.float64("nan"),
    lambda: np.int64(-5),
    lambda: np.array(3),
    lambda: np.array([None]),
]


@dataclass
class Mutant:
    """A thing to try: words for a report, and what tries it."""

    words: str
    attempt: Callable[[], Any]

    def fault(self) -> BaseException | None:
        """What it raised that is no `InputError`."""
        try:
            self.attempt()
        except InputError as error:
            said = str(error)
            return None if said and "\n" not in said and len(said) < 2000 else AssertionError(said[:2000])
        except BaseException as error:  # SystemExit, too, is none of a library's answers
            return error
        return None


# --- sweeps -------------------------------------------------------------------------------------------------


def documents() -> list[dict[str, Any]]:
    """Every shipped sweep that needs no file, its grids cut to a few cells so that it is checked soon."""
    found = []
    for path in SWEEPS:
        document = tomllib.loads(path.read_text())
        for grid in (
            document["grid"] if isinstance(document.get("grid"), list) else [document.get("grid", {})]
        ):
            for axis, values in grid.items():
                if isinstance(values, list):
                    grid[axis] = values[:2]
        found.append(document)
    return found


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to everything in nested tables and lists."""
    if path:
        yield path
    inside = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in inside:
        yield from places(value, (*path, key))


def changed(document: Any, rng: random.Random) -> tuple[Any, str]:
    """A copy of nested tables with one to three things in it changed, and what was."""
    document, said = copy.deepcopy(document), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        all_places = list(places(document))
        if not all_places:
            break
        *parents, last = rng.choice(all_places)
        holder = document
        for key in parents:
            holder = holder[key]
        kind = rng.random()
        if kind < 0.7:
            holder[last] = rng.choice(TOML_VALUES)()
        elif kind < 0.8:
            del holder[last]
        elif kind < 0.9:
            value = holder[last]
            holder[last] = rng.choice(([value], {"a": value}, [value, value], [[value]]))
        elif isinstance(holder, dict):
            name = str(last) + rng.choice(("x", ".y", "", "é", "," + str(last)))
            holder[name] = holder.pop(last)
        said.append(".".join(map(str, (*parents, last))))
    return document, f"{' and '.join(said)}"


def sweep_mutants(seed: int) -> Iterator[Mutant]:
    """Sweeps with something changed, and settings of theirs."""
    from fastsim.report import figures
    from fastsim.sweep.experiments import experiment

    rng, all_documents = random.Random(seed), documents()
    names = {what: experiment(what).parameters() for what in ("cluster", "balls", "queueing", "fleet")}
    while True:
        document, said = changed(rng.choice(all_documents), rng)
        settings = []
        while rng.random() < 0.3:
            name = rng.choice(
                [*names[rng.choice(list(names))], "sweep.seeds", "sweep", "grid", "stop.metric", "a.b", ""]
            )
            if rng.random() < 0.2:
                name = name.rpartition(".")[2] or name[:-1]
            settings.append(f"{name}={as_toml(rng.choice(TOML_VALUES)())}")

        def attempt(document: Any = document, settings: list[str] = settings) -> None:
            figures.check(parse(document, settings))

        yield Mutant(f"sweep with {said} changed to {document!r:.2000}, {settings}", attempt)


def as_toml(value: Any) -> str:
    """A value as somebody would write it after ``--set key=``."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k or 'k'} = {as_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(as_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float | int) else str(value)


# --- calls --------------------------------------------------------------------------------------------------

TINY: dict[str, Any] = {"requests": 3}


def _stopped(*_: Any, **__: Any) -> Any:
    raise InputError("as far as a check goes")


def calls() -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Calls of the library that are right and cost little."""
    small = workloads.make("unique", requests=3)
    cluster = fastsim.Cluster(2)
    times = [0.0, 1.0, 2.0]
    table = make_table()
    return {
        "Cluster": (
            fastsim.Cluster,
            {**vars(fastsim.Cluster()), "step_time": None, "replicas": 2, "order_params": {}},
        ),
        "Cluster faults": (
            fastsim.Cluster,
            {
                "replicas": 3,
                "restarts": [{"replica": 1, "at_s": 1.0, "down_s": 2.0}],
                "joins_s": [3.0],
                "speeds": [1.0] * 3,
            },
        ),
        "Cluster step_time": (fastsim.Cluster, {"step_time": {"kind": "linear", "base_s": 0.01}}),
        "simulate": (
            cluster_simulate.begun,
            {
                "workload": small,
                "cluster": cluster,
                "router": "affinity_threshold",
                "router_params": {"theta": 0.5},
                "view": "native",
                "routers": 1,
                "caches": "native",
                "counted_from": "sent",
                "seed": 0,
                "replicate": 0,
                "record": False,
                "most_load": None,
            },
        ),
        "make": (
            workloads.make,
            {"name": "long_documents", "requests": 3, "seed": 0, "replicate": 0, "rate_rps": 1.0},
        ),
        "make agentic": (
            workloads.make,
            {"name": "agentic", "requests": 3, "seed": 0, "arrivals": "gamma", "arrival_cv": 2.0},
        ),
        "from_prompts": (
            workloads.from_prompts,
            {
                "prompts": ["ab", "abc", "b"],
                "arrival_s": times,
                "output_tok": [1, 2, 3],
                "session": [0, 0, 1],
                "name": "n",
            },
        ),
        "from_prompts segments": (
            workloads.from_prompts,
            {
                "prompts": [[("s", 5), ("q", 3)]] * 3,
                "arrival_s": times,
                "output_tok": None,
                "prompt_tok": [9, 9, 9],
                "answers": [("a", 4)] * 3,
                "shared_segments": [1, 1, 1],
            },
        ),
        "from_prompts hashes": (
            workloads.from_prompts,
            {
                "prompts": [[1, 2], [1], [3]],
                "arrival_s": times,
                "output_tok": [1, 1, 1],
                "hash_block_tok": 16,
            },
        ),
        "Workload": (
            workloads.Workload,
            {
                "name": "w",
                "arrival_s": np.array(times),
                "prompt_tok": np.array([5, 6, 7]),
                "output_tok": np.array([1, 1, 1]),
                "symbol_ptr": np.array([0, 1, 1, 1]),
                "symbols": np.array([0]),
                "symbol_tok": np.array([4]),
            },
        ),
        "queue": (
            queueing.make_spec,
            {
                "servers": 3,
                "dispatcher": "jsq_d",
                "utilisation": 0.5,
                "rate": None,
                "size": "lognormal(cv=3)",
                "arrivals": "poisson",
                "discipline": "fcfs",
                "speeds": [1.0, 2.0, 1.0],
                "d": 2,
                "replacement": True,
                "memory": False,
                "cutoffs": None,
                "update": "periodic",
                "period": 1.0,
                "age": "constant",
                "dispatchers": 1,
                "add_own": True,
                "allow_unstable": False,
            },
        ),
        "queue run": (
            queueing.simulate,
            {
                "utilisation": 0.5,
                "requests": 10,
                "replications": 2,
                "warmup": 1,
                "rel_half_width": None,
                "max_replications": 3,
                "quantiles": (0.5, 0.9),
                "level": 0.9,
                "seed": 0,
                "workers": 1,
                "keep_samples": True,
                "queue_lengths": False,
            },
        ),
        "balls": (
            queueing.balls,
            {
                "bins": 10,
                "balls": 10,
                "choices": 2,
                "replacement": True,
                "beta": 1.0,
                "rule": "random",
                "weights": None,
                "trials": 3,
                "seed": 0,
                "level": 0.95,
                "workers": 1,
            },
        ),
        "Served": (
            fleet.Served,
            {"cluster": cluster, "router": "random", "gpu_hour": 1.0, "most_load": 3.0, "per_load": 0.1},
        ),
        **_selection_calls(table),
    }


def _selection_calls(table: Any) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    from fastsim.selection import systems
    from fastsim.selection.choose import choose
    from fastsim.selection.compare_routers import compare
    from fastsim.selection.tables import split

    return {
        "split": (split, {"table": table, "test_share": 0.5, "by": "question", "seed": 0}),
        "route": (
            compare,
            {
                "table": table,
                "routers": ["random"],
                "params": {},
                "test_share": 0.5,
                "by": None,
                "draws": 3,
                "level": 0.9,
                "seed": 0,
            },
        ),
        "select": (
            choose,
            {
                "system": systems.get("locate_solve"),
                "table": table,
                "searcher": "llmselector",
                "params": {},
                "budget": 10,
                "penalty": 0.0,
                "spend": None,
                "loss": None,
                "right_from": None,
                "test_share": 0.5,
                "seed": 0,
            },
        ),
    }


# A change to these of these calls may ask for hours of work, or for memory that is there, and rightly so.
COSTLY = {
    "queue run": {"requests", "replications", "warmup", "workers", "max_replications"},
    "balls": {"bins", "balls", "choices", "trials", "workers"},
    "route": {"draws", "routers"},
}


def call_mutants(seed: int) -> Iterator[Mutant]:
    """Calls with one to three arguments changed."""
    rng, known = random.Random(seed), calls()
    while True:
        name = rng.choice(list(known))
        function, right = known[name]
        given = dict(right)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            key = rng.choice(list(right))
            value = rng.choice(VALUES)()
            if isinstance(right[key], list | dict) and right[key] and rng.random() < 0.5:
                value = copy.deepcopy(right[key])
                inside = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
                value[inside] = rng.choice(VALUES)()
            if key in COSTLY.get(name, ()) and isinstance(value, int | float) and value > 1000:
                continue
            given[key] = value
        if rng.random() < 0.02 and name != "Workload":  # a plain dataclass: Python says so
            given["no_such"] = 1
        words = ", ".join(
            f"{key}={type(value).__name__}" for key, value in given.items() if value is not right.get(key)
        )
        yield Mutant(f"{name}({words})", lambda function=function, given=given: function(**given))


# --- command lines ------------------------------------------------------------------------------------------

# ruff: noqa: E501
LINES = [
    "run sweeps/quickstart.toml --jobs 0 --out /nonexistent/x",
    "run sweeps/lecture-02-policies.toml --set cluster.replicas=0 --backend threads",
    "show /nonexistent --by router --metric ttft_p99_s",
    "replay /nonexistent.jsonl --router random --replicas 4 --model mistral-7b --gpu a6000 --view live --rate-scale 2.0",
    "explain 3 --router least_loaded --workload unique --sample 2 --set workload.requests=0",
    "queue --servers 3 --dispatcher jsq --utilisation 1.5 --d 2 --size exponential --requests 10 --quantile 0.5",
    "queue --utilisation 0.5 --requests 10 --replications 0 --warmup 1 --seed 3 --jobs 1 --period 1.0 --update periodic",
    "balls --bins 10 --balls 10 --choices 0 --beta 0.5 --rule random --trials 3 --seed 0 --jobs 1",
    "select /nonexistent.csv --system debate --searcher llmselector --budget 3 --penalty 0.1 --test-share 0.5",
    "route /nonexistent.csv --router knn --scorer-auc 0.8 --stages 2 --draws 10 --by question",
    "workloads unique --set requests=3 --seed 0",
    "workloads no_such --json",
    "lecture 96 97 98 99 --jobs 1 --markdown",
    "routers --json",
]
WORDS = [
    *(
        "x",
        "",
        "-1",
        "0",
        "1",
        "2.5",
        "nan",
        "inf",
        "1e999",
        "99999999999999999999",
        "1000000000000000",
        "a" * 300,
        "é☃",
        "\udcff",
    ),
    *(
        "--json",
        "--no-such",
        "--set",
        "seed=1",
        "a=b=c",
        "=",
        "a.b.c=[[[]]]",
        "[1,2]",
        "{a=1}",
        "--help",
        "../..",
        "/",
        ".",
    ),
    *(
        "--replicas",
        "--seed",
        "--out",
        "null",
        "true",
        "--set=cluster.replicas=x",
        "workload.requests=1e30",
        "--",
        "-",
    ),
]


def line_mutants(seed: int) -> Iterator[Mutant]:
    """Command lines with one to three words changed, left out or put in."""
    rng = random.Random(seed)
    while True:
        words = shlex.split(rng.choice(LINES))
        for _ in range(rng.choice((1, 1, 2, 3))):
            place = rng.randrange(1, len(words) + 1)
            kind = rng.random()
            if kind < 0.5 and place < len(words):
                words[place] = rng.choice(WORDS)
            elif kind < 0.7 and place < len(words):
                del words[place]
            else:
                words.insert(place, rng.choice(WORDS))
        yield Mutant(shlex.join(words), lambda words=words: run_line(words))


def run_line(words: list[str]) -> None:
    """Run a command line in this process; raise what `fastsim.cli.main` would leave as a traceback."""
    from fastsim import cli

    before = sys.argv
    sys.argv = ["fastsim", *words]
    try:
        cli.main()
    except SystemExit as end:
        if end.code not in (0, cli.WRONG_INPUT):
            raise AssertionError(f"exit code {end.code}") from end
    finally:
        sys.argv = before


KINDS: dict[str, Callable[[int], Iterator[Mutant]]] = {
    "sweeps": sweep_mutants,
    "calls": call_mutants,
    "lines": line_mutants,
}
