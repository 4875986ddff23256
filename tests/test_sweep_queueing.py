"""Classic load balancing as a sweep: parameters, common random numbers, and the lecture's sweeps."""

import inspect
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fastsim.errors import InputError
from fastsim.queueing import make_spec, run_once, simulate
from fastsim.queueing.balls_theory import one_choice_max
from fastsim.queueing.warmup import default_requests, settle
from fastsim.report import figures
from fastsim.stats import mean_interval, skewness_adjusted
from fastsim.sweep import load, read, run, summarise
from fastsim.sweep.experiments import experiment
from fastsim.sweep.spec import parse
from fastsim.workloads import load as load_trace

SWEEPS = Path(__file__).parents[1] / "sweeps"
QUEUEING = experiment("queueing")


def test_a_cell_has_all_parameters_that_its_dispatcher_takes():
    table = {"servers": 16, "d": 3, "utilisation": 0.8}
    sampling = QUEUEING.validate({**table, "dispatcher": "jsq_d"})
    full = QUEUEING.validate({**table, "dispatcher": "jsq"})
    assert (sampling["d"], sampling["replacement"]) == (3, True)
    assert not {"d", "replacement", "memory"} & full.keys()
    spec = make_spec(16, "jsq", utilisation=0.8)
    assert full["requests"] == default_requests(spec, (0.5, 0.9, 0.99))
    assert full["warmup"] == "mser5"
    assert QUEUEING.validate(full) == full


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"servrs": 4}, r"\[base\] has no 'servrs'; did you mean 'servers'"),
        ({"dispatcher": "jsk"}, "dispatcher 'jsk' is not known; did you mean 'jsq'"),
        ({"utilisation": -1.0}, "utilisation = -1 is not allowed; it must be a number, above 0"),
        ({"utilisation": 0.5, "rate": 1.0}, "both utilisation and rate are given"),
        ({"servers": 2, "speeds": [1.0, 2.0, 3.0]}, "speeds must hold one finite number above 0 for each of"),
        ({"servers": 2, "speeds": "1, fast"}, "speeds holds 'fast'; it must be numbers such as"),
        ({"servers": 3, "dispatcher": "sita", "cutoffs": [1.0]}, "cutoffs must be 2 ascending sizes"),
        ({"trace": "nowhere.jsonl"}, "trace 'nowhere.jsonl' does not exist"),
        ({"trace": "nowhere.jsonl", "arrivals": "renewal(cv=2)"}, "and there is a trace; give one of them"),
        (
            {"warmup": "mser"},
            "queueing: warmup = 'mser' is not allowed; it must be a whole number, at least 0 or 'mser5'",
        ),
        ({"dispatcher": "jsq_d", "servers": 2, "d": 3}, "d is 3; 2 servers allow 1 to 2"),
        ({"requests": 0}, "queueing: requests = 0 is not allowed; it must be a whole number, at least 1"),
        ({"period": -1.0, "update": "periodic"}, "period = -1 is not allowed; it must be a number from 0"),
    ],
)
def test_a_bad_cell_is_refused(raw, sentence):
    with pytest.raises(InputError, match=sentence):
        QUEUEING.validate(raw)


def test_a_row_is_one_replication_of_the_same_question():
    asked = {"servers": 4, "dispatcher": "jsq_d", "utilisation": 0.7, "update": "periodic", "period": 1.0}
    params = QUEUEING.validate({**asked, "requests": 3_000, "warmup": 500})
    row = QUEUEING.row(params, None, 7, 3)
    spec = make_spec(4, "jsq_d", utilisation=0.7, update="periodic", period=1.0)
    same = run_once(spec, 7, 3, warmup=500, requests=3_000)
    assert row["response_p99"] == same.response[0.99]
    assert row["wait_mean"] == same.values["wait_mean"]
    assert (row["samples"], row["warmup_s"]) == (3_000, 500 / 2.8)


def test_sharing_has_no_wait():
    params = QUEUEING.validate({"discipline": "ps", "utilisation": 0.5, "requests": 500, "warmup": 50})
    row = QUEUEING.row(params, None, 0, 0)
    assert [row[name] for name in ("wait_mean", "wait_p99", "no_wait")] == [None, None, None]
    assert row["response_mean"] > 1.0


def test_a_sweep_makes_the_runs_that_simulate_makes(tmp_path):
    """Their intervals differ: those of sweeps are adjusted for skewness."""
    base = {"servers": 4, "utilisation": 0.7, "requests": 2_000, "warmup": 500}
    grid = {"dispatcher": ["random", "jsq"]}
    sweep = parse(
        {"sweep": {"name": "q", "experiment": "queueing", "seed": 3, "seeds": 5}, "base": base, "grid": grid}
    )
    run(sweep, tmp_path, jobs=1)
    results = read(tmp_path)
    (table,) = summarise(results)
    for cell in table.cells:
        dispatcher = pl.col("params").str.json_path_match("$.dispatcher")
        values = results.rows.filter(dispatcher == cell.axes["dispatcher"])["response_mean"].to_numpy()
        alone = simulate(
            4,
            cell.axes["dispatcher"],
            utilisation=0.7,
            requests=2_000,
            warmup=500,
            replications=5,
            seed=3,
        )
        found = cell.metrics["response_mean"]
        assert found is not None
        assert found.value == pytest.approx(alone.response.mean.value, rel=1e-14)
        assert mean_interval(values).high == pytest.approx(alone.response.mean.high, rel=1e-12)
        assert found.high == skewness_adjusted(values).high


def swept(folder: Path, base: dict, grid: dict, **sweep):
    """The only table of a small sweep."""
    table = {"name": "q", "experiment": "queueing", "seed": 3, "seeds": 3, **sweep}
    plan = parse({"sweep": table, "base": base, "grid": grid})
    assert run(plan, folder, jobs=2).failed == {}
    results = read(folder)
    (found,) = summarise(results, metrics=["response_mean", "response_p99"])
    return results, found


def test_one_truncation_for_all_policies_of_a_point(tmp_path):
    """That of the slowest to settle, by pilots; other loads have another."""
    base = {"servers": 4, "requests": 20_000}
    grid = {"utilisation": [0.5, 0.9], "dispatcher": ["random", "jsq", "lwl"]}
    results, _ = swept(tmp_path, base, grid)
    cells = results.sweep.cells()
    for load_ in (0.5, 0.9):
        specs = [make_spec(4, name, utilisation=load_) for name in grid["dispatcher"]]
        wanted = settle(specs, 3, 20_000).warmup
        assert wanted == max(wanted, *(settle(spec, 3, 20_000).warmup for spec in specs))
        assert {cell["warmup"] for cell in cells if cell["utilisation"] == load_} == {wanted}
    assert len({cell["warmup"] for cell in cells}) == 2


def test_a_sweep_goes_on_where_it_was(tmp_path):
    """Pilots find the same again, so that finished points are known."""
    base, grid = {"requests": 2_000, "utilisation": 0.5}, {"dispatcher": ["random", "jsq"]}
    plan = parse({"sweep": {"name": "q", "experiment": "queueing", "seeds": 2}, "base": base, "grid": grid})
    assert run(plan, tmp_path, jobs=2).simulated == 4
    assert run(plan, tmp_path, jobs=1).simulated == 0


def test_an_overloaded_point_is_unstable_and_has_no_tail(tmp_path):
    base = {"servers": 2, "requests": 5_000}
    _, table = swept(tmp_path, base, {"utilisation": [0.8, 1.2], "dispatcher": ["random", "jsq"]})
    for cell in table.cells:
        overloaded = cell.axes["utilisation"] > 1.0
        assert cell.stable is not overloaded
        assert (cell.metrics["response_p99"] is None) is overloaded
        assert cell.metrics["response_mean"] is not None


def test_a_dispatcher_that_starves_fast_servers_is_unstable(tmp_path):
    """Random sends half of the work to the slow server; a blind dispatcher is known to, jsq_d is seen to."""
    base = {"servers": 10, "speeds": "9*0.1, 9.1", "utilisation": 0.9, "requests": 20_000}
    _, table = swept(tmp_path, base, {"dispatcher": ["weighted_random", "random", "jsq_d"]})
    assert [cell.stable for cell in table.cells] == [True, False, False]


def test_speeds_and_cutoffs_as_text_or_numbers(tmp_path):
    one = QUEUEING.validate({"servers": 3, "speeds": [2, 2, 1.0], "dispatcher": "sita", "cutoffs": [0.5, 2]})
    two = QUEUEING.validate({"servers": 3, "speeds": "2*2, 1", "dispatcher": "sita", "cutoffs": "0.5, 2.0"})
    assert one == two == QUEUEING.validate(one)
    assert (one["speeds"], one["cutoffs"]) == ("2*2.0, 1.0", "0.5, 2.0")
    assert "cutoffs" not in QUEUEING.validate({"servers": 3, "cutoffs": [0.5, 2.0], "dispatcher": "jsq"})
    base = {"servers": 3, "utilisation": 0.5, "requests": 500, "warmup": 50, "dispatcher": "sita"}
    _, table = swept(tmp_path, base, {"cutoffs": ["0.5, 1.5", "1.0, 2.0"]})
    assert [cell.axes["cutoffs"] for cell in table.cells] == ["0.5, 1.5", "1.0, 2.0"]


def test_arrivals_of_a_trace(tmp_path):
    rows = [
        {"timestamp": 50 * n + 40 * (n % 2), "input_length": 9, "output_length": 2, "hash_ids": [n]}
        for n in range(400)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(map(json.dumps, rows)))
    base = {"servers": 2, "trace": str(trace), "size": "exponential(mean=0.05)"}
    results, table = swept(tmp_path / "results", base, {"dispatcher": ["random", "lwl"]})
    cells = results.sweep.cells()
    assert all(cell["requests"] + cell["warmup"] == 400 for cell in cells)
    assert len({cell["warmup"] for cell in cells}) == 1
    spec = make_spec(2, "lwl", arrivals=load_trace(trace).arrival_s, size="exponential(mean=0.05)")
    rows_of = [
        run_once(spec, 3, r, warmup=cells[0]["warmup"], requests=cells[0]["requests"]) for r in range(3)
    ]
    found = table.cells[1].metrics["response_mean"]
    assert found is not None
    assert found.value == pytest.approx(np.mean([row.values["response_mean"] for row in rows_of]), rel=1e-12)
    for wrong in ({"requests": 500}, {"requests": 300, "warmup": 200}):
        with pytest.raises(InputError, match="the trace has 400 arrivals"):
            QUEUEING.validate({**base, "warmup": 10, **wrong})


def test_every_parameter_of_a_question_can_be_swept():
    """What `fastsim.queueing.simulate` takes, a sweep takes, by name or by its own word for it."""
    own = {"quantiles", "level", "workers", "keep_samples", "queue_lengths", "allow_unstable"}  # see METRICS
    of_sweeps = {"seed", "replications", "rel_half_width", "max_replications"}  # [sweep] and [stop]
    asked = set(inspect.signature(simulate).parameters) - own - of_sweeps
    assert asked <= set(QUEUEING.parameters())
    assert set(QUEUEING.parameters()) - asked == {"trace", "time_unit"}


def test_a_row_of_balls_is_a_batch_of_throws():
    balls = experiment("balls")
    params = balls.validate({"bins": 200, "choices": 1, "trials": 400})
    assert params["balls"] == 200
    rows = [balls.row(params, None, 1, replicate) for replicate in (0, 1, 0)]
    assert rows[0] == rows[2] != rows[1]
    # 400 trials with a standard deviation of 0.8: five standard errors, 1 in 1.7 million
    assert rows[0]["fullest_mean"] == pytest.approx(one_choice_max(200, 200).mean, abs=5 * 0.8 / 20)
    assert (rows[0]["samples"], balls.validate(params)) == (400, params)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"bin": 4}, r"balls: it has no parameter 'bin'; did you mean 'bins'"),
        ({"beta": 1.5}, "balls: beta = 1.5 is not allowed; it must be a number from 0 to 1"),
        ({"bins": 4, "choices": 5, "rule": "left"}, "4 bins allow at most 4 different ones"),
    ],
)
def test_bad_balls_are_refused(raw, sentence):
    with pytest.raises(InputError, match=sentence):
        experiment("balls").validate(raw)


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("lecture-01-*.toml")), ids=lambda path: path.stem)
def test_the_lectures_sweeps_run_and_draw(path, tmp_path):
    settings = ["requests=200", "warmup=20"] if load(path).experiment == "queueing" else ["trials=5"]
    sweep = load(path, [*settings, "sweep.seeds=2"])
    report = run(sweep, tmp_path, jobs=1)
    assert (report.failed, report.simulated) == ({}, 2 * len(sweep.cells()))
    drawn = figures.write(read(tmp_path), tmp_path)
    assert len(drawn) == len(sweep.figures) >= 1


def test_a_trace_whose_unit_is_not_clear_needs_one(tmp_path):
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": 0.25 * i, "input_length": 1, "output_length": 1} for i in range(400)]
    trace.write_text("\n".join(map(json.dumps, rows)))
    base = {"servers": 2, "trace": str(trace), "size": "exponential(mean=0.05)", "warmup": 10}
    with pytest.raises(InputError, match="state time_unit, 's' or 'ms'"):
        QUEUEING.validate(base)
    assert QUEUEING.validate({**base, "time_unit": "s"})["time_unit"] == "s"
    with pytest.raises(InputError, match="time_unit is 's', but there is no trace"):
        QUEUEING.validate({"time_unit": "s"})
