"""The cluster as an experiment: parameters, common random numbers, and rows equal to `simulate`'s summary."""

import shutil

import pytest

import fastsim
from fastsim.cluster.routers import ROUTERS
from fastsim.errors import InputError
from fastsim.sweep import parse, read, run, summarise
from fastsim.sweep.experiments import capacities, cluster
from fastsim.sweep.experiments.cluster import CLUSTER

DOCUMENT = {
    "sweep": {"name": "tiny", "seeds": 2, "seed": 7},
    "base": {
        "estimand": "transient",  # what `simulate` gives
        "workload": {"name": "long_documents", "requests": 120},
        "cluster": {"engine": "lecture", "replicas": 2},
    },
    "grid": {"router": ["round_robin", "random", "affinity_threshold"], "rate_rps": [0.4, 0.6]},
}


def with_base(**tables):
    return {**DOCUMENT, "base": {**DOCUMENT["base"], **tables}}


def test_rows_are_what_simulate_says(tmp_path):
    run(parse(DOCUMENT), tmp_path)
    rows = read(tmp_path).rows
    assert rows.height == 12
    for row in rows.iter_rows(named=True):
        router = "random" if '"random"' in row["params"] else None
        if router is None or '"rate_rps":0.6' not in row["params"]:
            continue
        workload = fastsim.workloads.make(
            "long_documents", seed=7, replicate=row["replicate"], rate_rps=0.6, requests=120
        )
        cluster = fastsim.Cluster(2, engine="lecture")
        result = fastsim.simulate(workload, cluster, router, seed=7, replicate=row["replicate"])
        for name in ("latency_mean_s", "latency_p90_s", "latency_p99_s", "hit_rate", "copies", "stable"):
            assert row[name] == result.summary[name], name
        assert row["samples"] == 120


def test_policies_meet_the_same_requests(tmp_path):
    run(parse(DOCUMENT, ["sweep.seeds=12", 'router=["round_robin", "least_work"]']), tmp_path)
    (table,) = summarise(read(tmp_path))
    for cell in table.cells[1::2]:
        difference = cell.differences["latency_mean_s"]
        assert difference is not None
        assert difference.vrf > 2  # pairing pays; streams out of step would give 1 on average


def test_defaults_are_written_out():
    sweep = parse(DOCUMENT)
    cell = sweep.cells()[2]
    assert cell["router"] == "affinity_threshold"
    assert cell["router_params"] == {"theta": 0.5}
    assert cell["cluster"]["kv_tok"] == 219_089
    assert cell["workload"]["zipf"] == 1.1
    assert cell["view"] == "native"


def test_one_table_of_router_parameters_serves_all_routers():
    sweep = parse(with_base(router_params={"theta": 0.3}))
    got = {cell["router"]: cell["router_params"] for cell in sweep.cells()}
    assert got == {"round_robin": {}, "random": {}, "affinity_threshold": {"theta": 0.3}}


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (with_base(router_params={"thet": 0.3}), r"router_params has no 'thet'; did you mean 'theta'\?"),
        (with_base(router_params={"abs_threshold": 4}), r"router_params.abs_threshold = 4 has no effect"),
        (with_base(cluster={"replica": 2}), r"cluster has no 'replica'; did you mean 'replicas'\?"),
        (with_base(cluster={"gpu": "a600"}), r"did you mean 'a6000'\?"),
        (
            with_base(workload={"name": "long_document"}),
            r"workload 'long_document' is not known; choose one of",
        ),
        (
            with_base(workload={"name": "long_documents", "zipff": 1}),
            r"no parameter 'zipff'; did you mean 'zipf'",
        ),
        (with_base(workload={}), r"workload.name is missing; .*--trace PATH"),
        (
            with_base(workload={"trace": "none.jsonl"}),
            r"trace has no 'rate_rps'; did you mean 'rate_scale'\?",
        ),
        ({**with_base(workload={"trace": "none.jsonl"}), "grid": {}}, r"trace 'none.jsonl' does not exist"),
        (with_base(view="periodic"), r"view = 'periodic' is not known"),
        (with_base(warmup_s=-1), r"warmup_s = -1 is not allowed; it must be a number from 0"),
        ({**DOCUMENT, "grid": {"router": ["round_robbin"]}}, r"did you mean 'round_robin'\?"),
    ],
)
def test_mistakes_are_named(document, sentence):
    with pytest.raises(InputError, match=sentence):
        parse(document)


def test_parameters_name_everything_a_cell_can_have():
    names = set(CLUSTER.parameters())
    assert {"router", "cluster.replicas", "workload.rate_rps", "workload.shuffle_sessions"} <= names
    assert {"router_params.theta", "view", "warmup_s"} <= names


TRACE = """{"timestamp": %d, "input_length": %d, "output_length": 20, "hash_ids": [%d, %d, %d]}\n"""


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text(
        "".join(TRACE % (200 * k, 1100 + 20 * (k % 20), k // 3, 100 + k // 2, 200 + k) for k in range(60))
    )
    return path


def traced(path):
    workload = {"trace": str(path), "shuffle_sessions": True}
    return {
        "sweep": {"name": "traced", "seeds": 3},
        "base": {"workload": workload, "cluster": {"replicas": 2}},
        "grid": {"router": ["round_robin", "prefix_affinity"], "rate_scale": [1.0, 2.0]},
    }


def test_a_trace_is_known_by_its_contents(tmp_path, trace):
    notes: list[str] = []
    run(parse(traced(trace)), tmp_path / "out", note=notes.append)
    assert any("60 read, 0 dropped" in note for note in notes)
    assert not any("every seed replays the same" in note for note in notes)
    moved = tmp_path / "elsewhere" / "trace.jsonl"
    moved.parent.mkdir()
    shutil.move(trace, moved)
    assert run(parse(traced(moved)), tmp_path / "out").simulated == 0
    assert read(tmp_path / "out").rows.height == 12  # needs no trace
    moved.write_text(moved.read_text().replace("1100,", "1101,"))
    assert run(parse(traced(moved)), tmp_path / "out").simulated == 12


def test_seeds_of_a_trace_are_shuffles_of_its_sessions(tmp_path, trace):
    run(parse(traced(trace)), tmp_path / "out")
    rows = read(tmp_path / "out").rows
    for means in rows.partition_by("params"):
        assert means["latency_mean_s"].n_unique() == 3


def test_seeds_that_replay_the_same_requests_are_pointed_out(tmp_path, trace):
    notes: list[str] = []
    run(parse(traced(trace), ["shuffle_sessions=false"]), tmp_path / "out", note=notes.append)
    assert any("every seed replays the same requests" in note for note in notes)


def test_a_malformed_trace_stops_the_sweep_before_it_runs(tmp_path, trace):
    with trace.open("a") as file:
        file.write('{"timestamp": 50000, "input_length": -3, "output_length": 1, "hash_ids": []}\n')
    with pytest.raises(InputError, match=r"line 61.*input_length"):
        run(parse(traced(trace)), tmp_path / "out")
    assert not list((tmp_path / "out" / "parts").iterdir())


def test_cells_that_differ_in_rate_and_seed_share_one_capacity(tmp_path, monkeypatch):
    """Rows hold the same bits whoever measures: alone, by threads, or again in another folder."""
    measured = []
    truly = cluster._measured
    monkeypatch.setattr(
        cluster, "_measured", lambda params, seed: measured.append(params["router"]) or truly(params, seed)
    )
    found = []
    for jobs in (1, 4):
        monkeypatch.setattr(capacities, "ONCE", capacities.Once())
        monkeypatch.setattr(capacities, "_on_disk", lambda text, kind, measure: measure())
        run(parse(DOCUMENT), tmp_path / str(jobs), jobs=jobs)
        found.append(
            read(tmp_path / str(jobs)).rows.select("params", "replicate", "capacity_rps", "offered_load")
        )
    assert sorted(measured) == sorted(2 * ["round_robin", "random", "affinity_threshold"])
    assert found[0].equals(found[1])
    for row in found[0].iter_rows(named=True):
        rate = 0.4 if '"rate_rps":0.4' in row["params"] else 0.6
        assert row["offered_load"] * row["capacity_rps"] == pytest.approx(rate)


def test_overload_is_told_from_the_load_whatever_the_length(tmp_path):
    sizes = ["workload.requests=[60, 400]", "workload.rate_rps=[0.3, 2.0]"]
    run(parse(DOCUMENT, sizes), tmp_path)
    (table,) = summarise(read(tmp_path))
    assert len(table.cells) == 12
    for cell in table.cells:
        slow = cell.axes["workload.rate_rps"] == 0.3
        assert cell.stable == slow
        assert cell.offered_load is not None
        assert (cell.offered_load < 1.0) == slow
        assert (cell.metrics["latency_p99_s"] is None) != slow


def test_capacities_are_kept_on_disk_to_the_bit_but_those_of_a_users_own_policies(tmp_path, monkeypatch):
    monkeypatch.setenv("FASTSIM_CACHE_DIR", str(tmp_path))

    @fastsim.router("of_ones_own")
    def of_ones_own(view, request):
        """Always the last."""
        return view.load.shape[0] - 1

    try:
        cells = parse(DOCUMENT, ['router=["random", "of_ones_own"]']).cells()
        found = []
        for _ in range(2):
            monkeypatch.setattr(capacities, "ONCE", capacities.Once())
            found.append([cluster.capacity_of(cell, 7) for cell in cells])
            monkeypatch.setattr(cluster, "_measured", lambda params, seed: params["router"])
        routers = [cell["router"] for cell in cells]
        for router, before, after in zip(routers, *found, strict=True):
            assert after == ("of_ones_own" if router == "of_ones_own" else before)
    finally:
        del ROUTERS["of_ones_own"]
