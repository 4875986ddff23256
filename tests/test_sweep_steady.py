"""What a sweep estimates: defaults, one warm-up for all cells of a workload, pooled P99s, cells in doubt."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from fastsim.errors import InputError
from fastsim.report import data, text
from fastsim.stats import QuantileHistogram, is_long_enough, quantile
from fastsim.stats.histogram import pooled_quantile
from fastsim.sweep import doubts, parse, read, run, summarise
from fastsim.sweep import params as P
from fastsim.sweep.experiments.cluster import CLUSTER, prepare, serve

BASE = {
    "workload": {"name": "long_documents", "rate_rps": 0.5, "duration_s": 400.0},
    "cluster": {"engine": "lecture", "replicas": 2},
}
DOCUMENT = {
    "sweep": {"name": "steady", "seeds": 4},
    "base": BASE,
    "grid": {"router": ["least_loaded", "affinity_threshold"]},
}


def settled(*cells):
    return CLUSTER.settle([CLUSTER.validate(cell) for cell in cells], 1, print)


def test_the_default_is_what_a_fleets_owner_asks_for():
    assert CLUSTER.validate(BASE) | {"estimand": "steady", "warmup_s": "auto"} == CLUSTER.validate(BASE)
    dated = {**BASE, "cluster": {**BASE["cluster"], "restarts": [{"replica": 0, "at_s": 9.0, "down_s": 1.0}]}}
    assert CLUSTER.validate(dated)["estimand"] == "transient"
    assert CLUSTER.validate({**BASE, "estimand": "transient"})["warmup_s"] == 0.0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"estimand": "stationary"}, "estimand is 'stationary'; it must be 'transient' or 'steady'"),
        ({"estimand": "transient", "warmup_s": "auto"}, "warmup_s is 'auto'; it must be 0 or more seconds"),
        ({"warmup_s": -1.0}, "warmup_s = -1.0 is not allowed; it must be a number from 0"),
        (
            {"estimand": "steady", "cluster": {"replicas": 2, "joins_s": [5.0]}},
            "estimand is 'steady', but restarts and joins happen at given times",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(more, says):
    with pytest.raises(InputError, match=says):
        CLUSTER.validate({**BASE, **more})


def test_cells_on_a_workload_share_a_warmup_and_keep_their_window():
    cells = settled({**BASE, "router": "least_loaded"}, {**BASE, "router": "affinity_threshold"})
    warmup_s = cells[0]["warmup_s"]
    assert [(cell["warmup_s"], cell["settled"]) for cell in cells] == [(warmup_s, True)] * 2
    assert warmup_s > 0.0
    assert CLUSTER.workload(cells[0]) == CLUSTER.workload(cells[1])
    assert CLUSTER.workload(cells[0])["workload"]["duration_s"] == 400.0 + warmup_s
    row = CLUSTER.row(cells[1], prepare(cells[1], 1, 0), 1, 0)
    assert row["warmup_s"] == warmup_s
    columns = serve(cells[1], prepare(cells[1], 1, 0), 1, 0).columns
    assert row["samples"] == (columns["arrival_s"] >= warmup_s).sum()
    assert columns["arrival_s"][-1] > 400.0
    late = columns["arrival_s"] >= warmup_s
    early = columns["arrival_s"] < 60.0
    cold, warm = (
        columns["hit_tok"][part].sum() / columns["prompt_tok"][part].sum() for part in (early, late)
    )
    assert row["hit_rate"] == warm
    assert warm > cold + 0.1


def test_requests_are_added_where_the_length_is_in_requests():
    workload = {"name": "long_documents", "rate_rps": 0.5, "requests": 200}
    cell = CLUSTER.validate({**BASE, "workload": workload, "warmup_s": 100.0})
    assert CLUSTER.workload(cell)["workload"]["requests"] == 250


def test_a_cell_that_grows_is_marked_and_does_not_hold_up_the_others():
    alone, beside = (
        settled(*cells)
        for cells in (
            [{**BASE, "router": "least_loaded"}],
            [{**BASE, "router": "least_loaded"}, {**BASE, "cluster": {"engine": "lecture", "replicas": 1}}],
        )
    )
    assert [cell["settled"] for cell in beside] == [True, False]
    assert alone[0]["warmup_s"] == beside[0]["warmup_s"] == beside[1]["warmup_s"]


def test_a_table_of_outages_holds_them_against_a_transient():
    joins = {**BASE, "cluster": {**BASE["cluster"], "joins_s": [50.0]}}
    assert [(cell["estimand"], cell["warmup_s"]) for cell in settled(BASE, joins)] == [("transient", 0.0)] * 2


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steady")
    run(parse(DOCUMENT), folder)
    return read(folder)


def test_a_pooled_p99_is_that_of_all_requests(results):
    names = ["latency_p99_s", "latency_pooled_p99_s"]
    (table,) = summarise(results, metrics=names)
    (cell,) = [one for one in results.sweep.cells() if one["router"] == "affinity_threshold"]
    latencies = []
    for replicate in range(4):
        columns = serve(
            cell, prepare(cell, results.sweep.seed, replicate), results.sweep.seed, replicate
        ).columns
        late = columns["arrival_s"] >= cell["warmup_s"]
        latencies.append((columns["done_s"] - columns["arrival_s"])[late])
    own, pooled = (table.cells[1].metrics[name] for name in names)
    assert own is not None
    assert pooled is not None
    assert own.value == pytest.approx(np.mean([quantile(one, 0.99) for one in latencies]), rel=1e-12)
    assert pooled.value == pytest.approx(quantile(np.concatenate(latencies), 0.99), rel=0.001)
    assert pooled.half_width == np.inf  # no interval for it was found that covers


def test_histograms_come_back_from_text():
    histogram = QuantileHistogram()
    histogram.add(np.random.default_rng(1).lognormal(size=500))
    again = QuantileHistogram.from_text(histogram.to_text())
    assert (again.counts == histogram.counts).all()
    with pytest.raises(InputError, match="is not a histogram"):
        QuantileHistogram.from_text("9:no")
    assert pooled_quantile([histogram.to_text()] * 2, 0.5) == histogram.quantile(0.5)


def test_tables_say_what_is_estimated(results):
    (table,) = summarise(results)
    written = text.summary(table, CLUSTER)
    assert "estimated: the mean over runs of each run's own figure" in written
    assert f"steady: {results.sweep.cells()[0]['warmup_s']:g} s are left out" in written
    assert data.rows([table])[0]["estimated"] == list(table.estimated)
    doubted = dataclasses.replace(table.cells[1], doubt="short", difference_doubt="short")
    written = text.summary(dataclasses.replace(table, cells=(table.cells[0], doubted)), CLUSTER)
    line = next(line for line in written.splitlines() if line.startswith("affinity_threshold"))
    assert line.count("?") == len(table.metrics) + 2
    assert "?: not to be trusted" in written


def test_doubt_comes_from_load_and_length_alone():
    cell = {"router": "any"}
    work = np.tile([0.98, 1.02], 10)

    def rows(load: float, samples: int) -> pl.DataFrame:
        return pl.DataFrame(
            {
                "params": [P.text(cell)] * 20,
                "samples": [samples] * 20,
                "offered_load": [load] * 20,
                "utilisation": work,
                "throughput_rps": np.ones(20),
            }
        )

    assert doubts.doubts([cell], rows(0.945, 900)) == {P.text(cell): "short"}
    assert doubts.doubts([cell], rows(0.8, 900)) == {}
    assert doubts.doubts([cell], rows(0.8, 90)) == {P.text(cell): "short"}
    assert doubts.doubts([{**cell, "settled": False}], rows(0.5, 900)) == {
        P.text({**cell, "settled": False}): "unsettled"
    }
    assert is_long_enough(1e9, 0.95, 0.0)
    assert not is_long_enough(1e9, 0.95, 0.03)  # some seeds are above capacity for ever
    assert is_long_enough(100, None)
