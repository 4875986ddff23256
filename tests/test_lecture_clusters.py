"""Code 02, 03 and the exercises: rows with verdicts, and the runs behind them. Few short runs here."""

import json

import numpy as np
import pytest

from fastsim import cli
from fastsim.cluster.config import Cluster
from fastsim.cluster.routers import ROUTERS
from fastsim.cluster.simulate import simulate
from fastsim.errors import InputError
from fastsim.lecture import cluster_runs, code_01, code_02, code_03, code_04, exercises, one_request
from fastsim.lecture.cluster_runs import Bench, Policy, Traffic
from fastsim.lecture.verdicts import CANNOT_TELL, COUNTED, NOT_SAID, PICKED, REPEATS, VARIANT, Row
from fastsim.report import lecture
from fastsim.stats import mean_interval, paired_ratio

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")

KEYS = ["id", "quantity", "unit", "lecture", "ours", "low", "high", "seeds", "verdict", "note"]
TURNS, HALF = Policy("turns", "round_robin"), Policy("half", "affinity_threshold")
SHORT = Traffic("documents", "long_documents", {"rate_rps": 1.0}, 60.0)


@pytest.fixture
def few(monkeypatch):
    """Runs of twenty seconds, three of each, whatever their means."""
    usual = cluster_runs.requests
    monkeypatch.setattr(cluster_runs, "START", 3)
    monkeypatch.setattr(cluster_runs, "MOST", 3)

    def briefly(traffic: Traffic, replicate: int):
        return usual(Traffic(traffic.name, traffic.workload, traffic.params, 20.0), replicate)

    measure = cluster_runs.measure

    def without_capacity(result, *, with_capacity: bool):
        return {**measure(result), "capacity_rps": 1e3 if with_capacity else np.nan}

    monkeypatch.setattr(cluster_runs, "requests", briefly)
    monkeypatch.setattr(cluster_runs, "measure", without_capacity)


def check(rows: list[Row], ids: set[str]) -> None:
    assert {row.id for row in rows} == ids
    for row in rows:
        assert list(row.to_dict()) == KEYS
        assert row.low <= row.ours <= row.high
        assert row.verdict in (*COUNTED, CANNOT_TELL, VARIANT, REPEATS, PICKED, NOT_SAID)
        assert (row.verdict == "-") == (row.lecture is None)
        assert row.note
        assert row.seeds == 0 or row.id in ("E6", "E7") or f"{row.seeds:,} " in row.note  # test_lecture_04
    assert len({(row.id, row.quantity) for row in rows}) == len(rows)


def test_code_02_has_every_figure_with_a_verdict_and_why(few):
    check(code_02.code_02(), {f"A{n}" for n in range(1, 8)} | {f"S{n}" for n in range(1, 6)})


def test_code_03_has_every_figure_with_a_verdict_and_why(few):
    check(code_03.code_03(), {f"P{n}" for n in range(1, 11)})
    assert "e2_terms" not in ROUTERS


def test_the_exercises_have_every_number_with_a_verdict_and_why(few, monkeypatch):
    for name, value in (("THROWS", 50), ("LONG", 4_000), ("WARMUP", 1_000), ("LONG_RUNS", 3)):
        monkeypatch.setattr(code_01, name, value)
    for name, value in (("SHORT", 500), ("SHORT_RUNS", 16)):
        monkeypatch.setattr(code_01, name, value)
    monkeypatch.setattr(code_04, "DEMOS", 4)
    check(exercises.exercises(), {f"E{n}" for n in range(1, 10)})


def test_the_step_time_and_one_request_at_a_time_are_the_lectures():
    # What needs no sample agrees whatever the machine.
    rows = [*code_02.step_times(), *one_request.routed("P9"), *one_request.quotas_row("P10")]
    assert {row.verdict for row in rows} == {"agrees", "-"}
    ours = {row.quantity: row.ours for row in rows}
    assert ours["elsewhere / there"] == pytest.approx(15.9, abs=0.05)
    assert ours["elsewhere / there, in the engine"] == pytest.approx(9.1, abs=0.05)


def test_policies_share_their_requests_and_workers_do_not_matter(monkeypatch):
    monkeypatch.setattr(cluster_runs, "START", 4)
    monkeypatch.setattr(cluster_runs, "MOST", 4)
    alone = Bench()(SHORT, [HALF])
    both = Bench(workers=2)(SHORT, [TURNS, HALF])
    for metric in cluster_runs.METRICS:
        np.testing.assert_array_equal(alone["half"][metric], both["half"][metric])
    assert not np.array_equal(both["turns"]["hit"], both["half"]["hit"])
    row = cluster_runs.ratio("A2", both["turns"], both["half"], 1.0)
    found = paired_ratio(both["turns"]["mean"], both["half"]["mean"])
    assert (row.ours, row.low, row.high) == (found.value, found.low, found.high)


def test_seeds_are_added_until_every_mean_is_known(monkeypatch):
    monkeypatch.setattr(cluster_runs, "START", 5)
    found = Bench(rel_half_width=0.2)(SHORT, [TURNS, HALF])
    widths = [mean_interval(sample["mean"]).relative_half_width for sample in found.values()]
    assert max(widths) <= 0.2
    seeds = {len(sample["mean"]) for sample in found.values()}
    assert len(seeds) == 1
    assert seeds.pop() > 5
    for width in (0.0, 1.0, -0.1):
        with pytest.raises(InputError, match="rel_half_width is"):
            Bench(rel_half_width=width)(SHORT, [TURNS])


def test_a_low_hit_is_less_than_half_of_the_prompt():
    result = simulate(cluster_runs.requests(SHORT, 0), Cluster(engine="lecture"), "affinity_threshold")
    columns = result.columns
    low = columns["hit_tok"] < 0.5 * columns["prompt_tok"]
    slowest = np.sort((columns["done_s"] - columns["arrival_s"])[low])
    found = cluster_runs.measure(result)
    assert found["low_p99"] == slowest[int(np.ceil(0.99 * low.sum())) - 1]
    assert found["busiest"] == np.bincount(columns["replica"]).max() / len(low)
    assert found["mean"] == pytest.approx((columns["done_s"] - columns["arrival_s"]).mean(), rel=1e-12)


def run(capsys, monkeypatch, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["fastsim", "lecture", *arguments])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    out, err = capsys.readouterr()
    return int(exit.value.code or 0), out, err


ROWS = [
    Row("A1", "hit | rate", "", 0.33, 0.32, 0.31, 0.33, 40, "agrees", "40 runs"),
    Row("A1", "mean", "s", None, 1.0, 0.9, 1.1, 40, "-", "40 runs"),
    Row("A2", "ratio", "", "above 1", 0.9, 0.8, 0.95, 40, "disagrees", "40 runs"),
]


@pytest.fixture
def fake(monkeypatch):
    """Codes that need no time: 02 takes a half-width, 01 and 03 do not; 03 repeats a row of 02."""
    asked = []

    def code_02(workers, rel_half_width=0.05):
        asked.append(rel_half_width)
        return ROWS

    calls = {"01": lambda workers: [], "02": code_02, "03": lambda workers: ROWS[:1]}
    monkeypatch.setattr(lecture, "CODES", dict.fromkeys(calls, ""))
    monkeypatch.setattr(lecture, "_function", calls.get)
    return asked


def test_lecture_prints_codes_as_json_or_as_a_page(fake, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "02", "03", "--json", "--rel-half-width", "0.01")
    assert (code, fake) == (0, [0.01])
    assert json.loads(out) == [row.to_dict() for row in ROWS]
    code, out, _ = run(capsys, monkeypatch, "--markdown")
    assert (code, fake) == (0, [0.01, 0.05])
    assert "1 agrees, 1 disagrees, 0 undecided, 0 cannot tell" in out
    assert "| A1 | hit / rate | 0.33 | 0.32 | 0.31 | 0.33 | 40 | agrees | 40 runs |" in out
    assert "| A1 | mean (s) | - | 1 | 0.9 | 1.1 | 40 | - | 40 runs |" in out


def test_a_half_width_for_codes_that_take_none_is_refused(fake, capsys, monkeypatch):
    code, out, err = run(capsys, monkeypatch, "01", "--rel-half-width", "0.01")
    assert (code, out) == (2, "")
    assert err == "fastsim: rel_half_width is 0.01; code 01 has a fixed number of seeds\n"
