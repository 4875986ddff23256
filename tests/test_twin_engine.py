"""The slow twin of the engine: equal to the golden records, and lawful on random cases."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.twins import golden
from tests.twins.cases import cases, make_case
from tests.twins.convert import from_workload, to_pieces, to_step_time, to_workload
from tests.twins.engine import FS_PER_PS, FS_PER_S, Replica, Request, StepTime, build, run_one

ENGINES = ["vllm", "lecture"]
STEP_TIME_TOLERANCE_S = 1e-6


@cache
def serve(path: Path) -> tuple[dict, list[Request], Replica]:
    """A golden record, served by the twin once."""
    record = golden.load(path)
    return record, *run_one(record)


@pytest.mark.parametrize("path", golden.engine_files(), ids=lambda path: path.stem)
def test_equals_the_golden_record(path):
    record, requests, replica = serve(path)
    served = [(r.first_token_fs / FS_PER_S, r.done_fs / FS_PER_S, r.hit_tok, r.preemptions) for r in requests]
    assert golden.differences(record, served) == []
    assert record["totals"] == {
        "steps": replica.steps,
        "preemptions": replica.preemptions,
        "scheduled_tokens": replica.scheduled_tok,
        "hit_tokens": replica.hit_tok,
        "prompt_tokens": sum(request.prompt_tok for request in requests),
    }


@pytest.mark.parametrize("path", golden.engine_files(), ids=lambda path: path.stem)
def test_takes_the_golden_first_steps(path):
    record, _, replica = serve(path)
    for expected, (start_fs, duration_fs, *counts) in zip(record["first_steps"], replica.log, strict=False):
        assert abs(start_fs / FS_PER_S - expected[0]) <= STEP_TIME_TOLERANCE_S
        assert abs(duration_fs / FS_PER_S - expected[1]) <= STEP_TIME_TOLERANCE_S
        assert counts == expected[2:]


def test_all_golden_records_are_here():
    here = [path.parent.name for path in golden.engine_files() if path.parents[1].name == "golden"]
    assert (here.count("engine"), here.count("engine_more")) == (14, 10)


@pytest.mark.parametrize("engine", ENGINES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_every_request_is_served_once_and_in_time(engine, seed):
    case = make_case(seed, engine)
    requests, replica = run_one(case)
    start_of = {start_fs + duration_fs: start_fs for start_fs, duration_fs, *_ in replica.log}
    shortest_fs = min(duration_fs for _, duration_fs, *_ in replica.log)
    assert len(requests) == len(case["requests"])
    for request, row in zip(requests, case["requests"], strict=True):
        assert request.generated == row["output_tokens"]
        assert start_of[request.first_token_fs] >= request.arrival_ps * FS_PER_PS
        assert request.done_fs >= request.first_token_fs + (request.output_tok - 1) * shortest_fs
        assert request.admissions == request.preemptions + 1
        assert 0 <= request.hit_tok < request.prompt_tok


@pytest.mark.parametrize("engine", ENGINES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_tokens_computed_and_hit_are_tokens_in(engine, seed):
    requests, replica = run_one(make_case(seed, engine))
    tokens_in = sum(request.prompt_tok + request.output_tok - 1 for request in requests)
    assert replica.scheduled_tok + replica.hit_tok + replica.hit_again_tok - replica.dropped_tok == tokens_in
    assert replica.scheduled_tok == sum(scheduled for _, _, scheduled, *_ in replica.log)


@pytest.mark.parametrize("engine", ENGINES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_memory_is_conserved(engine, seed):
    _, replica = run_one(make_case(seed, engine))
    memory = replica.memory
    assert replica.peak_used <= memory.capacity
    assert memory.free() == memory.capacity
    assert memory.cached_copies_tok() <= memory.capacity * (memory.block_tok if engine == "vllm" else 1)
    assert replica.preemptions == 0 or engine == "vllm"
    if engine == "lecture":
        assert memory.blank_tok + memory.cached_copies_tok() == memory.capacity


STEP_MS = {"kind": "linear", "base": 1.0, "per_prefill_token": 0.0, "per_decode_request": 0.0}


def make_replica(engine: dict, *rows: dict, segments: dict) -> tuple[Replica, list[Request]]:
    """A replica with an engine and requests that have arrived, nothing scheduled yet."""
    case = {"segments": segments, "engine": engine, "requests": [{"arrival_s": 0.0, **row} for row in rows]}
    requests, _ = build(case)
    replica = Replica(engine, StepTime(STEP_MS))
    for request in requests:
        replica.arrive(request)
    return replica, requests


def step(replica: Replica) -> list[Request]:
    """One whole step."""
    replica.start_step(0)
    return replica.finish_step()


VLLM = {"block_size": 4, "num_blocks": 101, "max_num_seqs": 8, "max_num_batched_tokens": 100}
LECTURE = {**VLLM, "kind": "lecture", "block_size": 1, "max_num_batched_tokens": 20}


def test_aligned_prompt_recomputes_its_last_block():
    row = {"path": [1], "output_tokens": 1}
    replica, (first, second) = make_replica(VLLM, row, row, segments={"1": 12})
    step(replica)
    assert (first.hit_tok, second.hit_tok) == (0, 8)  # blocks are hittable within the step that takes them


def test_generated_blocks_are_hit_except_the_last_token():
    rows = [
        {"arrival_s": 0.0, "path": [1], "output_tokens": 6, "answer_segment": 2},
        {"arrival_s": 1.0, "path": [1, 2, 3], "output_tokens": 1},
    ]
    segments = {"1": 3, "2": 6, "3": 9}
    # 3 + 6 - 1 computed tokens fill two blocks, 3 + 5 - 1 only one
    for first_output, hit_tok in [(6, 8), (5, 4)]:
        rows[0]["output_tokens"] = first_output
        requests, _ = run_one({"segments": segments, "requests": rows, "engine": VLLM, "step_ms": STEP_MS})
        assert requests[1].hit_tok == hit_tok


def test_lecture_hits_whole_segments_and_computes_at_least_one_token():
    whole = {"path": [1, 2], "output_tokens": 1}
    asking = {"path": [1, 2, 3], "shared": 2, "output_tokens": 1}
    replica, requests = make_replica(LECTURE, whole, whole, asking, segments={"1": 5, "2": 10, "3": 4})
    while replica.in_flight():
        step(replica)
    assert [request.hit_tok for request in requests] == [0, 14, 15]
    assert replica.memory.cached_copies_tok() == 15


def test_lecture_evicts_whole_segments_deepest_first():
    engine = {**LECTURE, "num_blocks": 31}
    rows = [{"path": [1, 2], "output_tokens": 1}, {"path": [3], "shared": 0, "output_tokens": 1}]
    replica, _ = make_replica(engine, *rows, segments={"1": 5, "2": 10, "3": 15})
    step(replica)  # 16 of 30 tokens taken: the second waits, strictly
    assert [len(replica.waiting), len(replica.running)] == [1, 0]
    while replica.in_flight():
        step(replica)
    assert replica.memory.evicted == 10  # one token was missing; the deeper segment went, as a whole
    assert sorted(replica.memory.cached_tok().values()) == [5]


def test_lecture_registers_a_segment_when_its_last_token_is_scheduled():
    row = {"path": [1, 2], "output_tokens": 1}
    replica, _ = make_replica(LECTURE, row, segments={"1": 15, "2": 10})
    replica.start_step(0)
    assert sorted(replica.memory.cached_tok().values()) == [15]  # budget 20: the second is not complete
    replica.finish_step()
    replica.start_step(0)
    assert sorted(replica.memory.cached_tok().values()) == [10, 15]


@pytest.mark.parametrize("engine", ENGINES)
def test_cases_survive_the_packages_own_types(engine):
    for case in cases(0, 100, engine):
        step_time = to_step_time(case)
        assert to_pieces(step_time) == case["step_ms"]["pieces"]
        again = from_workload(to_workload(case), case["engine"], step_time)
        assert [timeline(r) for r in run_one(again)[0]] == [timeline(r) for r in run_one(case)[0]]


def timeline(request: Request) -> tuple:
    """Everything that happened to a request."""
    return request.first_token_fs, request.done_fs, request.hit_tok, request.preemptions


def test_step_time_is_the_largest_piece():
    pieces = [[[10, 100, 1000, 3, 2, 5, 7, 11, 0], []], [[0] * 9, [[1, 50, 0], [10, 50, 1000]]]]
    step_time = StepTime({"kind": "pieces", "pieces": pieces})
    assert step_time.duration_fs(2, 3, 1, 4) == 10 + 100 + 1000 + 6 + 8 + 15 + 7 + 44
    assert step_time.duration_fs(0, 1, 1, 1) == 10 + 1000 + 5 + 7 + 11
    assert step_time.duration_fs(20, 0, 1, 0) == 50 + 11 * 1000
