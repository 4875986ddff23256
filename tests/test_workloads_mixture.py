"""Mixes of workloads, arrival times from a trace, and presets."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

import fastsim
from fastsim.errors import InputError
from fastsim.sweep import parse
from fastsim.sweep.experiments.cluster import CLUSTER
from fastsim.workloads import GENERATORS, Workload, at_times, combine, load, make
from fastsim.workloads.presets import CODE_RATES_RPS, TABLE_1

small = pytest.mark.small
ALPHA = 1e-6

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{second:09.6f},10,5\n" for second in (46.5, 47.0, 47.0, 49.5, 50.5)
)


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(TRACE)
    return str(path)


def prefixes(workload: Workload) -> list[list[tuple[int, int]]]:
    """Every prompt as (symbol, tokens), the symbols numbered as they first appear."""
    names: dict[int, int] = {}
    bounds, symbols = workload.symbol_ptr.tolist(), workload.symbols.tolist()
    return [
        [
            (names.setdefault(s, len(names)), int(workload.symbol_tok[s]))
            for s in symbols[bounds[i] : bounds[i + 1]]
        ]
        for i in range(len(workload))
    ]


@small
def test_a_mix_has_its_parts_by_their_shares():
    workload = make("mix", requests=20_000)
    tools = workload.prompt_tok < 3500
    assert stats.binomtest(int(tools.sum()), len(tools), 0.8).pvalue > ALPHA
    assert stats.kstest(np.flatnonzero(tools) / len(tools), "uniform").pvalue > ALPHA
    video = workload.take(~tools)
    assert abs(video.prompt_tok.mean() - 9865) < 1500
    systems = {prompt[0] for prompt in prefixes(workload)}
    assert {tok for _, tok in systems} == {300, 13}


@small
def test_parts_keep_their_order_and_their_own_symbols_and_sessions():
    parts = [
        {"name": "agentic", "share": 1, "turns": 3.0},
        {"name": "agentic", "share": 2, "turns": 3.0},
        {"name": "group_sampling", "share": 1, "samples": 4},
    ]
    workload = make("mix", requests=400, parts=parts)
    again = make("mix", requests=200, parts=parts)
    assert prefixes(workload)[:200] == prefixes(again)
    sampled = workload.session < 0
    assert 60 < sampled.sum() < 140
    groups = [prompt[-1] for prompt, own in zip(prefixes(workload), sampled, strict=True) if own]
    assert sorted(groups) == groups
    sessions = workload.session[~sampled]
    used = [
        {s for i in np.flatnonzero(workload.session == session) for s in row(workload, int(i))[1:]}
        for session in np.unique(sessions)
    ]
    assert sum(map(len, used)) == len(set().union(*used))
    for session in np.unique(sessions):
        prompts = [row(workload, int(i)) for i in np.flatnonzero(workload.session == session)]
        assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(prompts))
    heads = {row(workload, int(i))[0] for i in np.flatnonzero(~sampled)}
    assert len(heads) > 4  # both parts have agents of their own


def row(workload: Workload, i: int) -> list[int]:
    return workload.symbols[workload.symbol_ptr[i] : workload.symbol_ptr[i + 1]].tolist()


@small
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "parts = \\[\\] is not allowed"),
        ([{"name": "tool_us"}], r"'tool_us' is not known; did you mean 'tool_use'\?"),
        ([{"share": 1.0}], "workload: '' is not known"),
        ([{"name": "tool_use", "share": 0}], "share = 0 is not allowed; it must be a number above 0"),
        ([{"name": "tool_use", "tool": 3}], r"it has no parameter 'tool'; did you mean 'tools'\?"),
        ([{"name": "tool_use", "rate_rps": 3.0}], "rate_rps cannot be given for a part; the times are"),
        ([{"name": "tool_use", "preset": "tabel_1"}], r"did you mean 'table_1'\?"),
    ],
)
def test_wrong_parts_are_refused(parts, message):
    with pytest.raises(InputError, match=message):
        make("mix", parts=parts)


@small
def test_combined_workloads_keep_their_times_and_share_nothing():
    parts = [
        make("agentic", requests=60),
        make("tool_use", requests=90, rate_rps=2.0),
        make("unique", requests=9),
    ]
    both = combine(parts, "all")
    assert (both.name, len(both)) == ("all", 159)
    assert sorted(np.concatenate([p.arrival_s for p in parts]).tolist()) == both.arrival_s.tolist()
    assert both.prompt_tok.sum() == sum(int(p.prompt_tok.sum()) for p in parts)
    first = both.arranged(np.flatnonzero(both.session >= 0), parts[0].arrival_s)
    assert first.digest() == parts[0].arranged(np.arange(60), parts[0].arrival_s).digest()
    with pytest.raises(InputError, match="workloads is empty"):
        combine([])


@small
def test_any_requests_may_come_at_the_times_of_another_source():
    workload = at_times(make("tool_use", requests=10), [0.0, 0.0, 2.5])
    assert workload.arrival_s.tolist() == [0.0, 0.0, 2.5]
    assert workload.prompt_tok.tolist() == make("tool_use", requests=3).prompt_tok.tolist()


@small
def test_arrival_times_come_from_a_trace(trace):
    own_rate = 1.0  # four gaps in four seconds
    times = make("tool_use", arrivals="trace", arrival_trace=trace, rate_rps=own_rate, requests=5).arrival_s
    np.testing.assert_allclose(times, load(trace).arrival_s - load(trace).arrival_s[0], rtol=1e-12)
    longer = make("tool_use", arrivals="trace", arrival_trace=trace, rate_rps=2.0, requests=12).arrival_s
    np.testing.assert_allclose(longer[:5], times / 2, rtol=1e-12)
    np.testing.assert_allclose(longer[5:10], 2.5 + times / 2, rtol=1e-12)
    timely = make("unique", arrivals="trace", arrival_trace=trace, rate_rps=2.0, duration_s=3.0).arrival_s
    np.testing.assert_array_equal(timely, longer[longer < 3.0])


@small
def test_a_trace_without_times_is_refused(trace, tmp_path):
    belongs = "workload mix: arrival_trace: it belongs to arrivals = 'trace'"
    with pytest.raises(InputError, match=belongs):
        make("mix", arrivals="trace")
    with pytest.raises(InputError, match=belongs):
        make("mix", arrival_trace=trace)
    with pytest.raises(InputError, match=r"workload mix: path: '.*nowhere' cannot be read"):
        make("mix", arrivals="trace", arrival_trace=str(tmp_path / "nowhere"))
    (tmp_path / "one.csv").write_text("".join(TRACE.splitlines(keepends=True)[:2]))
    with pytest.raises(InputError, match=r"all requests of .* come at once"):
        make("mix", arrivals="trace", arrival_trace=str(tmp_path / "one.csv"))


@pytest.mark.parametrize("preset", ["code_2gpus", "code_4gpus"])
def test_tools_and_videos_come_at_azure_s_times(shared_path, preset):
    path = str(shared_path("traces/azure_conv_2023.csv.gz"))
    workload = make("mix", preset=preset, arrivals="trace", arrival_trace=path)
    azure = load(path).arrival_s
    assert len(workload) == {"code_2gpus": 4500, "code_4gpus": 9000}[preset]
    np.testing.assert_allclose(np.corrcoef(workload.arrival_s, azure[: len(workload)])[0, 1], 1.0, rtol=1e-12)
    rate_rps = {"code_2gpus": 30.0, "code_4gpus": 60.0}[preset]
    gap_s = (azure[-1] - azure[0]) / (len(azure) - 1)
    assert workload.arrival_s[-1] == pytest.approx((azure[len(workload) - 1] - azure[0]) / gap_s / rate_rps)


every_preset = pytest.mark.parametrize(
    ("name", "preset"), [(name, preset) for name, entry in GENERATORS.items() for preset in entry.presets]
)


@small
@every_preset
def test_presets_stand_behind_what_is_given(name, preset):
    few = make(name, preset=preset, requests=40)
    assert len(few) == 40
    assert make(name, preset=preset, duration_s=5.0, rate_rps=9.0).arrival_s[-1] < 5.0
    spelt_out = {**GENERATORS[name].presets[preset], "requests": 40}
    spelt_out.pop("duration_s", None)
    assert make(name, **spelt_out).digest() == few.digest()
    assert few.digest() != make(name, requests=40).digest()


@small
@pytest.mark.parametrize("name", TABLE_1)
def test_runs_of_the_code_grow_with_the_gpus(name):
    two, four = (make(name, preset=f"code_{gpus}gpus") for gpus in (2, 4))
    assert four.summary.rate_rps == pytest.approx(2 * CODE_RATES_RPS[name][0], rel=0.2)
    assert len(four) == pytest.approx(2 * len(two), rel=0.25)


@small
def test_an_unknown_preset_is_refused():
    with pytest.raises(
        InputError, match=r"workload tool_use: preset = 'hott' is not known; did you mean 'hot'\?"
    ):
        make("tool_use", preset="hott")
    with pytest.raises(InputError, match="preset = 'hot' is not known; there are none to choose from"):
        make("unique", preset="hot")


def test_sweeps_know_presets_and_traces_of_arrivals(trace, tmp_path):
    def document(**workload):
        return {
            "sweep": {"name": "tiny"},
            "base": {"workload": workload, "cluster": {"replicas": 2}},
            "grid": {"router": ["random"], "requests": [20, 30]},
        }

    cells = parse(document(name="tool_use", preset="hot")).cells()
    assert [cell["workload"]["hottest_share"] for cell in cells] == [0.4, 0.4]
    assert (
        CLUSTER.prepare(cells[0], 7, 1).digest()
        == make("tool_use", seed=7, replicate=1, preset="hot", requests=20).digest()
    )
    axis = {**document(name="tool_use"), "grid": {"preset": ["hot", "table_1"], "router": ["random"]}}
    assert [cell["workload"]["preset"] for cell in parse(axis).cells()] == ["hot", "table_1"]

    timed = document(name="mix", arrivals="trace", arrival_trace=trace)
    first = parse(timed)
    assert CLUSTER.prepare(first.cells()[0], 0, 0).arrival_s[1] == pytest.approx(0.5)
    moved = tmp_path / "moved"
    moved.mkdir()
    (moved / "azure.csv").write_text(TRACE)
    second = parse(document(name="mix", arrivals="trace", arrival_trace=str(moved / "azure.csv")))
    assert fastsim.sweep.params.text(first.cells()[0]) == fastsim.sweep.params.text(second.cells()[0])
    (moved / "azure.csv").write_text(TRACE.replace("50.5", "51.5"))
    third = parse(document(name="mix", arrivals="trace", arrival_trace=str(moved / "azure.csv")))
    assert fastsim.sweep.params.text(first.cells()[0]) != fastsim.sweep.params.text(third.cells()[0])
    with pytest.raises(InputError, match=r"workload.arrival_trace .*gone' does not exist"):
        parse(document(name="mix", arrivals="trace", arrival_trace=str(tmp_path / "gone"))).cells()
