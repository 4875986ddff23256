"""From rows to intervals, against the formulas done by hand; the rule that decides the number of seeds."""

import math

import numpy as np
import pytest
from scipy import stats

from fastsim.errors import InputError
from fastsim.report import data, text
from fastsim.stats import Interval
from fastsim.sweep import parse, read, run, summarise
from fastsim.sweep.experiments import experiment

DOCUMENT = {
    "sweep": {"name": "small", "experiment": "tests.fake_experiment:FAKE", "seeds": 6},
    "base": {"traffic": {"size": 30}},
    "grid": {"router": ["alpha", "beta", "gamma"], "rate_rps": [1.0, 3.0]},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("summary")
    run(parse(DOCUMENT), folder)
    return read(folder)


def known(interval: Interval | None) -> Interval:
    assert interval is not None
    return interval


def means(router: int, rate: float, seeds: int = 6) -> np.ndarray:
    """Fake's mean latency, by its definition."""
    rngs = [np.random.default_rng([0, replicate]) for replicate in range(seeds)]
    return np.array([(rng.exponential(size=30) * rate * (1 + router)).mean() for rng in rngs])


def limits(values: np.ndarray) -> tuple[float, float]:
    """Hall's skewness-adjusted t limits, by definition."""
    t, a = stats.t.ppf(0.975, len(values) - 1), stats.skew(values) / math.sqrt(len(values))
    low, high = (3 / a * (np.cbrt(1 + a * (y - a / 6)) - 1) for y in (-t, t))
    return values.mean() - high * stats.sem(values), values.mean() - low * stats.sem(values)


def test_intervals_are_skewness_adjusted(results):
    (table,) = summarise(results)
    assert table.axes == ("traffic.rate_rps", "router")
    assert (table.compare, table.reference) == ("router", "alpha")
    assert [tuple(cell.axes.values()) for cell in table.cells[:4]] == [
        (1.0, "alpha"),
        (1.0, "beta"),
        (1.0, "gamma"),
        (3.0, "alpha"),
    ]
    cell = table.cells[1]
    values = means(1, 1.0)
    estimate = known(cell.metrics["latency_mean_s"])
    assert estimate.value == pytest.approx(values.mean(), rel=1e-12)
    assert (estimate.low, estimate.high) == pytest.approx(limits(values), rel=1e-9)
    paired = values - means(0, 1.0)
    difference = known(cell.differences["latency_mean_s"])
    assert difference.value == pytest.approx(paired.mean(), rel=1e-12)
    assert (difference.low, difference.high) == pytest.approx(limits(paired), rel=1e-9)
    assert not table.cells[0].differences


def test_unstable_cells_have_no_tail(results):
    (table,) = summarise(results)
    for cell in table.cells:
        overloaded = cell.axes["traffic.rate_rps"] == 3.0
        assert cell.stable is not overloaded
        assert (cell.metrics["latency_p99_s"] is None) is overloaded
        assert cell.metrics["latency_mean_s"] is not None
        if cell.differences:
            assert (cell.differences["latency_p99_s"] is None) is overloaded


def test_axes_left_out_are_averaged_within_a_seed(results):
    (table,) = summarise(results, by=["router"], metrics=["latency_mean_s"], average=["rate_rps"])
    assert table.axes == ("router",)
    values = (means(2, 1.0) + means(2, 3.0)) / 2
    estimate = known(table.cells[2].metrics["latency_mean_s"])
    assert (estimate.n, estimate.value) == (6, pytest.approx(values.mean(), rel=1e-12))
    assert not any(cell.stable for cell in table.cells)
    (by_rate,) = summarise(results, by=["rate_rps"], average=["router"])
    assert [cell.axes for cell in by_rate.cells] == [{"traffic.rate_rps": 1.0}, {"traffic.rate_rps": 3.0}]
    assert by_rate.compare is None


def test_nothing_is_averaged_over_unasked(results):
    sentence = (
        r"rate_rps takes several values \(1.0, 3.0\) and would be averaged over unseen; keep it with --by "
        r"rate_rps, choose with --where rate_rps=1.0, or ask for the mean with --average rate_rps"
    )
    with pytest.raises(InputError, match=sentence):
        summarise(results, by=["router"])
    (averaged,) = summarise(results, average=["rate_rps"])
    assert averaged == summarise(results, by=["router"], average=["rate_rps"])[0]


def test_a_filter_leaves_the_lines_that_the_whole_table_has(results):
    (whole,) = summarise(results)
    (light,) = summarise(results, where={"rate_rps": 1})  # 1 is 1.0
    assert light.cells == whole.cells[:3]
    (by_router,) = summarise(results, by=["router"], where={"rate_rps": 1.0, "size": 30})
    assert [cell.metrics for cell in by_router.cells] == [cell.metrics for cell in whole.cells[:3]]
    (two,) = summarise(results, where={"router": ["beta", "gamma"]})
    assert (len(two.cells), two.reference) == (4, "beta")
    with pytest.raises(InputError, match=r"--where rate_rps = 2.0: no cell of 'small' has that; there are 1"):
        summarise(results, where={"rate_rps": 2.0})
    with pytest.raises(InputError, match=r"--where 'rat_rps' is unknown; did you mean 'rate_rps'\?"):
        summarise(results, where={"rat_rps": 2.0})


def test_axes_that_go_together_need_one_name(tmp_path):
    document = {**DOCUMENT, "grid": {"router": ["alpha", "beta"], "rate_rps,size": [[0.5, 10], [1.0, 20]]}}
    run(parse(document, ["sweep.seeds=2"]), tmp_path)
    (table,) = summarise(read(tmp_path), by=["rate_rps", "router"])
    assert [tuple(cell.axes.values()) for cell in table.cells[:2]] == [(0.5, "alpha"), (0.5, "beta")]


def test_unknown_axes_and_metrics(results):
    with pytest.raises(InputError, match=r"axis 'ruoter' is unknown; did you mean 'router'\?"):
        summarise(results, by=["ruoter"])
    with pytest.raises(
        InputError, match=r"small has no metric 'latency_p98_s'; did you mean 'latency_p99_s'\?"
    ):
        summarise(results, metrics=["latency_p98_s"])


def stopping_document(target: float, cap: int = 60) -> dict:
    return {
        **DOCUMENT,
        "sweep": {"name": "stop", "experiment": "tests.fake_experiment:FAKE"},
        "stop": {
            "metric": "latency_mean_s",
            "rel_half_width": target,
            "min_seeds": 4,
            "batch": 3,
            "max_seeds": cap,
        },
    }


def seeds_by_hand(target: float, cap: int) -> int:
    seeds = 4
    while seeds < cap:
        values = means(0, 1.0, seeds)
        half = stats.t.ppf(0.975, seeds - 1) * values.std(ddof=1) / math.sqrt(seeds)
        if half / values.mean() <= target / (1 + target):
            break
        seeds = min(seeds + 3, cap)
    return seeds


@pytest.mark.parametrize(("target", "cap", "why"), [(0.1, 60, "target"), (0.01, 20, "cap")])
def test_seeds_are_added_until_target_or_cap(tmp_path, target, cap, why):
    sweep = parse(stopping_document(target, cap), ["rate_rps=1.0"])
    report = run(sweep, tmp_path)
    expected = seeds_by_hand(target, cap)
    assert (expected < cap) is (why == "target")
    assert report.simulated == 3 * expected
    (table,) = summarise(read(tmp_path))
    assert {(cell.seeds, cell.why) for cell in table.cells} == {(expected, why)}
    assert run(sweep, tmp_path).simulated == 0


def test_pooled_cells_with_different_seeds_use_those_that_all_have(tmp_path):
    # Means of 300 samples spread less than means of 30, so their block stops at fewer seeds.
    run(parse(stopping_document(0.1), ["rate_rps=1.0", "size=[30, 300]"]), tmp_path)
    (by_size,) = summarise(read(tmp_path), by=["size"], average=["router"])
    few = min(cell.seeds for cell in by_size.cells)
    assert few < max(cell.seeds for cell in by_size.cells)
    (pooled,) = summarise(read(tmp_path), by=["router"], average=["size"])
    assert {cell.seeds for cell in pooled.cells} == {few}


def test_an_overloaded_cell_does_not_ask_for_more_seeds(tmp_path):
    run(parse(stopping_document(0.01), ["rate_rps=3.0"]), tmp_path)
    (table,) = summarise(read(tmp_path))
    assert {(cell.seeds, cell.stable) for cell in table.cells} == {(4, False)}


def test_seeds_of_an_earlier_longer_sweep_do_not_change_the_answer(tmp_path):
    sweep = parse(stopping_document(0.1), ["rate_rps=1.0"])
    run(sweep, tmp_path / "fresh")
    run(parse(DOCUMENT, ["rate_rps=1.0", "sweep.seeds=60"]), tmp_path / "used")
    assert run(sweep, tmp_path / "used").simulated == 0
    fresh, used = read(tmp_path / "fresh").rows, read(tmp_path / "used").rows
    drop = ["sweep", "spec_hash"]
    assert used.drop(drop).equals(fresh.drop(drop))


def test_a_line_with_failed_seeds_says_so_and_differences_use_the_seeds_of_both(tmp_path):
    made = {
        "sweep": {"name": "small", "experiment": "tests.fake_experiment:FAKE", "seeds": 4},
        "base": {"fate": "raise", "doomed": 1},
        "grid": {"router": ["alpha", "beta"]},
    }
    assert len(run(parse(made), tmp_path, jobs=1).failed) == 1
    (table,) = summarise(read(tmp_path))
    alpha, beta = table.cells
    assert (alpha.seeds, alpha.missing, beta.seeds, beta.missing) == (4, 0, 3, 1)
    difference = beta.differences["latency_mean_s"]
    assert known(difference).n == 3
    said = text.summary(table, experiment("tests.fake_experiment:FAKE"))
    assert "3 of 4" in said
    assert "n of m: the other seeds failed, see failed.txt, or are not finished" in said
    assert "(3)" in said
    assert data.rows([table])[1]["seeds_missing"] == 1


@pytest.mark.parametrize("slo_s", [200.0, 1e-9])
def test_refusals_are_an_outcome(tmp_path, slo_s):
    """Shown wherever there are any, beside the latencies of those served; nothing served is no failure."""
    made = {
        "sweep": {"name": "slo", "seeds": 2, "metrics": ["latency_mean_s", "latency_p99_s"]},
        "base": {
            "workload": {"name": "long_documents", "rate_rps": 3.0, "duration_s": 120.0},
            "cluster": {"replicas": 2},
            "router_params": {"ttft_slo_s": slo_s},
        },
        "grid": {"router": ["round_robin", "mooncake"]},
    }
    report = run(parse(made), tmp_path, jobs=1)
    assert report.failed == {}
    (table,) = summarise(read(tmp_path))
    assert table.metrics == ("latency_mean_s", "latency_p99_s", "rejected")
    robin, mooncake = table.cells
    assert known(robin.metrics["rejected"]).value == 0.0
    assert mooncake.stable
    said = text.summary(table, experiment("cluster"))
    assert "share refused" in said
    if slo_s == 200.0:
        assert 0.0 < known(mooncake.metrics["rejected"]).value < 1.0
        assert known(mooncake.metrics["latency_p99_s"]).n == 2
    else:
        assert known(mooncake.metrics["rejected"]).value == 1.0
        assert mooncake.metrics["latency_mean_s"] is mooncake.metrics["latency_p99_s"] is None
        assert data.rows([table])[1]["latency_mean_s"] is None
        assert "nan" not in said.lower()
