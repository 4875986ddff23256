"""The fleet as an experiment: parameters, common random numbers, and what the frontier shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastsim import fleet
from fastsim.cluster.routers import ROUTERS
from fastsim.errors import InputError
from fastsim.fleet.summary import figures
from fastsim.report import figures as pictures
from fastsim.report.draw import MARKERS
from fastsim.report.frontier import Point, undominated
from fastsim.selection.tables import split
from fastsim.stats import Interval
from fastsim.sweep import load, parse, read, run, summarise
from fastsim.sweep.experiments.fleet import FLEET, models_of, plan_of, prepare, served_of
from fastsim.sweep.summary import Cell

CLUSTER = {"kv_tok": 20_000, "max_batch_tok": 512, "max_seqs": 16, "step_time": "l8_h100_vllm"}
DOCUMENT = {
    "sweep": {"name": "tiny", "experiment": "fleet", "seeds": 2, "seed": 7},
    "base": {
        "questions": {"size": 300, "topics": 6, "context_tok": 300},
        "traffic": {"rate_rps": 8.0, "requests": 120},
        "cascade": {"auc": 0.8, "scorer_s": 0.05},
        "cluster": CLUSTER,
        "cluster_2": {"gpu_hour": 3.0},
    },
    "grid": {
        "cascade.threshold": [0.3, 0.7],
        "cluster_2.replicas": [1, 2],
        "router": ["round_robin", "least_loaded"],
    },
    "figure": [{"figure": "frontier", "x": "latency_p99_s", "y": "accuracy", "colour": "cost"}],
}


def with_base(**tables):
    base = {**DOCUMENT["base"], **tables}
    return {**DOCUMENT, "base": {name: table for name, table in base.items() if table is not None}}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    run(parse(DOCUMENT), folder)
    return read(folder)


def test_rows_are_what_the_fleet_says(results):
    cell = results.sweep.cells()[5]
    assert cell["cascade"]["threshold"] == 0.7
    stream = prepare(cell, 7, 1)
    served = {model: served_of(cell, k) for k, model in enumerate(models_of(cell))}
    result = fleet.simulate(plan_of(cell, stream, 7, 1), stream.arrival_s, served, seed=7, replicate=1)
    known = figures(result)
    row = results.rows.filter(results.rows["replicate"] == 1).row(5, named=True)
    for name in ("accuracy", "latency_mean_s", "latency_p99_s", "hit_rate", "escalated", "utilisation"):
        assert row[name] == known[name], name
    assert row["gpu_cost"] == 1000.0 * known["gpu_cost"]
    assert row["cost"] == 1000.0 * known["cost"]
    assert row["samples"] == 120


def test_policies_meet_the_same_questions(results):
    (table,) = summarise(results, metrics=["accuracy", "latency_mean_s"])
    assert table.axes == ("cascade.threshold", "cluster_2.replicas", "router")
    for first, second in zip(table.cells[::2], table.cells[1::2], strict=True):
        assert first.metrics["accuracy"] == second.metrics["accuracy"]  # routers inside do not choose models
        assert first.metrics["latency_mean_s"] != second.metrics["latency_mean_s"]


def test_a_stream_asks_every_question_once_before_any_again():
    cell = parse(with_base(traffic={"rate_rps": 8.0, "requests": 400})).cells()[0]
    stream = prepare(cell, 1, 0)
    size = stream.parts.test.size
    assert size == 150
    assert sorted(stream.rows[:size]) == list(range(size))
    assert np.bincount(stream.rows, minlength=size).max() == 3
    plan = plan_of(cell, stream, 1, 0)
    assert plan is plan_of({**cell, "router": "random"}, stream, 1, 0)
    assert len(np.unique(plan.question)) == 400  # nobody finds the prompt of the same question in a cache


def test_lists_may_be_text_and_axes():
    made = {"size": 50, "accuracy": [0.5, 0.6, 0.8]}
    made |= {name: [1.0, 2.0, 3.0] for name in ("input_price", "output_price", "answer_tok")}
    document = with_base(models="a, b, c", questions=made)
    document["grid"] = {"cascade.threshold": ["0.3, 0.6", 0.5]}
    cells = parse(document).cells()
    plans = [plan_of(cell, prepare(cell, 1, 0), 1, 0) for cell in cells]
    assert [cell["cascade"]["threshold"] for cell in cells] == ["0.3, 0.6", 0.5]
    assert plans[0].models == ("a", "b", "c")
    margins = plans[0].margin - plans[1].margin
    np.testing.assert_allclose(margins, np.tile([0.0, -0.2, 0.1], (120, 1)), atol=1e-12)


def test_what_is_common_to_clusters_may_be_set_apart():
    document = with_base(
        router_params={"theta": 0.3}, cluster_1={"router": "affinity_threshold", "replicas": 3}
    )
    cell = parse(document).cells()[0]
    assert cell["cluster_1"]["router_params"] == {"theta": 0.3}
    assert cell["cluster_1"]["replicas"] == 3
    assert cell["cluster_2"]["router"] == "round_robin"
    assert cell["cluster_1"]["kv_tok"] == cell["cluster_2"]["kv_tok"] == 20_000
    assert served_of(cell, 1).gpu_hour == 3.0


@pytest.mark.parametrize(
    ("way", "calls"),
    [
        ({"model_router": {"name": "length", "weight": 0.1}}, (1.0, 1.0)),
        ({"system": {"name": "self_refine", "allocation": ["small", "large", "small"]}}, (2.0, 3.0)),
        ({"system": {"name": "debate", "allocation": "small"}}, (6.0, 6.0)),
    ],
)
def test_model_routers_and_systems_are_swept_alike(way, calls, tmp_path):
    document = with_base(cascade=None, traffic={"rate_rps": 2.0, "requests": 40}, **way)
    document["grid"] = {"router": ["round_robin"]}
    run(parse(document), tmp_path)
    rows = read(tmp_path).rows
    low, high = calls
    assert rows["calls"].is_between(low, high).all()
    assert (rows["unanswered"] == 0.0).all()


def test_a_table_from_a_file(tmp_path):
    path = tmp_path / "asked.csv"
    rng = np.random.default_rng(0)
    lines = [f"{'word ' * (20 + k % 7)}{k},{rng.integers(2)},{int(rng.random() < 0.9)}" for k in range(60)]
    path.write_text("\n".join(["text,small,large", *lines]))
    prices = tmp_path / "prices.toml"
    prices.write_text("small = {input_price = 0.1}\nlarge = {input_price = 1.0}")
    questions = {"table": str(path), "prices": str(prices), "answer_tok": 30.0, "topics": 6}
    sweep = parse(with_base(questions=questions))
    cell = sweep.cells()[0]
    assert {"table_digest", "prices_digest"} <= set(cell["questions"])
    parts = prepare(cell, 3, 0).parts
    assert parts.test.models == ("small", "large")
    assert parts.test.input_tok is not None
    assert split(parts.test).test.size == 15
    run(sweep, tmp_path / "out")
    assert read(tmp_path / "out").rows["accuracy"].is_between(0.4, 1.0).all()


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (with_base(model_router={"name": "knn"}), "has cascade and model_router; give one of cascade, model"),
        (with_base(cascade={"treshold": 0.4}), r"no parameter 'treshold'; did you mean 'threshold'\?"),
        (with_base(cascade={"threshold": "a lot"}), "threshold is 'a lot'; it must be numbers such as 0.5"),
        (with_base(cascade={"threshold": [0.1, 0.2]}), "threshold has 2 values; 2 models need 1"),
        (with_base(cascade={"auc": 1.5}), "auc = 1.5 is not allowed; it must be a number"),
        (with_base(models=["a"]), r"models is \['a'\]; it must hold 2 to 6 different names"),
        (
            with_base(models=["a", "b", "c"]),
            "accuracy has 2 entries; it must have one for each of the models",
        ),
        (with_base(cluster_3={"replicas": 2}), "cluster_3 is given, but there are only 2 models"),
        (with_base(cluster_2={"gpu": "h10"}), r"cluster_2: .*did you mean 'h100'\?"),
        (with_base(cluster_2={"router": "random_"}), r"cluster_2: .*did you mean 'random'\?"),
        (with_base(questions={"table": "none.csv"}), "questions.table 'none.csv' does not exist"),
        (
            with_base(cascade=None, system={"name": "debate", "allocation": ["small"]}),
            "allocation has 1 models; debate needs one for each of generate_1",
        ),
        (
            with_base(cascade=None, system={"name": "debate", "allocation": "smal"}),
            r"allocation names 'smal'; did you mean 'small'\?",
        ),
        (with_base(traffic={"rate": 1.0}), r"traffic: it has no parameter 'rate'"),
        (
            {**DOCUMENT, "grid": {**DOCUMENT["grid"], "replicas": [1]}},
            "grid axis 'replicas' could be cluster.replicas or cluster_1.replicas",
        ),
        (with_base(warmup_s=-1), "warmup_s = -1 is not allowed; it must be a number from 0"),
        (
            with_base(cluster_1={"per_load": -0.1}),
            "per_load = -0.1 is not allowed; it must be a number, at least 0",
        ),
    ],
)
def test_mistakes_are_named(document, sentence):
    document = {**document, "grid": {k: v for k, v in document["grid"].items() if k != "cascade.threshold"}}
    with pytest.raises(InputError, match=sentence):
        parse(document)


def test_parameters_name_everything_a_cell_can_have():
    names = set(FLEET.parameters())
    assert {"cascade.threshold", "cluster_2.replicas", "cluster_1.router_params.theta", "router"} <= names
    assert {"questions.table", "questions.accuracy", "traffic.rate_rps", "system.allocation"} <= names


# --- the frontier -------------------------------------------------------------------------------------------


def point(x, y, z):
    exact = [Interval(value, value, value, 2) for value in (x, y, z)]
    return Point(Cell({}, 2, "fixed", True, {}), *exact)


def test_the_frontier_holds_what_nobody_beats_in_all():
    a, b, c = point(1.0, 0.5, 3.0), point(2.0, 0.7, 3.0), point(2.0, 0.5, 1.0)
    beaten = [point(2.0, 0.5, 3.0), point(2.5, 0.7, 3.0), point(1.0, 0.5, 3.0)]
    assert undominated([a, *beaten, b, c]) == [a, c, b]


def test_frontiers_by_brute_force():
    rng = np.random.default_rng(5)
    given = [point(*map(float, rng.integers(0, 6, 3))) for _ in range(80)]
    values = {(p.x.value, -p.y.value, p.z.value) for p in given}
    best = {v for v in values if not any(w != v and all(np.array(w) <= np.array(v)) for w in values)}
    front = [(p.x.value, -p.y.value, p.z.value) for p in undominated(given)]
    assert len(front) == len(set(front))
    assert set(front) == best


def test_the_picture_is_drawn(results, tmp_path):
    (path,) = pictures.write(results, tmp_path)
    assert path.name == "accuracy-latency_p99_s.png"
    assert path.stat().st_size > 20_000


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"x": "router"}, "x: there is no metric 'router'"),
        ({"colour": "cots"}, r"colour: there is no metric 'cots'; did you mean 'cost'\?"),
        ({"figure": "curves", "x": "replicas"}, "colour is 'cost'; figure 'curves' has no use for it"),
    ],
)
def test_mistakes_in_figures_are_named(change, sentence):
    with pytest.raises(InputError, match=sentence):
        pictures.check(parse({**DOCUMENT, "figure": [{**DOCUMENT["figure"][0], **change}]}))


def test_more_routers_than_markers_are_refused():
    names = list(ROUTERS)[: len(MARKERS) + 1]
    sweep = parse({**DOCUMENT, "grid": {"router": names, "cluster_2.replicas": [1, 2]}})
    with pytest.raises(
        InputError, match=r"router \(14\) would make 14 markers, of which 13 can be told apart"
    ):
        pictures.check(sweep)


def test_the_sweep_of_the_readme_is_sound():
    sweep = load(Path(__file__).parents[1] / "sweeps" / "three-levels.toml")
    assert len(sweep.grids[0].cells) == 60
    assert len(pictures.check(sweep)) == 1
