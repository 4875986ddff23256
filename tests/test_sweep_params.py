"""One canonical form of parameters, before they are stored and after."""

import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsim.cluster.outages import Restart
from fastsim.sweep import params as P
from fastsim.sweep import parse, read, run, summarise
from fastsim.sweep.parts import read_manifest

NAMES = st.text("abcxyz_é ", min_size=1, max_size=4)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats()
LEAVES = st.none() | st.booleans() | NUMBERS | st.text('aé"\\\n0', max_size=5)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=12,
)
TABLES = st.dictionaries(NAMES, VALUES, max_size=5)


@given(TABLES)
def test_stored_and_read_again_parameters_are_the_same(table):
    stored = msgspec.json.decode(msgspec.json.format(msgspec.json.encode(P.plain(table))))
    assert P.canonical(stored) == P.canonical(table)
    assert P.text(stored) == P.text(table)
    assert P.canonical(msgspec.json.decode(P.canonical(table))) == P.canonical(table)
    assert P.text(P.identity(table)) == P.text(table)


@given(TABLES, st.randoms(use_true_random=False))
def test_neither_order_nor_the_type_of_numbers_and_lists_counts(table, rng):
    assert P.canonical(varied(table, rng)) == P.canonical(table)


def varied(value, rng: random.Random):
    """The same said otherwise: keys in another order, integers as floats and the reverse, lists as tuples."""
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return {key: varied(one, rng) for key, one in items}
    if isinstance(value, list):
        items = [varied(one, rng) for one in value]
        return tuple(items) if rng.random() < 0.5 else items
    if isinstance(value, int) and not isinstance(value, bool) and int(float(value)) == value:
        return float(value) if abs(value) < 2**63 else value
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < 2**63:
        return int(value)
    return value


@given(LEAVES, LEAVES)
def test_what_differs_stays_apart(one, other):
    def kind(value):
        return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value)

    def same(a, b):
        return kind(a) == kind(b) and (a == b or (a != a and b != b))

    if not any(isinstance(value, float) and not math.isfinite(value) for value in (one, other)):
        assert (P.canonical(one) == P.canonical(other)) == same(one, other)


def test_numbers_and_structs():
    assert P.canonical([100, 100.0, 1e2, True, 1, -0.0]) == "[100,100,100,true,1,0]"
    assert P.canonical({"b": (1,), "a": Restart(replica=1, at_s=5)}) == P.canonical(
        {"a": {"at_s": 5.0, "replica": 1, **rest_of_a_restart()}, "b": [1]}
    )


def rest_of_a_restart():
    made = msgspec.to_builtins(Restart(replica=1, at_s=5))
    return {key: value for key, value in made.items() if key not in ("replica", "at_s")}


def test_files_inside_lists_count_by_their_content():
    here, there = ({"x": [{"table": f"{at}/t.csv", "table_digest": "0"}]} for at in ("/here", "there"))
    assert P.text(here) == P.text(there)


RESTARTS = {
    "sweep": {"name": "restarts", "seeds": 2, "metrics": ["latency_mean_s"]},
    "base": {
        "estimand": "transient",
        "workload": {"name": "long_documents", "rate_rps": 1, "duration_s": 20.0},
        "cluster": {"replicas": 2, "kv_tok": 200_000, "restarts": [{"replica": 0, "at_s": 5}]},
    },
}


@pytest.mark.parametrize("where", ["base", "grid"])
def test_restarts_are_found_again(tmp_path, where):
    given = {**RESTARTS, "base": {**RESTARTS["base"]}}
    if where == "grid":
        given["grid"] = {"cluster.restarts": [[], [{"replica": 0, "at_s": 5}]]}
        given["base"] = {**given["base"], "cluster": {"replicas": 2, "kv_tok": 200_000}}
    sweep = parse(given)
    first = run(sweep, tmp_path, jobs=1)
    assert not first.failed
    results = read(tmp_path)
    assert sum(len(table.cells) for table in summarise(results)) == len(sweep.cells())
    assert results.rows.height == first.simulated == 2 * len(sweep.cells())
    assert P.canonical(read_manifest(tmp_path)) == P.canonical(sweep)
    again = run(parse(given, ["rate_rps=1.0"]), tmp_path, jobs=1)
    assert (again.found, again.simulated) == (first.simulated, 0)


def test_restarts_stop_by_rule(tmp_path):
    stop = {"metric": "latency_mean_s", "rel_half_width": 0.9, "min_seeds": 2, "batch": 1, "max_seeds": 3}
    given = {**RESTARTS, "sweep": {"name": "restarts"}, "stop": stop}
    run(parse(given), tmp_path, jobs=1)
    assert read(tmp_path).rows.height in (2, 3)
