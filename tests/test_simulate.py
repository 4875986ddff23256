"""The public face: what `simulate` returns, what it promises, and what it refuses."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastsim
import fastsim.cluster.simulate as face
from fastsim import Cluster, simulate
from fastsim.cluster import _state
from fastsim.cluster._workspace import new_state
from fastsim.cluster.step_time import StepTime
from fastsim.errors import InputError
from fastsim.workloads import Workload, make
from tests.cluster_runs import cluster_of, serve
from tests.twins.cases import make_case

small = pytest.mark.small
every_engine = pytest.mark.parametrize("engine", ["vllm", "lecture"])
seeds = st.integers(0, 10**6)
some = settings(max_examples=40, deadline=None, derandomize=True)

STEP = StepTime.linear(0.01, 0.0001, 0.001)
SMALL = {"kv_tok": 4096, "max_batch_tok": 512, "max_seqs": 16, "step_time": STEP}


def documents(**params: Any) -> Workload:
    """Questions about a few short documents."""
    usual = {
        "documents": 9,
        "document_tok": 300.0,
        "document_min_tok": 50,
        "question_tok": 40.0,
        "rate_rps": 8.0,
    }
    return make("long_documents", **{"requests": 150, **usual, **params})


def run(workload: Workload | None = None, router: str = "cache_aware_guard", **options: Any) -> face.Result:
    return simulate(workload or documents(), Cluster(3, **SMALL), router, **options)


# --- the requests table -------------------------------------------------------------------------------------


@small
def test_the_requests_table_has_these_columns():
    workload = documents()
    requests = run(workload).requests
    assert requests.schema == {
        "request": pl.Int64,
        "arrival_s": pl.Float64,
        "replica": pl.Int64,
        "first_token_s": pl.Float64,
        "done_s": pl.Float64,
        "prompt_tok": pl.Int64,
        "output_tok": pl.Int64,
        "hit_tok": pl.Int64,
        "preemptions": pl.Int64,
    }
    assert requests["request"].to_list() == list(range(len(workload)))
    for name in ("arrival_s", "prompt_tok", "output_tok"):
        np.testing.assert_array_equal(requests[name].to_numpy(), getattr(workload, name))


@small
@every_engine
@given(seed=seeds)
@some
def test_nothing_is_lost_and_nothing_is_early(engine, seed):
    case = make_case(seed, engine)
    cluster = cluster_of(case)
    result = serve(case)
    rows, totals = result.requests, result.replicas
    assert rows["replica"].is_between(0, cluster.replicas - 1).all()
    served = np.bincount(rows["replica"].to_numpy(), minlength=cluster.replicas)
    np.testing.assert_array_equal(totals["requests"], served)
    tokens = int((rows["prompt_tok"] + rows["output_tok"] - 1).sum())
    spent = int(totals["computed_tok"].sum() + rows["hit_tok"].sum())
    preempted = int(rows["preemptions"].sum())
    assert (
        spent == tokens if preempted == 0 else spent >= tokens - preempted * cluster.kv_blocks * cluster.block
    )
    assert preempted == totals["preemptions"].sum()
    assert rows["hit_tok"].is_between(0, rows["prompt_tok"] - 1).all()
    assert (rows["hit_tok"] % cluster.block == 0).all()
    chunks = -(-(rows["prompt_tok"] - rows["hit_tok"]) // cluster.batch_tok)
    prefill_s = cluster.steps.seconds(1, 1, 0, 0) - 1e-12
    decode_s = cluster.steps.seconds(0, 1, 1, 1) - 1e-12
    assert (rows["first_token_s"] >= rows["arrival_s"] + chunks * prefill_s).all()
    assert (rows["done_s"] >= rows["first_token_s"] + (rows["output_tok"] - 1) * decode_s).all()
    makespan_s = max(rows["done_s"]) - min(rows["arrival_s"])
    assert (totals["busy_s"] <= makespan_s + 1e-12).all()
    assert ((totals["busy_s"] > 0) == (served > 0)).all()


@small
def test_a_request_alone_takes_its_steps_and_no_more():
    workload = make("unique", requests=1, prompt_tok=1200, output_tok=5)
    result = simulate(workload, Cluster(1, **SMALL))
    (row,) = result.requests.rows(named=True)
    chunks_s = 3 * 0.01 + 1200 * 0.0001
    assert row["first_token_s"] - row["arrival_s"] == pytest.approx(chunks_s, abs=1e-11)
    assert row["done_s"] - row["first_token_s"] == pytest.approx(4 * 0.011, abs=1e-11)


@small
def test_same_seed_same_bits():
    first, again, other = (run(router="power_of_two", seed=seed) for seed in (3, 3, 4))
    assert first.requests.equals(again.requests)
    assert first.figures == again.figures
    assert not first.requests.equals(other.requests)


def test_threads_do_not_disturb_each_other():
    workloads = [documents(seed=seed) for seed in range(4)]
    alone = [run(workload).requests for workload in workloads]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda workload: run(workload).requests, workloads * 3))
    assert all(ours.equals(theirs) for ours, theirs in zip(together, alone * 3, strict=True))


@small
def test_a_workload_is_left_as_it_was():
    workload = documents()
    digest = workload.digest()
    result = run(workload)
    result.requests.with_columns(arrival_s=pl.lit(0.0))
    assert documents().digest() == digest == Workload(**_fields(workload)).digest()


def _fields(workload: Workload) -> dict[str, Any]:
    return {name: getattr(workload, name) for name in workload.__dataclass_fields__}


# --- the summary --------------------------------------------------------------------------------------------


def order_statistic(values: pl.Series, percent: int) -> float:
    return values.sort()[-(-len(values) * percent // 100) - 1]


def recomputed(result: face.Result, warmup_s: float) -> dict[str, float]:
    """The figures of a stable run, from the tables."""
    rows = result.requests
    kept = rows.filter(pl.col("arrival_s") >= warmup_s)
    several = kept.filter(pl.col("output_tok") > 1)
    latencies = {
        "ttft": kept["first_token_s"] - kept["arrival_s"],
        "tpot": (several["done_s"] - several["first_token_s"]) / (several["output_tok"] - 1),
        "latency": kept["done_s"] - kept["arrival_s"],
    }
    figures = {}
    for name, values in latencies.items():
        figures[f"{name}_mean_s"] = sum(values) / len(values)
        figures |= {f"{name}_p{percent}_s": order_statistic(values, percent) for percent in (50, 90, 99)}
    busy_s = result.replicas["busy_s"].tolist()
    makespan_s = max(rows["done_s"]) - min(rows["arrival_s"])
    return figures | {
        "hit_rate": sum(kept["hit_tok"]) / sum(kept["prompt_tok"]),
        "copies": result.copies,
        "load_imbalance": max(busy_s) / (sum(busy_s) / len(busy_s)),
        "busiest_share": max(kept["replica"].value_counts()["count"]) / len(kept),
        "utilisation": sum(busy_s) / len(busy_s) / makespan_s,
        "preemptions": sum(rows["preemptions"]),
        "evicted_blocks": sum(result.replicas["evicted_blocks"].tolist()),
        "throughput_rps": len(rows) / makespan_s,
        "requests": len(kept),
        "rejected": 0.0,
    }


@small
@pytest.mark.parametrize("warmup_s", [0.0, 4.0])
def test_the_summary_is_what_the_tables_say(warmup_s):
    result = run(router="round_robin", warmup_s=warmup_s)
    summary = dict(result.figures)
    assert math.isfinite(summary.pop("backlog_score"))
    assert summary == pytest.approx(recomputed(result, warmup_s), rel=1e-12)
    assert 0 < summary["hit_rate"] < 1 < summary["copies"]
    assert summary["evicted_blocks"] > 0
    assert 0 < summary["utilisation"] < 1 < summary["load_imbalance"]
    assert (summary["requests"] < 150) == (warmup_s > 0)


def test_an_overloaded_run_says_so_and_has_no_p99():
    summary = run(documents(rate_rps=400.0, requests=600)).summary
    assert summary["stable"] is False
    assert [name for name, value in summary.items() if value is None] == [
        "ttft_p99_s",
        "tpot_p99_s",
        "latency_p99_s",
    ]
    assert summary["utilisation"] == pytest.approx(1.0, abs=0.1)


@small
def test_figures_of_nothing_are_none():
    summary = run(documents(output_tok=1, output_cv=0.0), warmup_s=1e5).figures
    assert summary["requests"] == 0
    assert {
        summary[f"{name}_{figure}_s"] for name in ("ttft", "tpot", "latency") for figure in ("mean", "p50")
    } == {None}
    assert summary["hit_rate"] is None
    assert summary["throughput_rps"] > 0


@small
def test_single_token_answers_have_no_time_per_token():
    summary = run(documents(output_tok=1.0, output_cv=0.0)).figures
    assert summary["tpot_mean_s"] is None
    assert summary["ttft_mean_s"] == summary["latency_mean_s"] > 0


@small
def test_copies_count_what_several_replicas_hold():
    # Each of two requests leaves five full blocks of 16 tokens, of which four are the same.
    columns: dict[str, Any] = {"prompt_tok": [65, 65], "output_tok": [16, 16], "symbol_ptr": [0, 1, 2]}
    workload = Workload(
        "twice", np.array([0.0, 1.0]), symbols=np.zeros(2), symbol_tok=np.array([64]), **columns
    )
    assert simulate(workload, Cluster(2, **SMALL)).copies == 10 / 6
    assert simulate(workload, Cluster(1, **SMALL)).copies == 1.0


# --- views --------------------------------------------------------------------------------------------------


@small
@pytest.mark.parametrize(
    "view", ["periodic(2)", "periodic(2.0)", "periodic( 2 )", "periodic(20e-1)", "periodic(+2.)"]
)
def test_a_period_may_be_written_in_many_ways(view):
    assert run(view=view).requests.equals(run(view="periodic(2.000)").requests)
    assert not run(view=view).requests.equals(run(view="live").requests)


@small
def test_a_view_renewed_at_every_picosecond_of_the_clock_shows_loads_without_this_instants_arrivals():
    workload = make("unique", requests=60, rate_rps=30.0, prompt_tok=50, output_tok=20)
    assert run(workload, "least_loaded", view="periodic(1e-12)").requests.equals(
        run(workload, "least_loaded").requests
    )


# --- what is refused ----------------------------------------------------------------------------------------


@small
@pytest.mark.parametrize(
    "view", ["", "Live", "periodic", "periodic()", "periodic(2s)", "periodic(2", "delayed", 2.0, None]
)
def test_other_views_are_refused(view):
    refused(view)


@small
@pytest.mark.parametrize("period_s", ["0", "-1", "1e-13", "1e13", "1e400", "nan", "e", "1.2.3"])
def test_other_periods_are_refused(period_s):
    refused(f"periodic({period_s})")


def refused(view: Any) -> None:
    with pytest.raises(
        InputError,
        match=r"^view = .* is not (known; it must be one of native, live, own|allowed)",
    ):
        run(view=view)


@small
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"router": "raondm"}, "did you mean 'random'"),
        ({"warmup_s": -1.0}, r"warmup_s = -1\.0 is not allowed; it must be a number from 0 to 1e\+12"),
        ({"warmup_s": float("nan")}, "warmup_s = nan is not allowed"),
        ({"warmup_s": float("inf")}, "warmup_s = inf is not allowed"),
        ({"seed": -1}, "seed = -1 is not allowed; it must be a whole number, at least 0"),
        ({"replicate": -1}, "replicate = -1 is not allowed; it must be a whole number, at least 0"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(InputError, match=message) as caught:
        run(**options)
    assert "\n" not in str(caught.value)


@small
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replicas": 0}, "replicas = 0 is not allowed; it must be a whole number from 1 to 100,000"),
        ({"replicas": 2.5}, "replicas = 2.5 is not allowed"),
        ({"replicas": True}, "replicas = True is not allowed"),
        ({"engine": "vlm"}, r"engine = 'vlm' is not allowed; did you mean 'vllm'\?"),
        ({"model": "mistral"}, "'mistral'.* did you mean 'mistral-7b'"),
        ({"gpu": "a600"}, "'a600'.* did you mean 'a6000'"),
        ({"block_tok": 0}, "block_tok = 0 is not allowed"),
        (
            {"engine": "lecture", "block_tok": 16},
            "block_tok = 16 is not allowed; the lecture's engine has block size 1",
        ),
        ({"kv_tok": 15}, "kv_tok = 15 is not allowed; it must hold a block of 16 tokens"),
        ({"kv_tok": 0}, "kv_tok = 0 is not allowed"),
        (
            {"max_batch_tok": 8, "max_seqs": 9},
            r"max_batch_tok = 8 is not allowed; it must be at least max_seqs \(9\)",
        ),
        ({"max_seqs": -1}, "max_seqs = -1 is not allowed"),
        ({"watermark": 1.0}, r"watermark = 1\.0 is not allowed; it must be a number, at least 0 and below 1"),
        ({"watermark": -0.1}, "watermark = -0.1 is not allowed"),
        ({"watermark": float("nan")}, "watermark = nan is not allowed"),
        (
            {"step_time": {"kind": "lnear"}},
            r"kind of step_time 'lnear' is not known; did you mean 'linear'\?",
        ),
    ],
)
def test_clusters_that_cannot_be_are_refused(settings, message):
    with pytest.raises(InputError, match=message) as caught:
        Cluster(**settings)
    assert "\n" not in str(caught.value)


@small
@every_engine
def test_a_request_that_can_never_fit_is_named(engine):
    block = {"vllm": 16, "lecture": 1}[engine]
    spare = {"vllm": 1, "lecture": 0}[engine]  # the lecture reserves room for the last token, too
    fits = make("unique", requests=2, prompt_tok=60 * 16 + spare, output_tok=64)
    too_long = make("unique", requests=2, prompt_tok=60 * 16 + spare + 1, output_tok=64)
    cluster = Cluster(1, engine=engine, block_tok=block, **{**SMALL, "kv_tok": 64 * 16})
    assert simulate(fits, cluster).figures["requests"] == 2
    with pytest.raises(
        InputError, match=r"request 0 \(\d+ prompt \+ 64 output tokens\) can never fit kv_tok = 1024"
    ) as e:
        simulate(too_long, cluster)
    assert "2 such requests" in str(e.value)


@small
def test_an_arrival_beyond_the_clock_is_refused():
    late = make("unique", requests=2).arranged(np.arange(2), np.array([0.0, 2e6]))
    with pytest.raises(
        InputError, match=r"arrival_s = 2000000.0 is not allowed; the last must be at most 1e\+06 s"
    ):
        run(late)


# --- memory -------------------------------------------------------------------------------------------------


def test_pools_that_start_too_small_grow_and_change_nothing(monkeypatch):
    grown = face.grown
    faults: set[int] = set()

    def counted(state: Any) -> Any:
        faults.add(int(state.pool[_state.FAULT]))
        return grown(state)

    def least(prompts: Any, cluster: Cluster) -> dict[str, int]:
        hits = max(1, int(np.diff(prompts.path_ptr).max()))
        return {"ext": 1, "hold": 1, "table": 16, "hits": hits, "event": 1}

    cases = [make_case(seed, engine) for seed in range(150) for engine in ("vllm", "lecture")]
    wide = [serve(case) for case in cases]
    monkeypatch.setattr(face, "grown", counted)
    monkeypatch.setattr(face, "sizes", least)
    for case, expected in zip(cases, wide, strict=True):
        narrow = serve(case)
        assert narrow.requests.equals(expected.requests), case["seed"]
        assert narrow.copies == expected.copies
        for name, totals in expected.replicas.items():
            np.testing.assert_array_equal(narrow.replicas[name], totals)
    full = (_state.FULL_EXT, _state.FULL_HOLD, _state.FULL_TABLE, _state.FULL_HITS, _state.FULL_EVENTS)
    assert faults == set(full)


def state_bytes(documents_: int, replicas: int) -> int:
    workload = documents(documents=documents_, zipf=0.0, requests=4000)
    cluster = Cluster(replicas, **SMALL)
    prompts = face.compile_prompts(workload, cluster.block)
    policy = face.get("prefix_affinity")
    knowledge = face.settle(policy, policy.spec({}), "live", 1, "native", "sent")
    owner = np.zeros(len(workload), np.int64)
    state = new_state(workload, prompts, cluster, knowledge, policy, owner, face.sizes(prompts, cluster))
    return sum(getattr(state, name).nbytes for name in _state.FIELDS)


@small
def test_memory_does_not_grow_with_replicas_times_distinct_blocks():
    few, many = (state_bytes(n, 62) - state_bytes(n, 1) for n in (20, 2000))
    assert many - few < 1_000_000


def test_warmup_compiles_what_a_run_needs():
    face.warmup(["least_work", "cache_aware_guard"])
    with pytest.raises(InputError, match="no_such"):
        face.warmup(["no_such"])


@small
@small
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("trace.jsonl", Cluster(2)),
            r"workload = 'trace\.jsonl' is not allowed; it must be a Workload",
        ),
        ((None, Cluster(2)), "workload = None is not allowed"),
        ((Cluster(2), Cluster(2)), "workload = Cluster"),
        ((make("unique", requests=2), {"replicas": 2}), "cluster = {'replicas': 2} is not allowed"),
        ((make("unique", requests=2), Cluster(2), 3), "router = 3 is not allowed; it must be a text"),
    ],
)
def test_what_is_no_workload_cluster_or_router_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        simulate(*arguments)


@small
def test_a_result_prints_in_a_line():
    result = simulate(make("unique", requests=3), Cluster(2))
    assert repr(result) == "<Result: 3 requests, 2 replicas>"


def test_the_front_door():
    assert fastsim.simulate is simulate
    assert {"simulate", "Cluster", "router", "routers", "workloads"} <= set(dir(fastsim))
