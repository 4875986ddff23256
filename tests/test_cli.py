"""The command as a user meets it: what it prints, where, and its exit status."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fastsim as fastsim_package
from fastsim import cli
from fastsim.cluster import routers
from fastsim.cluster.routers import get
from fastsim.cluster.routers.registry import Registry
from fastsim.sweep.replay import SHORT_LIST, _place, replay

ROOT = Path(__file__).parents[1]
SPEC = """
[sweep]
name = "small"
experiment = "tests.fake_experiment:FAKE"
seeds = 4

[base]
pause_s = %s

[grid]
router = ["alpha", "beta"]
rate_rps = [0.5, 1.0, 3.0]

[[figure]]
figure = "curves"
x = "rate_rps"
y = "latency_p99_s"
"""
# What pip's console script does.
COMMAND = [sys.executable, "-c", "from fastsim.cli import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def start(*arguments: object, cwd: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def fastsim(*arguments: object, cwd: Path) -> tuple[int, str, str]:
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.fixture
def spec(tmp_path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SPEC % 0.0)
    return path


def test_run_prints_tables_draws_and_resumes(tmp_path, spec):
    code, out, err = fastsim("run", spec, "--jobs", 2, cwd=tmp_path)
    assert code == 0
    assert "interval over 4 seeds" in out
    assert "24 points simulated" in out
    figure = tmp_path / "results" / "small" / "figures" / "latency_p99_s-rate_rps.png"
    assert f"figure: {figure.relative_to(tmp_path)}" in out
    assert figure.stat().st_size > 10_000
    assert "Traceback" not in err
    code, again, _ = fastsim("run", spec, cwd=tmp_path)
    assert code == 0
    assert "0 points simulated in 0.0 s, 24 found" in again
    table = out[: out.index("figure:")]
    assert again.startswith(table)
    code, shown, err = fastsim("show", "results/small", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert table.strip() == shown.strip()


def test_show_for_machines_and_by_axis(tmp_path, spec):
    fastsim("run", spec, cwd=tmp_path)
    code, out, _ = fastsim(
        "show", "results/small", "--json", "--by", "router", "--where", "rate_rps=0.5", cwd=tmp_path
    )
    rows = json.loads(out)
    assert code == 0
    assert [row["router"] for row in rows] == ["alpha", "beta"]
    assert rows[0]["latency_mean_s"]["n"] == 4
    assert "traffic.rate_rps" not in rows[0]


def test_settings_and_folder(tmp_path, spec):
    code, out, _ = fastsim(
        "run", spec, "--set", "rate_rps=[0.5]", "--set", "sweep.seeds=2", "--out", "here", cwd=tmp_path
    )
    assert code == 0
    assert "4 points simulated" in out
    assert (tmp_path / "here" / "sweep.json").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "none.toml"], "fastsim: sweep none.toml cannot be read: No such file or directory"),
        (
            ["run", "small.toml", "--set", "rat_rps=1"],
            "fastsim: --set 'rat_rps' is unknown; did you mean 'rate_rps'?",
        ),
        (["run", "small.toml", "--jobs", "0"], "fastsim: jobs is 0; it must be at least 1"),
        (["run", "small.toml", "--jobs", "two"], "--jobs"),
        (["run", "small.toml", "--jobs", "1.5"], "--jobs: '1.5' is not a whole number"),
        (["replay", "small.toml", "--replicas", "2.5"], "--replicas: '2.5' is not a whole number"),
        (["run", "small.toml", "--backend", "thread"], "--backend"),
        (["show", "."], "fastsim: . holds no sweep results: there is no sweep.json in it"),
        (["shwo"], 'Did you mean "show"?'),
        (["replay", "none.jsonl"], "fastsim: trace 'none.jsonl' does not exist"),
        (["replay", "small.toml", "--router", "round_robbin"], "did you mean 'round_robin'?"),
        (["replay", "small.toml", "--view", "perodic(2)"], "view = 'perodic(2)' is not known"),
    ],
)
def test_mistakes_get_one_sentence_and_status_2(tmp_path, spec, arguments, sentence):
    code, out, err = fastsim(*arguments, cwd=tmp_path)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "results" / "small" / "parts").exists() or not list(
        (tmp_path / "results/small/parts").iterdir()
    )


def test_failed_points_give_status_1(tmp_path, spec):
    code, out, err = fastsim("run", spec, "--set", "fate=raise", "--set", "doomed=1", cwd=tmp_path)
    assert code == 1
    assert "21 points simulated" in out
    assert "failed: traffic.rate_rps=0.5, router=beta, replicate 1: ValueError: doomed" in err
    assert "3 points failed, see results/small/failed.txt" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_ctrl_c_keeps_points_and_gives_status_130(tmp_path, spec, backend):
    spec.write_text(SPEC % 0.3)
    process = start("run", spec, "--jobs", 2, "--backend", backend, cwd=tmp_path)
    parts = tmp_path / "results" / "small" / "parts"
    _wait_for(lambda: parts.exists() and len(list(parts.iterdir())) >= 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    kept = len(list(parts.iterdir()))
    assert process.returncode == 130
    assert f"fastsim: interrupted; {kept} points are kept, run again to go on" in err
    assert "Traceback" not in err
    time.sleep(0.7)
    assert len(list(parts.iterdir())) == kept


def test_a_second_ctrl_c_would_kill():
    before = signal.getsignal(signal.SIGINT)
    try:
        cli._first_interrupt_stops_second_kills()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_version_is_quick(tmp_path):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code, out, _ = fastsim("--version", cwd=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (code, out[0].isdigit()) == (0, True)
    # Processor time: others' work on the machine does not count.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3


def test_listings(tmp_path):
    for what, name in (("routers", "round_robin"), ("hardware", "a6000"), ("models", "mistral-7b")):
        code, out, err = fastsim(what, cwd=tmp_path)
        assert (code, err) == (0, "")
        assert name in out
    code, out, _ = fastsim("workloads", "--json", cwd=tmp_path)
    assert {"long_documents", "mooncake"} <= {entry["name"] for entry in json.loads(out)}


def test_workloads_measures_one_beside_table_1(tmp_path, shared_path):
    code, out, err = fastsim(
        "workloads", "video_qa", "--set", "preset=table_1", "--set", "requests=500", cwd=tmp_path
    )
    assert (code, err) == (0, "")
    key = next(line for line in out.splitlines() if line.startswith("key portion in prompt"))
    assert key.split()[-2:] == ["0.99", "0.002"]
    code, out, _ = fastsim("workloads", "video_qa", "--json", "--seed", 3, cwd=tmp_path)
    rows = {row["column"]: row for row in json.loads(out)}
    made = fastsim_package.workloads.make("video_qa", seed=3)
    assert rows["prompt_tok"]["mean"] == made.prompt_tok.mean()
    assert rows["prompt_tok"]["table_1_mean"] == 9865
    trace = shared_path("traces/inputs/fmt_mooncake_fast25.jsonl")
    code, out, _ = fastsim("workloads", trace, cwd=tmp_path)
    assert "Table 1" not in out
    for wrong, message in (
        (("video_q",), "fastsim: workload: 'video_q' is not known; did you mean 'video_qa'?\n"),
        ((trace, "--set", "limits=3"), f"fastsim: trace {trace} has no 'limits'; did you mean 'limit'?\n"),
    ):
        assert fastsim("workloads", *wrong, cwd=tmp_path) == (cli.WRONG_INPUT, "", message)


def test_replay_compares_a_short_list_unless_told_otherwise(monkeypatch, shared_path):
    assert set(SHORT_LIST) <= set(routers.ROUTERS)
    few = Registry()  # all take a minute to compile
    for name in ("random", "round_robin", "cache_aware_guard"):
        few[name] = get(name)
    monkeypatch.setattr(routers, "ROUTERS", few)
    monkeypatch.setattr("fastsim.sweep.replay.SHORT_LIST", ("round_robin", "cache_aware_guard"))
    trace = shared_path("traces/inputs/fmt_mooncake_fast25.jsonl")
    base = {"workload": {"trace": str(trace)}, "cluster": {"replicas": 2, "gpu": "h100"}}
    notes: list[str] = []
    short = replay(base, note=notes.append)
    assert {row["router"] for row in short.rows} == {"round_robin", "cache_aware_guard"}
    assert "comparing 2 routers; --router all compares all 3, a minute to compile" in notes
    assert {row["router"] for row in replay(base, ["all"]).rows} == set(few)


def test_replay_sorts_best_first_and_overloaded_runs_last():
    rows = [
        {"latency_mean_s": 9.0, "latency_p99_s": None, "hit_rate": 0.1},
        {"latency_mean_s": 2.0, "latency_p99_s": 8.0, "hit_rate": 0.2},
        {"latency_mean_s": 7.0, "latency_p99_s": None, "hit_rate": 0.4},
        {"latency_mean_s": 1.0, "latency_p99_s": 9.0, "hit_rate": 0.3},
    ]

    def means(metric: str, more: bool) -> list[float]:
        return [row["latency_mean_s"] for row in sorted(rows, key=lambda row: _place(row, metric, more=more))]

    assert means("latency_p99_s", False) == [2.0, 1.0, 7.0, 9.0]
    assert means("hit_rate", True) == [7.0, 1.0, 2.0, 9.0]


def test_replay_compares_routers_and_says_what_it_read(tmp_path, shared_path):
    trace = shared_path("traces/inputs/fmt_mooncake_fast25.jsonl")
    given = ["--router", "random", "--router", "least_work", "--replicas", 2, "--gpu", "h100"]
    code, out, err = fastsim("replay", trace, *given, "--sort", "busiest_share", cwd=tmp_path)
    assert code == 0
    assert "mean TTFT" in out
    assert "offered load: the rate over the highest" in out
    assert "sorted by busiest share (--sort); one run each" in out
    for column in ("copies", "imbalance", "busiest share", "hit rate", "throughput"):
        assert f"\n{column}: " in out
    table = [line.split()[0] for line in out.splitlines() if line and line[0].isalpha()]
    assert {"random", "least_work"} <= set(table)
    assert "rows" in err
    code, out, err = fastsim(
        "replay", trace, "--json", "--router", "random", "--router", "least_work", cwd=tmp_path
    )
    found = json.loads(out)
    assert code == 0
    assert {row["router"] for row in found["routers"]} == {"random", "least_work"}
    p99 = [row["latency_p99_s"] for row in found["routers"]]
    assert p99 == sorted(p99)
    assert found["workload"]["rows_read"] == found["routers"][0]["samples"]
    assert found["cluster"]["replicas"] == 4
    assert found["routers"][0]["speed_rps"] > 0
    assert "rows" in err
    code, _, err = fastsim("replay", trace, "--sort", "latency_p98_s", cwd=tmp_path)
    assert code == cli.WRONG_INPUT
    assert "sort = 'latency_p98_s' is no metric of a replay; did you mean 'latency_p99_s'?" in err


def _wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
