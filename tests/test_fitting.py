"""Requests that can never fit a replica: named, or left out and counted; a sweep goes on without them."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from fastsim import Cluster, simulate
from fastsim.cluster.fitting import fits, only_fitting
from fastsim.errors import InputError
from fastsim.sweep import parse, read, run, summarise
from fastsim.sweep.explain import explain
from fastsim.sweep.replay import replay
from fastsim.workloads import load

LONG = 7  # the request that is too long


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    rows = [
        {"timestamp": 100 * i, "input_length": 9_000 if i == LONG else 200, "output_length": 5}
        for i in range(40)
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    return path


@pytest.mark.parametrize(("engine", "kv_tok", "fit"), [("vllm", 9_008, True), ("lecture", 9_004, False)])
def test_what_fits_is_what_the_engine_can_hold(trace, engine, kv_tok, fit):
    workload = load(trace, cache=False)
    cluster = Cluster(1, engine=engine, kv_tok=kv_tok)
    assert fits(workload, cluster).all() == fit
    if fit:
        assert simulate(workload, cluster).columns["done_s"].max() > 0
        cluster = Cluster(1, engine=engine, kv_tok=kv_tok - cluster.block)
    with pytest.raises(InputError, match=f"request {LONG} .9000 prompt .* can never fit .*skip_bad"):
        simulate(workload, cluster)


def test_only_those_that_fit_are_kept_and_the_others_counted(trace):
    workload = only_fitting(load(trace, cache=False), Cluster(1, kv_tok=4096))
    assert len(workload) == 39
    (dropped,) = workload.summary.dropped
    assert dropped.reason == "prompt and output that can never fit kv_tok = 4096 of a replica"
    assert (dropped.rows, dropped.first) == (1, f"request {LONG}: 9,000 + 5 tokens")
    assert only_fitting(workload, Cluster(1, kv_tok=4096)) is workload
    with pytest.raises(InputError, match="40 such requests"):
        only_fitting(load(trace, cache=False), Cluster(1, kv_tok=16))


def document(trace, **workload) -> dict:
    return {
        "sweep": {"name": "fits", "seeds": 6},
        "base": {"workload": {"trace": str(trace), **workload}, "cluster": {"replicas": 2}},
        "grid": {"router": ["round_robin"], "cluster.kv_tok": [4096, 40960]},
    }


def test_in_a_sweep_a_request_fails_its_point_alone(trace, tmp_path):
    """Thinning keeps the long request in some seeds only."""
    sweep = parse(document(trace, rate_mode="thin", rate_scale=0.5))
    report = run(sweep, tmp_path / "out", jobs=1)
    assert 0 < len(report.failed) < 6
    assert all("kv_tok=4096" in point and "can never fit" in why for point, why in report.failed.items())
    assert report.simulated == 12 - len(report.failed)


def test_in_a_sweep_that_skips_bad_rows_it_is_left_out_and_counted(trace, tmp_path):
    report = run(parse(document(trace, skip_bad=True)), tmp_path / "out", jobs=1)
    assert (report.simulated, report.failed) == (12, {})
    results = read(tmp_path / "out")
    small = results.rows["params"].str.contains('"kv_tok":4096,')
    assert results.rows.filter(small)["left_out"].to_list() == [1] * 6
    assert results.rows.filter(~small)["left_out"].to_list() == [0] * 6
    assert results.rows.filter(small)["samples"].to_list() == [39] * 6
    (table,) = summarise(results)
    assert len(table.cells) == 2


def test_a_replay_and_an_explanation_leave_it_out_aloud(trace):
    base = {
        "workload": {"trace": str(trace), "skip_bad": True},
        "cluster": {"replicas": 2, "kv_tok": 4096},
    }
    said: list[str] = []
    found = replay(base, ["round_robin"], note=said.append)
    assert found.workload["requests"] == 39
    assert "1 x prompt and output that can never fit kv_tok = 4096" in said[0]
    assert explain({**base, "router": "round_robin"}, 38).request["request"] == 38


def test_sessions_that_wait_are_explained_at_the_times_they_came(tmp_path):
    path = tmp_path / "sessions.jsonl"
    rows = []
    for s in range(6):
        rows.append({"session_id": s, "timestamp": 50 * s, "input_length": 500, "output_length": 30})
        rows += [{"session_id": s, "delay": 10, "input_length": 60, "output_length": 30}] * 3
    path.write_text("\n".join(map(json.dumps, rows)))
    base = {"workload": {"trace": str(path), "turns": "added"}, "cluster": {"replicas": 2}}
    found = explain({**base, "router": "least_loaded"}, 23, sample=24)
    workload = load(path, turns="added", cache=False)
    result = simulate(workload, Cluster(2), "least_loaded")
    assert found.request["arrival_s"] == result.columns["arrival_s"][23]
    assert found.request["latency_s"] == pytest.approx(
        result.columns["done_s"][23] - result.columns["arrival_s"][23], rel=1e-9
    )
    # Where it was sent, hindsight finds the very latency it had.
    chosen = found.table.filter(found.table["chosen"])
    late = result.columns["done_s"] - result.columns["arrival_s"]
    np.testing.assert_allclose(chosen.sort("request")["latency_s"].to_numpy(), late, rtol=0, atol=1e-11)


def test_the_command_line_reads_what_is_stated(tmp_path):
    path = tmp_path / "lengths.csv"
    path.write_text("num_prefill_tokens\n" + "100\n" * 30)
    settings = ["workload.arrivals=poisson(2)", "workload.output_tok=lognormal(20, 1)"]
    command = ["replay", str(path), "--router", "round_robin", "--json", "--format", "vidur"]
    command += [part for setting in settings for part in ("--set", setting)]
    code = "from fastsim.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workload"]["requests"] == 30
    assert "30 requests start as stated: poisson(2)" in done.stderr
