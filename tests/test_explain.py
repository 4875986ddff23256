"""Why a request went where it went: the record of a run, hindsight, and the command."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from fastsim import Cluster, simulate
from fastsim.cli import main
from fastsim.cluster.hindsight import hindsight
from fastsim.cluster.outages import Restart
from fastsim.cluster.routers import ROUTERS
from fastsim.errors import InputError
from fastsim.workloads import make

# `main` reads the command line itself, as the console script does; cyclopts takes that for a slip in tests.
pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")
small = pytest.mark.small
WORKLOAD = make("long_documents", requests=60, documents=8, document_tok=300.0, question_tok=40, rate_rps=8.0)
CLUSTER = Cluster(3, kv_tok=4096, max_batch_tok=512, max_seqs=16)


@small
@pytest.mark.parametrize("router", ["round_robin", "cache_aware_guard", "dynamo_kv", "epp"])
@pytest.mark.parametrize("view", ["native", "periodic(0.5)"])
def test_a_recorded_run_is_the_run(router, view):
    plain = simulate(WORKLOAD, CLUSTER, router, view=view, routers=2)
    recorded = simulate(WORKLOAD, CLUSTER, router, view=view, routers=2, record=True)
    for name, values in plain.columns.items():
        np.testing.assert_array_equal(values, recorded.columns[name])
    routes = recorded.routes
    assert routes.height == 3 * len(WORKLOAD)
    chosen = routes.filter("chosen").select("request", "replica")
    assert chosen["request"].to_list() == list(range(len(WORKLOAD)))
    assert chosen["replica"].to_list() == plain.columns["replica"].tolist()


@small
def test_the_record_holds_what_the_policy_went_by():
    routes = simulate(WORKLOAD, CLUSTER, "prefix_affinity", record=True).routes
    for _, rows in routes.group_by("request"):
        best = rows.sort(["match_tok", "in_flight", "replica"], descending=[True, False, False])[0]
        assert best["chosen"].item()
    assert routes["score"].null_count() == routes.height
    scored = simulate(WORKLOAD, CLUSTER, "epp", record=True).routes
    best = scored.group_by("request").agg(pl.col("score").max())
    chosen = scored.filter("chosen").join(best, on="request", suffix="_best")
    assert (chosen["score"] == chosen["score_best"]).all()


@pytest.mark.parametrize("router", ROUTERS)
def test_scores_that_a_policy_keeps_are_in_every_record(router):
    """Requests at once, between which nothing is heard: whoever scores one scores all that follow."""
    at_once = make("long_documents", requests=9, documents=9, document_tok=300.0, rate_rps=1e6)
    routes = simulate(at_once, CLUSTER, router, record=True).routes
    scored = routes.group_by("request", maintain_order=True).agg(pl.col("score").is_not_null().any())["score"]
    assert scored.to_list() == sorted(scored)  # some score only where there is a match


@small
def test_a_run_that_was_not_recorded_says_so():
    with pytest.raises(InputError, match="routes: the run was not recorded; simulate with record=True"):
        _ = simulate(WORKLOAD, CLUSTER).routes


@small
@pytest.mark.parametrize("router", ["round_robin", "least_loaded", "prefix_affinity"])
def test_hindsight_of_the_replica_chosen_is_what_happened(router):
    result = simulate(WORKLOAD, CLUSTER, router)
    where = result.columns["replica"]
    asked = list(range(0, len(WORKLOAD), 7))
    latency_s = hindsight(WORKLOAD, CLUSTER, where, asked)
    happened = (result.columns["done_s"] - result.columns["arrival_s"])[asked]
    np.testing.assert_array_equal(latency_s[np.arange(len(asked)), where[asked]], happened)


@small
def test_hindsight_of_another_replica_is_a_run_with_that_one_request_moved():
    where = simulate(WORKLOAD, CLUSTER, "prefix_affinity").columns["replica"]
    for i in (3, 30):
        for r in range(3):
            moved = where.copy()
            moved[i] = r
            again = hindsight(WORKLOAD, CLUSTER, moved, [i])[0, r]
            assert hindsight(WORKLOAD, CLUSTER, where, [i])[0, r] == again


@small
def test_hindsight_refuses_what_it_leaves_out():
    restarting = Cluster(3, restarts=[Restart(0, 1.0)])
    with pytest.raises(InputError, match="hindsight: replicas that restart or join late are not allowed"):
        hindsight(WORKLOAD, restarting, np.zeros(60), [0])
    with pytest.raises(InputError, match="request = 60 is not allowed; it must be from 0 to 59"):
        hindsight(WORKLOAD, CLUSTER, np.zeros(60), [60])


def run(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["fastsim", "explain", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


SETTINGS = ("--set", "workload.requests=50", "--set", "cluster.replicas=2")


def test_the_command_explains_and_writes_the_record(capsys, monkeypatch, tmp_path):
    path = tmp_path / "routes.parquet"
    words = ("20", "--router", "dynamo_kv", "--sample", "5", "--out", str(path), *SETTINGS)
    code, out, _ = run(capsys, monkeypatch, *words)
    assert code == 0
    assert "router dynamo_kv [ai-dynamo/dynamo, mid-2026]" in out
    assert "chosen" in out
    assert "best in hindsight" in out
    table = pl.read_parquet(path)
    assert table.height == 2 * 50
    asked = table.filter(pl.col("latency_s").is_not_null())["request"].unique()
    assert 20 in asked
    assert len(asked) in (5, 6)  # the request may be one of those drawn


def test_the_command_prints_json(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "20", "--json", *SETTINGS)
    found = json.loads(out)
    assert code == 0
    assert set(found) == {"request", "router", "replicas", "sample"}
    assert [row["replica"] for row in found["replicas"]] == [0, 1]
    assert found["request"]["regret_s"] == pytest.approx(
        found["replicas"][found["request"]["replica"]]["latency_s"]
        - min(row["latency_s"] for row in found["replicas"]),
        abs=0.0,
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("50",), "request = 50 is not allowed; it must be from 0 to 49"),
        (("0", "--sample", "51"), "sample = 51 is not allowed; it must be from 0 to 50"),
        (("0", "--router", "dynamo"), "router = 'dynamo' is not known; did you mean 'dynamo_kv'?"),
        (("0", "--set", 'view=["live", "own"]'), "explain looks at one run"),
    ],
)
def test_the_command_refuses_in_a_sentence(capsys, monkeypatch, words, sentence):
    code, _, err = run(capsys, monkeypatch, *words, *SETTINGS)
    assert code == 2
    assert sentence in err
