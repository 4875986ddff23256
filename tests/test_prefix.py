"""Compiled prompts against plain dictionaries of whole prefixes, and what caches of any size would save."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.cluster.prefix import Prompts, compile_prompts, ideal_hit_rate, lru_hit_rates
from fastsim.errors import InputError
from fastsim.workloads import Workload, from_prompts, load, make
from tests.twins import prefix as twin

small = pytest.mark.small
many = settings(max_examples=150, deadline=None, derandomize=True)

block_sizes = st.one_of(st.integers(1, 8), st.integers(1, 64))


@st.composite
def workloads(draw) -> Workload:
    """Prompts over a few symbols, so that they have much in common; some go on, some have tails."""
    most_tok = draw(st.sampled_from([1, 3, 12, 70]))  # 1: prompts are arrays of tokens
    symbol_tok = draw(st.lists(st.integers(1, most_tok), min_size=1, max_size=5))
    symbol = st.integers(0, len(symbol_tok) - 1)
    paths, answers, outputs, tails, shared = [], [], [], [], []
    for _ in range(draw(st.integers(1, 8))):
        start = draw(
            st.sampled_from([[], *paths, *([*p, a] for p, a in zip(paths, answers, strict=True) if a >= 0)])
        )
        paths.append([*start, *draw(st.lists(symbol, max_size=4))])
        answers.append(draw(st.one_of(st.just(-1), symbol)))
        outputs.append(symbol_tok[answers[-1]] if answers[-1] >= 0 else draw(st.integers(1, 20)))
        empty = not paths[-1]
        tails.append(draw(st.one_of(st.just(int(empty)), st.integers(int(empty), 20))))
        shared.append(draw(st.integers(0, len(paths[-1]))))
    n = len(paths)
    return Workload(
        name="drawn",
        arrival_s=np.zeros(n),
        prompt_tok=np.array([sum(symbol_tok[s] for s in p) + t for p, t in zip(paths, tails, strict=True)]),
        output_tok=np.array(outputs),
        symbol_ptr=np.cumsum([0] + [len(p) for p in paths]),
        symbols=np.array([s for p in paths for s in p], dtype=np.int64),
        symbol_tok=np.array(symbol_tok),
        shared_symbols=np.array(shared),
        answer=np.array(answers),
    )


def rows_of(ptr: np.ndarray, values: np.ndarray) -> list[list[int]]:
    return [values[a:b].tolist() for a, b in pairwise(ptr.tolist())]


def same_partition(ids: list[list[int]], keys: list[list]) -> bool:
    """Whether two namings of the same places call the same places equal."""
    pairs = {(i, k) for a, b in zip(ids, keys, strict=True) for i, k in zip(a, b, strict=True)}
    return len(pairs) == len({i for i, _ in pairs}) == len({k for _, k in pairs})


def runs_of(prompts: Prompts) -> list[list[int]]:
    return rows_of(prompts.path_ptr, prompts.path)


@small
@given(workload=workloads(), block_tok=block_sizes)
@many
def test_equal_ids_are_equal_blocks_after_equal_blocks(workload, block_tok):
    prompts = compile_prompts(workload, block_tok)
    assert same_partition(rows_of(*prompts.block_ids), twin.computed_blocks(workload, block_tok))


@small
@given(workload=workloads(), block_tok=block_sizes)
@many
def test_counts_are_those_of_dictionaries(workload, block_tok):
    prompts = compile_prompts(workload, block_tok)
    assert prompts.block_tok == block_tok
    assert prompts.full_blk.tolist() == [len(row) for row in twin.computed_blocks(workload, block_tok)]
    assert prompts.shared_blk.tolist() == twin.shared_blocks(workload, block_tok)
    assert prompts.known_tok.tolist() == twin.known_tok(workload)


@small
@given(workload=workloads(), block_tok=block_sizes)
@many
def test_runs_are_dense_not_empty_and_meet_only_as_prefixes(workload, block_tok):
    prompts = compile_prompts(workload, block_tok)
    paths = runs_of(prompts)
    mentioned = [run for path in paths for run in path]
    assert set(mentioned) == set(range(len(prompts.run_blk)))
    assert all(mentioned.count(run) > 1 for run in mentioned)
    assert (prompts.run_blk > 0).all()
    before = {run: path[:k] for path in paths for k, run in enumerate(path)}
    assert all(path[:k] == before[run] for path in paths for k, run in enumerate(path))
    for path, shared in zip(paths, prompts.shared_blk.tolist(), strict=True):
        on_path = int(prompts.run_blk[path].sum())
        assert shared <= on_path <= shared + 1  # more only by the block of an answer's last token


@small
@given(workload=workloads())
@many
def test_whole_segments_are_runs_whether_shared_or_not(workload):
    prompts = compile_prompts(workload, 1, segments=True)
    leading = twin.leading_symbols(workload)
    prefixes = [[tuple(row[: k + 1]) for k in range(len(row))] for row in leading]
    assert same_partition(runs_of(prompts), prefixes)
    lengths = [[int(workload.symbol_tok[s]) for s in row] for row in leading]
    assert [prompts.run_blk[path].tolist() for path in runs_of(prompts)] == lengths
    assert prompts.shared_blk.tolist() == [sum(row) for row in lengths]
    assert prompts.full_blk.tolist() == (workload.prompt_tok + workload.output_tok - 1).tolist()
    seen: set[tuple] = set()
    for row, lengths_tok, known in zip(prefixes, lengths, prompts.known_tok.tolist(), strict=True):
        assert known == sum(tok for key, tok in zip(row, lengths_tok, strict=True) if key in seen)
        seen.update(row)


@small
@given(workload=workloads(), block_tok=st.one_of(st.none(), block_sizes))
@many
def test_ideal_hit_rate_is_what_an_endless_cache_saves(workload, block_tok):
    known = twin.known_tok(workload)
    if block_tok is not None:
        known = [
            min(k, p - 1) // block_tok * block_tok
            for k, p in zip(known, workload.prompt_tok.tolist(), strict=True)
        ]
    assert ideal_hit_rate(workload, block_tok) == sum(known) / workload.prompt_tok.sum()


@small
@given(workload=workloads(), block_tok=block_sizes, capacity=st.integers(0, 60))
@many
def test_lru_hit_rates_are_those_of_caches_run_one_by_one(workload, block_tok, capacity):
    sizes = [capacity, 3 * capacity + 1, 10**9]
    hits = [sum(twin.lru_hits_tok(workload, block_tok, size)) for size in [*sizes[:2], None]]
    rates = lru_hit_rates(workload, block_tok, sizes).tolist()
    assert rates == [h / workload.prompt_tok.sum() for h in hits]
    assert rates[-1] == ideal_hit_rate(workload, block_tok)


@small
def test_a_request_uses_its_deepest_block_first_and_thus_keeps_its_start():
    # The second finds as much of "abc" as fits; the last a cache full of "zzz" and its answer, and then "ab".
    workload = from_prompts(["abcx", "abcy", "zzz", "abc"], np.arange(4.0), [1, 1, 1, 1])
    rates = lru_hit_rates(workload, 1, [0, 1, 2, 3, 4, 5, 6])
    assert (rates * 14).round(9).tolist() == [0, 1, 2, 3, 3, 4, 5]


@small
@pytest.mark.parametrize(("block_tok", "segments"), [(0, False), (-1, False), (2, True), (0, True)])
def test_impossible_blocks_are_refused(block_tok, segments):
    with pytest.raises(InputError, match=rf"block_tok must be .* not {block_tok}"):
        compile_prompts(make("unique", requests=2), block_tok, segments=segments)


@small
def test_a_workload_that_shares_nothing_has_no_runs():
    workload = make("unique", requests=5)
    prompts = compile_prompts(workload, 16)
    assert len(prompts.run_blk) == len(prompts.path) == prompts.shared_blk.sum() == 0
    assert np.unique(prompts.block_ids[1]).size == prompts.full_blk.sum()
    assert ideal_hit_rate(workload) == 0.0
    assert lru_hit_rates(workload, 16, [10**6]).tolist() == [0.0]


def test_hit_rates_of_the_conversation_trace(shared_path):
    workload = load(shared_path("traces/mooncake_conversation.jsonl.gz"), cache=False)
    assert round(ideal_hit_rate(workload), 3) == 0.374
    sizes = [0, 1_000, 10_000, 100_000, 10**9]
    rates = lru_hit_rates(workload, 512, sizes)
    assert rates[0] == 0.0
    assert (np.diff(rates) > 0).all()
    assert rates[-1] == ideal_hit_rate(workload, 512)
