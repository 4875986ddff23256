"""Classic load balancing as a sweep: parameters, common random numbers, and the lecture's sweeps."""

from pathlib import Path

import pytest

from fastsim.errors import InputError
from fastsim.queueing import make_spec, run_once, simulate
from fastsim.queueing.balls_theory import one_choice_max
from fastsim.queueing.warmup import default_requests, least_warmup
from fastsim.report import figures
from fastsim.sweep import load, read, run, summarise
from fastsim.sweep.experiments import experiment
from fastsim.sweep.spec import parse

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
    assert full["warmup"] == least_warmup(spec)
    assert QUEUEING.validate(full) == full


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ({"servrs": 4}, r"\[base\] has no 'servrs'; did you mean 'servers'"),
        ({"dispatcher": "jsk"}, "there is no dispatcher 'jsk'; did you mean 'jsq'"),
        ({"utilisation": 1.0}, "the utilisation is 1; a steady state needs one in"),
        ({"dispatcher": "jsq_d", "servers": 2, "d": 3}, "d is 3; 2 servers allow 1 to 2"),
        ({"requests": 0}, "queueing: Expected `int` >= 1"),
        ({"period": -1.0, "update": "periodic"}, "period is -1.0; it must be finite and at least 0"),
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


def test_a_sweep_gives_the_intervals_that_simulate_gives(tmp_path):
    base = {"servers": 4, "utilisation": 0.7, "requests": 2_000, "warmup": 500}
    grid = {"dispatcher": ["random", "jsq"]}
    sweep = parse(
        {"sweep": {"name": "q", "experiment": "queueing", "seed": 3, "seeds": 5}, "base": base, "grid": grid}
    )
    run(sweep, tmp_path, jobs=1)
    (table,) = summarise(read(tmp_path))
    for cell in table.cells:
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
        assert found.high == pytest.approx(alone.response.mean.high, rel=1e-12)


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
        ({"bin": 4}, r"\[base\] has no 'bin'; did you mean 'bins'"),
        ({"beta": 1.5}, "balls: Expected `float` <= 1"),
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
