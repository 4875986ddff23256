"""The commands of classic load balancing: what they print, and how they refuse."""

import json

import pytest

from fastsim import cli
from fastsim.lecture import code_01, verdicts
from fastsim.lecture.verdicts import Row
from fastsim.stats import Interval

# `main` reads the command line itself, as the console script does; cyclopts takes that for a slip in tests.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")

QUICK = ["--requests", "2000", "--warmup", "500", "--replications", "4", "--jobs", "1"]


def fastsim(capsys, monkeypatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["fastsim", *arguments])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    out, err = capsys.readouterr()
    return int(exit.value.code or 0), out, err


@pytest.fixture
def run(capsys, monkeypatch):
    return lambda *arguments: fastsim(capsys, monkeypatch, *arguments)


def test_queue_puts_theory_beside_the_intervals(run):
    code, out, err = run("queue", "--utilisation", "0.5", *QUICK)
    assert (code, err) == (0, "")
    lines = {line[:23].strip(): line.split() for line in out.splitlines()}
    assert lines["mean response"][-1] == "2"
    assert lines["P99 response"][-1] == "9.21"
    assert "M/M/1 (exact)" in out
    assert "4 runs of 2,000 requests after 500 left out" in out


def test_queue_as_json_is_what_simulate_gives(run):
    from fastsim.queueing import simulate

    asked = ["--servers", "8", "--dispatcher", "jsq_d", "--d", "3", "--utilisation", "0.8"]
    asked += ["--update", "periodic", "--period", "2", "--without-replacement", "--seed", "5"]
    code, out, _ = run("queue", *asked, *QUICK, "--json")
    same = simulate(
        8,
        "jsq_d",
        d=3,
        utilisation=0.8,
        update="periodic",
        period=2.0,
        replacement=False,
        requests=2000,
        warmup=500,
        replications=4,
        seed=5,
    )
    assert code == 0
    assert json.loads(out) == json.loads(json.dumps(same.to_dict()))


def test_queue_adds_replications_until_the_width_asked_for(run):
    few = ["--requests", "2000", "--warmup", "500", "--jobs", "1", "--quantile", "0.5", "--json"]
    code, out, _ = run("queue", "--utilisation", "0.5", "--rel-half-width", "0.05", *few)
    found = json.loads(out)
    mean = found["response"]["mean"]
    assert (code, found["reached"]) == (0, True)
    assert found["replications"] >= 10
    assert mean["high"] - mean["low"] <= 2 * 0.05 * mean["value"]


def test_queue_takes_speeds_cutoffs_and_a_trace(run, tmp_path):
    two = ["--servers", "2", "--speed", "1", "--speed", "3", "--utilisation", "0.5"]
    code, out, _ = run("queue", *two, "--dispatcher", "sed", *QUICK)
    assert code == 0
    assert "2 FCFS servers, sed" in out
    code, _, err = run("queue", *two, "--dispatcher", "sita", "--cutoff", "1", "--cutoff", "2", *QUICK)
    assert (code, err) == (2, "fastsim: cutoffs must be 1 ascending sizes for 2 servers\n")
    rows = [
        {"timestamp": 100 * n, "input_length": 10, "output_length": 2, "hash_ids": [n]} for n in range(300)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(map(json.dumps, rows)))
    asked = ["--trace", str(trace), "--utilisation", "0.5", "--warmup", "50", "--replications", "3"]
    code, out, _ = run("queue", *asked, "--json")
    found = json.loads(out)
    assert (code, found["arrivals"], found["requests"]) == (0, "timestamps", 250)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("queue --servers 4", "neither utilisation nor rate is given"),
        ("queue --utilisation 1.2", "the utilisation is 1.2; a steady state needs one in (0, 1)"),
        ("queue --dispatcher jsk --utilisation 0.5", "did you mean 'jsq'?"),
        ("queue --servers 4 --dispatcher jsq_d --d 9 --utilisation 0.5", "4 servers allow 1 to 4"),
        ("queue --utilisation 0.5 --size lognorm", "did you mean 'lognormal'?"),
        ("queue --utilisation 0.5 --jobs 0", "jobs is 0; it must be at least 1"),
        ("queue --utilisation 0.5 --servers 2.5", "'2.5' is not a whole number"),
        ("balls --bins 0", "bins = 0 is not allowed; it must be a whole number from 1"),
        ("balls --bins 10 --rule rigt", 'Invalid value "rigt" for --rule. Choose from: "random", "left"'),
        ("lecture 99", "lecture has no code '99'; choose one of: 01"),
    ],
)
def test_a_wrong_question_is_one_sentence_and_status_2(run, arguments, sentence):
    code, out, err = run(*arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith("fastsim: ")
    assert err.count("\n") == 1
    assert sentence in err


def test_balls_puts_the_exact_law_beside_the_trials(run):
    code, out, err = run("balls", "--bins", "1000", "--choices", "1", "--trials", "200", "--jobs", "1")
    assert (code, err) == (0, "")
    mean = next(line.split() for line in out.splitlines() if line.startswith("mean"))
    assert mean[-1] == "5.514"
    assert "P(fullest = 5)" in out
    assert "theory: exact" in out
    code, out, _ = run("balls", "--bins", "1000", "--trials", "200", "--jobs", "1", "--json")
    found = json.loads(out)
    assert (code, found["choices"], found["trials"]) == (0, 2, 200)
    assert found["low"] <= found["theory"] <= found["high"]
    code, out, _ = run("balls", "--bins", "50", "--weights", "exponential", "--trials", "20", "--jobs", "1")
    assert code == 0
    assert "P(fullest" not in out


def test_lecture_prints_every_figure_with_a_verdict_and_why(run, monkeypatch):
    for name, few in (
        ("THROWS", 50),
        ("LONG", 4_000),
        ("WARMUP", 1_000),
        ("LONG_RUNS", 3),
        ("HEAVY_LONG", 4_000),
        ("HEAVY_RUNS", 3),
        ("SHORT", 500),
        ("SHORT_RUNS", 16),
    ):
        monkeypatch.setattr(code_01, name, few)
    code, out, _ = run("lecture", "01", "--json", "--jobs", "1")
    rows = json.loads(out)
    assert code == 0
    assert {row["id"] for row in rows} == {f"C{n}" for n in range(1, 9)}
    keys = ["id", "quantity", "unit", "lecture", "ours", "low", "high", "seeds", "verdict", "note"]
    assert all(list(row) == keys for row in rows)
    for row in rows:
        assert row["low"] <= row["ours"] <= row["high"]
        assert row["verdict"] in ("agrees", "disagrees", "undecided", "-")
        assert (row["verdict"] == "-") == (row["lecture"] is None)
        assert row["seeds"] == 0 or f"{row['seeds']:,} " in row["note"]
    code, table, _ = run("lecture", "01", "--jobs", "1")
    assert code == 0
    assert all(f"{row['id']} {row['quantity']}: {row['note']}" in table for row in rows)


def judged(figure: float, short: list[float]) -> Row:
    found = Interval(10.0, 9.8, 10.2, 20, 0.95)
    return verdicts.figure(
        "C4", "mean", "", figure, 1, found, (verdicts.np.array(short), "short runs"), "note"
    )


@pytest.mark.parametrize(
    ("figure", "verdict", "why"),
    [
        (10.25, "agrees", "in the interval"),  # 10.25 may be 10.2 rounded to one decimal
        (10.3, "agrees", "in the spread of short runs, 8.00 to 12.00"),
        (12.1, "disagrees", "outside the spread of short runs, 8.00 to 12.00, +21% of ours"),
    ],
)
def test_a_figure_is_judged_by_the_interval_then_by_the_spread_of_short_runs(figure, verdict, why):
    row = judged(figure, [8.0, 9.0, 10.0, 11.0, 12.0])
    assert (row.verdict, row.note) == (verdict, f"{why}; note")


@pytest.mark.parametrize(
    ("low", "high", "verdict"), [(1.1, 1.3, "agrees"), (0.9, 1.1, "undecided"), (0.7, 0.9, "disagrees")]
)
def test_words_are_judged_by_the_whole_interval(low, high, verdict):
    found = Interval((low + high) / 2, low, high, 20, 0.95)
    assert verdicts.claim("C8", "ratio", "above 1", found, (1.0, float("inf")), "").verdict == verdict
